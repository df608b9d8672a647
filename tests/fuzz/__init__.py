"""Every parser of untrusted input, fed with random and mutated inputs until something breaks: `python -m tests.fuzz`."""
