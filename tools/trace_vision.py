"""Write the operator tables of vision models: catalog/data/operator_tables.bin.

Run where torch, torchvision, timm, diffusers and transformers are installed (CPU builds will do), with src on the path:

    PYTHONPATH=src python tools/trace_vision.py --folder FOLDER              every model without a table yet; some hours
    PYTHONPATH=src python tools/trace_vision.py --folder FOLDER resnet50 …   these anew, the others as they were

Each model is traced in a process of its own with a time limit and written to FOLDER at once; what is there is not traced again,
so a run that was stopped goes on where it was. Networks that differ only in the values of their weights share one table.
"""

from __future__ import annotations

import argparse
import gc
import json
import lzma
import os
import resource
import sys
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import library_models
import vision_blocks

from whichgpu.estimate.trace.framework import load_torch
from whichgpu.workload.tables import (
    TABLES_FILE,
    decode_blocks,
    decode_same,
    decode_versions,
    encode_tables,
    extend_tables,
    table_names,
)

PACKAGES = "torch", "torchvision", "timm", "diffusers", "transformers"


def traced(name: str, image: int, folder: Path) -> dict[str, Any]:
    """Block of a model, or the name of a model in the folder that has the same operators and sizes: {"same": NAME}."""
    gc.disable()  # Cycles must not be freed at other moments in one batch size than in the other.
    network = vision_blocks.NetworkRuns(name, image)
    first = network.run(vision_blocks.CHECKED_BATCH, "fp32", False)
    mark = folder / f"{vision_blocks.fingerprint(first)[:24]}-{image}.same"
    try:
        with mark.open("x") as file:
            file.write(name)
    except FileExistsError:
        if (other := mark.read_text()) != name:
            return {"same": other}
    return network.table(first)


def _child(name: str, image: int, folder: Path) -> None:
    """Trace one model into the folder and end the process."""
    path, start = folder / f"{name}@{image}", time.monotonic()
    try:
        block = traced(name, image, folder)
        written = path.with_suffix(".new")
        written.write_bytes(lzma.compress(json.dumps(block, separators=(",", ":")).encode(), preset=1))
        written.rename(f"{path}.xz")
        print(path.name, block.get("same") or block["parameters"], f"{time.monotonic() - start:.0f} s", flush=True)
    except BaseException as problem:  # A model that cannot be traced must not stop the others.
        Path(f"{path}.failed").write_text(repr(problem))
        print(path.name, f"failed: {problem!r}"[:300], file=sys.stderr, flush=True)
    os._exit(0)


def trace_all(tasks: list[tuple[str, int]], folder: Path, jobs: int, limit: int) -> None:
    """Trace models, each in a forked process that is stopped after `limit` seconds of CPU time."""
    load_torch().set_num_threads(1)
    library_models.timm_sizes()  # Imports torch and timm once, for all processes.
    gc.collect()
    gc.freeze()
    running: dict[int, Path] = {}
    waiting = list(tasks)
    while waiting or running:
        while waiting and len(running) < jobs:
            name, image = waiting.pop(0)
            process = os.fork()
            if not process:
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
                _child(name, image, folder)
            running[process] = folder / f"{name}@{image}"
        process, status = os.wait()
        path = running.pop(process)
        if status:
            Path(f"{path}.failed").write_text(f"ended with status {status}")


def write(folder: Path) -> None:
    """Write the tables file: what it has, completed by the blocks in the folder; only if some replace others, all anew."""
    content = TABLES_FILE.read_bytes()
    found = {path.stem: json.loads(lzma.decompress(path.read_bytes())) for path in sorted(folder.glob("*.xz"))}
    blocks = {key: block for key, block in found.items() if "same" not in block}
    same = {key.partition("@")[0]: block["same"] for key, block in found.items() if "same" in block}
    same = {name: other for name, other in same.items() if not any(key.startswith(f"{name}@") for key in blocks)}
    stored = decode_versions(content)
    versions = {
        package: ", ".join(sorted({version(package).partition("+")[0], *filter(None, stored.get(package, "").split(", "))}))
        for package in PACKAGES
    }
    today = date.today().isoformat()
    if {key.partition("@")[0] for key in found} & set(table_names()):
        all_blocks = decode_blocks(content) | blocks
        all_same = {name: other for name, other in same.items() if name not in table_names()} | decode_same(content)
        encoded = encode_tables({key: all_blocks[key] for key in sorted(all_blocks, key=_place)}, all_same, today, versions)
    else:
        encoded = extend_tables(content, blocks, same, today, versions)
    written = TABLES_FILE.with_suffix(".new")
    written.write_bytes(encoded)
    written.replace(TABLES_FILE)


def _place(key: str) -> tuple[str, int]:
    """Key to sort blocks by: the model's name, then its image sizes in their order."""
    name, _, image = key.partition("@")
    sizes = vision_blocks.sizes()
    return name, sizes[name].index(int(image)) if name in sizes else 0


def main() -> int:
    """Trace the given models and write the file; return 1 if one could not be traced."""
    parser = argparse.ArgumentParser(description="Write the operator tables.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=600, help="CPU seconds for one model")
    options = parser.parse_args()
    sizes, content = vision_blocks.sizes(), TABLES_FILE.read_bytes()
    if unknown := set(options.names) - set(sizes):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    known = () if options.names else {*decode_blocks(content), *decode_same(content)}
    options.folder.mkdir(parents=True, exist_ok=True)
    tasks = [
        (name, image)
        for name in options.names or sizes
        for image in sizes[name]
        if name not in known and f"{name}@{image}" not in known
        if not any((options.folder / f"{name}@{image}.{end}").exists() for end in ("xz", "failed"))
    ]
    print(f"{len(tasks)} tables to trace", flush=True)
    trace_all(tasks, options.folder, options.jobs, options.limit)
    write(options.folder)
    return 1 if list(options.folder.glob("*.failed")) else 0


if __name__ == "__main__":
    sys.exit(main())
