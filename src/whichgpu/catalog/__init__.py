"""Facts: GPUs, hosts, instances, regions, each row with its source and date; the store; the checks."""
