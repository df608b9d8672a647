"""Search of the evidence table by words and filters, over a compact index of its columns."""
