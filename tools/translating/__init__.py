"""For translators: what a language lacks, what has changed since it was translated, and putting new translations in place."""
