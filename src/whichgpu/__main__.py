"""`python3 -m whichgpu`."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the command line; Ctrl-C at any moment ends it with exit code 130."""
    gc.set_threshold(50_000, 20, 100)  # One command makes little garbage, and looking for it often takes 3% of the time.
    try:
        return _run()
    except KeyboardInterrupt:
        return 130


def _run() -> int:
    """Run the command line; a missing library or damaged message file gets a plain error."""
    try:
        from whichgpu.surface.cli.main import main as run
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] == "whichgpu":
            raise
        # Messages may be out of reach here, so these two lines are written out.
        print(f"error: the Python package {missing.name!r} is not installed here", file=sys.stderr)
        print("hint: run ./whichgpu, which makes its own environment, or: pip install .", file=sys.stderr)
        return 3
    try:
        return run()
    except Exception:  # A damaged message file cannot describe itself.
        from whichgpu.base.bundled_data import altered_files

        if not (names := [name for name in altered_files() if name.endswith(".po")]):
            raise
        print(f"error: {', '.join(names)} of this installation is not as it was released", file=sys.stderr)
        print("hint: install whichgpu again; in a checkout: git status shows what changed", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
