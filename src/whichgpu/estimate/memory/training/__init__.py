"""Memory of a training step: its operators are written on a tape and replayed through the caching allocator."""
