"""Prices as of a day, terms and discounts, and the cost of a run. This package knows no models."""
