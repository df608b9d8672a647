"""How far an estimate can be trusted: on which axes a question is new to the measurements, and the range that follows."""
