"""This machine's GPUs: what they are, their utilisation, the cost of idle time, and what slows a job down."""
