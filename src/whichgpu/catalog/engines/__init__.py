"""Engine records, one per engine, read from `data/engines/<id>.csv`."""
