"""The verbs of the command line for those who ask from Python, and how their answers show themselves."""
