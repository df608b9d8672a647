"""Roles of GPUs: which model each serves, and whether as prefill worker, decode worker or both."""
