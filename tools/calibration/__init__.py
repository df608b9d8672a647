"""What was measured, as requests to whichgpu, and the fit of the time model to it."""
