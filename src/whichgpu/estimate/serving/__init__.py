"""Serving under load: what an engine's steps become when many users ask at once.

`queueing` and `screen` tell in formulas where a load saturates; `simulator` settles it, iteration by iteration.
"""
