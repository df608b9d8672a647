"""The verb `recommend`: which GPUs, on which offer, at what cost, and why."""
