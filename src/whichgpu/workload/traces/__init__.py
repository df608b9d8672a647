"""Request traces."""
