"""Multi-GPU steps: links between GPUs, layouts, collectives of a step, and the seconds they take."""
