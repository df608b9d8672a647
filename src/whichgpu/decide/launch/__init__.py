"""Command lines and files that launch a workload with an engine, a scheduler or a cluster manager (`--emit TARGET`)."""
