"""Cities, countries, and the distance of a region."""
