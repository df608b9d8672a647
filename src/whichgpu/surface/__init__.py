"""Command line, Python functions, web pages, REST and charts. Nothing is computed here: answers come from `whichgpu.api`."""
