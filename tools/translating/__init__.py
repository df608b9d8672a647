"""Tools for translators: missing and stale translations of a language, and merging new ones."""
