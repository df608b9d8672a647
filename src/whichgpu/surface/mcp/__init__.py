"""Model Context Protocol server: the verbs as tools, with the schemas of their declared requests."""
