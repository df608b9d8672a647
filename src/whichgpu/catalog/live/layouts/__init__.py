"""Layouts of price files, whether fetched or imported: text in, rows out."""
