"""Parsers of price files, one per file format; the files are downloaded or imported."""
