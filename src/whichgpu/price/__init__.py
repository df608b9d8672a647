"""What it costs: prices as of a day, terms and discounts, currencies. Knows no models."""
