"""Lets `python3 -m whichgpu` and `import whichgpu` work from a bare checkout: hands over to the package in src/."""

import importlib
import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))

if __name__ == "__main__":
    runpy.run_module("whichgpu", run_name="__main__", alter_sys=True)
else:
    del sys.modules[__name__]
    sys.modules[__name__] = importlib.import_module(__name__)
