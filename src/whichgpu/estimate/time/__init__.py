"""Time of a workload on one GPU: the operators that the framework runs, timed by a calibrated roofline model."""
