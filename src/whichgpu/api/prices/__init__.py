"""Verbs about prices: offers, their history, the user's own price store, buying."""
