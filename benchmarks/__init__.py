"""Benchmarks of the tool's own speed and accuracy. Run: make benchmarks."""
