"""Text of those parts of an answer that several commands share."""
