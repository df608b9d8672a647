"""This machine's GPUs: what is here, what it is doing, what it costs to let it wait, and what holds a job back."""
