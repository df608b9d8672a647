"""`doctor`: what is on this machine, and rules that point out what is wrong with it."""
