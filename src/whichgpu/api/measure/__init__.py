"""Verbs about the GPUs of this machine: detect, measure, verify, watch."""
