"""The report of `doctor`: hardware and software of this machine, and rules that find problems."""
