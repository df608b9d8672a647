"""Roles of GPUs: which serve which model, and as prefill workers, decode workers or both."""
