"""Memory of a training step: its operators on a tape, replayed through the caching allocator."""
