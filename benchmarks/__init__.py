"""How fast the tool itself is. Run: make benchmarks."""
