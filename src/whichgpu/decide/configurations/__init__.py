"""The best configuration of a workload on each group of GPUs: layout, batch, precision, engine."""
