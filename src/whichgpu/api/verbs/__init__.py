"""The verb `plan`."""
