"""Memory and time of a workload on a device group. Fetches nothing, knows no prices."""
