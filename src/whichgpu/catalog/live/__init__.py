"""Prices that live: sources that are asked, rows that are checked before they are believed, and the user's own store.

    source -> OfferRow -> resolve (which variant?) -> inspect (can it be true?) -> store (change rows, every snapshot)

Nothing here runs when a question is asked, save `offers.live_offers`, which reads the store.
"""
