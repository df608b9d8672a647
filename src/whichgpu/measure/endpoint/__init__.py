"""Load test of a running OpenAI-compatible server: a short, bounded ramp of concurrency."""
