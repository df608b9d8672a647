"""One page about an answer, to forward: `--report FILE.html`, `.md` or `.pdf`."""
