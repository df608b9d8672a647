"""Serving under load. `queueing` and `load_screen` give formulas; `simulator` simulates continuous batching step by step."""
