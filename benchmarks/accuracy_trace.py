"""Errors of traced models' memory against memory measured on real GPUs; needs torch, torchvision, transformers and timm.

    python -m benchmarks.accuracy_trace h200 [--json FILE]
    python -m benchmarks.accuracy_trace timm --jobs 16 --json FILE [--models 505] [--timeout 120]

Each model is traced in a process of its own, so that one that fails or takes too long loses only its own rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from benchmarks.trace import h200, timm_a100

SHARED = Path(os.environ.get("WHICHGPU_SHARED", Path(__file__).resolve().parent.parent.parent / "shared"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=("h200", "timm"))
    parser.add_argument("--truth", type=Path, default=SHARED / "truth")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--models", type=int, default=10_000, help="at most this many timm models")
    parser.add_argument("--timeout", type=float, default=120, help="seconds a model may take")
    parser.add_argument("--total", type=float, default=450, help="seconds all of them may take")
    parser.add_argument("--only", default="", help="models whose name has this in it")
    parser.add_argument("--score", action="store_true", help="score the results in --json; trace nothing")
    options = parser.parse_args(arguments)
    if not options.truth.is_dir():
        print(f"no measured truth at {options.truth}: nothing to compare with")
        return 0
    run = h200.run if options.which == "h200" else timm_a100.run
    results, lines, met = run(options)
    if options.json and not options.score:
        options.json.write_text(json.dumps(results, indent=0))
    print("\n".join(lines))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
