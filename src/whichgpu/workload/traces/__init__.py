"""Traces of requests, as others publish them."""
