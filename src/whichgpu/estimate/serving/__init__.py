"""Serving under load: `load_screen` gives queueing formulas, `simulator` simulates continuous batching step by step."""
