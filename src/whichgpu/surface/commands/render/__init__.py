"""Parts of an answer as text, shared by several commands."""
