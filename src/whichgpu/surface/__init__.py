"""Command line, Python functions, pages, REST and charts. Nothing is computed here: answers come from `whichgpu.api`."""
