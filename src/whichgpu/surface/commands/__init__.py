"""Commands: the request each takes, the verb that answers it, and how the answer is displayed; all surfaces use these."""
