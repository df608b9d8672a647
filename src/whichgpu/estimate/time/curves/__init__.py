"""Seconds of one operator on any GPU: curves in dimensionless numbers, shared by all GPUs and fitted once."""
