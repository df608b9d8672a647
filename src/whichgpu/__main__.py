"""`python3 -m whichgpu`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; say plainly which library is missing where one is."""
    try:
        from whichgpu.surface.cli.main import main as run
    except KeyboardInterrupt:
        return 130
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] == "whichgpu":
            raise
        # The message catalog may itself be out of reach here, so these two lines are written out.
        print(f"error: the Python package {missing.name!r} is not installed here", file=sys.stderr)
        print("hint: run ./whichgpu, which makes its own environment, or: pip install .", file=sys.stderr)
        return 3
    return run()


if __name__ == "__main__":
    sys.exit(main())
