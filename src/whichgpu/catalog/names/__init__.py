"""Names of GPUs and instances as people and other tools write them."""
