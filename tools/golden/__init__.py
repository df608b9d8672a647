"""Golden questions: a set of command lines over every command, and a comparison of two recordings of their numbers."""
