"""Fleet simulation: pools of replicas, aggregated or split into prefill and decode workers, that share one request stream."""
