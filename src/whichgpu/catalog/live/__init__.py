"""Live prices: sources, checks of their rows, and the user's own price store.

    source -> OfferRow -> resolve (which variant?) -> plausibility -> price_store (changes of every snapshot)

Answering a question uses only `stored_offers.live_offers`, which reads the store.
"""
