"""What was measured, as requests to whichgpu, and the fit of the time model to it."""

import os

# Read by numpy when it is loaded: sums are then the same on any number of cores, and folds run in parallel anyway.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
