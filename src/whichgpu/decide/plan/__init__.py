"""Fleet plans: the cheapest mix of GPUs for traffic and jobs, with a proven bound on how much cheaper any other could be."""
