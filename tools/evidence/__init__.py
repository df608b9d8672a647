"""Measured results of others and our own, read into the rows of the evidence table (`catalog/data/evidence.csv.xz`)."""
