"""Commands about config files that people already have."""
