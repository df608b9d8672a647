"""Memory of a workload: what the framework allocates at its peak, what the device shows, and what takes the space."""
