"""Facts about GPUs, hosts, instances and regions, each row with its source and date; how they are stored and checked."""
