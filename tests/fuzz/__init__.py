"""Every reader of what others write, fed with drawn and mutated inputs until something breaks: `python -m tests.fuzz`."""
