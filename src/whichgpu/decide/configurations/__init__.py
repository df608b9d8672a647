"""The best configuration (layout, batch, precision, engine) of a workload on each group of GPUs."""
