"""Helpers of curate_prices.py."""
