"""The HTTP server: connections, worker processes, cached answers, jobs and the limits of each."""
