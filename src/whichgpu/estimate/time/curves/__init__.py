"""Timing models ("curves") of operators: seconds of one call on any GPU, in dimensionless numbers all GPUs share, fitted once."""
