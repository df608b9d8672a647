"""Web pages and REST: the same answers as the command line, over HTTP. Computes nothing; needs the `web` extra."""
