"""Cities, countries, and distances to regions."""
