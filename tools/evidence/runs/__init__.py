"""Readers of published runs: whole programs that trained or served a model."""
