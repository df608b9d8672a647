"""Engines: one record per engine, read from `data/engines/<id>.csv`."""
