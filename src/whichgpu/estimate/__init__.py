"""Estimates of the memory and time of a workload on one or several GPUs; this package fetches nothing and knows no prices."""
