"""Apply one function to many items: in this process, in a process pool, or on a Ray cluster."""
