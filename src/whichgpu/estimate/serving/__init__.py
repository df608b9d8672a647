"""Serving under load: `load_screen` evaluates queueing formulas; `simulator` simulates continuous batching step by step."""
