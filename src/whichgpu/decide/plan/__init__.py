"""Fleets: the cheapest mix of GPUs for traffic and jobs, with the proof of how near the cheapest it is."""
