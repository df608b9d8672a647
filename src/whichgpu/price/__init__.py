"""Prices as of a day, terms and discounts, cost of a run. Knows no models."""
