"""Memory of a workload: bytes the framework allocates at its peak, bytes the device shows as used, and a breakdown by part."""
