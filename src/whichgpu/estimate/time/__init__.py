"""Time of a workload on one GPU: operators as the framework runs them, on a calibrated roofline."""
