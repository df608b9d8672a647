"""`python -m tests.fake_gpus H200,T4_HOT watch …`: the command line on a machine whose driver replays recordings."""

from __future__ import annotations

import sys

from tests import recorded_nvml
from tests.machines import probe_of
from whichgpu.measure.drivers import vendors
from whichgpu.surface.cli.main import main


def install(*names: str) -> None:
    """Let the tool see these recordings as its GPUs."""
    recordings = [getattr(recorded_nvml, name) for name in names]
    vendors.usual_openers = lambda: (lambda: probe_of(*recordings),)


if __name__ == "__main__":
    install(*sys.argv[1].split(","))
    sys.exit(main(sys.argv[2:]))
