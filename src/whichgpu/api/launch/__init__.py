"""Files that launch what an answer advises (`--emit TARGET`)."""
