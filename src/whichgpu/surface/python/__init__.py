"""The verbs of the command line as Python functions, and how notebooks display their answers."""
