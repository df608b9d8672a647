"""Readers of request traces: arrival times and token counts."""
