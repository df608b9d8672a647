"""Parts of `accuracy_trace`: models of the measured rows, a pool of processes, constants and scores."""
