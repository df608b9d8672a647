"""Seconds of one operator on any GPU: curves in dimensionless numbers that all GPUs share, fitted once."""
