"""GPUs of this machine: their properties, benchmarks and utilisation, the cost of idle time, and what slows a job down."""
