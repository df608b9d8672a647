"""Parsers of price files, downloaded or imported."""
