"""A store of a million prices: time to fill it, its memory, and the speed of queries."""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

from benchmarks.start import Result, process, timed

OFFERS, DAYS = 20_000, 50
GPUS = (
    "a100-sxm-80gb a100-sxm-40gb a100-pcie-80gb h100-sxm h100-pcie h200-sxm b200 l4 l40s t4 v100-sxm-16gb a10g rtx-4090".split()
)
IMPORT_SECONDS, IMPORT_MIB, ASK_SECONDS, COLD_SECONDS = 60.0, 500, 0.05, 0.4


def write_list(path: Path) -> int:
    """Write a price list of a million rows: twenty thousand offers on fifty days, each price different from the day before."""
    first = date(2024, 1, 1)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow("provider instance region gpu gpus term price currency observed".split())
        for day in range(DAYS):
            day_seen = (first + timedelta(days=7 * day)).isoformat()
            for offer in range(OFFERS):
                gpu, gpus = GPUS[offer % len(GPUS)], (1, 2, 4, 8)[offer % 4]
                price = gpus * (1.5 + (offer % 7) / 10 + (day + offer) % 9 / 20)
                term = "spot" if offer % 3 == 0 else "on-demand"
                row = (
                    f"cloud{offer % 20}",
                    f"machine-{offer}",
                    f"region-{offer % 30}",
                    gpu,
                    gpus,
                    term,
                    f"{price:.4f}",
                    "USD",
                    day_seen,
                )
                writer.writerow(row)
    return OFFERS * DAYS


def fill(folder: Path, path: Path) -> tuple[float, float]:
    """Seconds and MiB that importing a list takes, in a process of its own."""
    code = (
        "import resource, sys, time; from datetime import date; from pathlib import Path;"
        "from whichgpu.catalog.store import Catalog; from whichgpu.catalog.live.import_files import import_prices;"
        "began = time.perf_counter();"
        "out, _ = import_prices(Path(sys.argv[1]), Catalog(), date(2026, 1, 1), folder=Path(sys.argv[2]));"
        "taken = out[0].batches[0]; assert taken.prices == taken.kept, taken;"
        "print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path), str(folder)], check=True, capture_output=True, text=True)
    seconds, mib = map(float, done.stdout.split())
    return seconds, mib


def results() -> Iterator[Result]:
    """Fill once, then query many times."""
    from whichgpu.catalog.live.price_store import open_for_reading
    from whichgpu.catalog.live.queries import OfferQuery, offers_on

    with tempfile.TemporaryDirectory() as temporary:
        folder, path = Path(temporary) / "store", Path(temporary) / "prices.csv"
        rows = write_list(path)
        seconds, mib = fill(folder, path)
        yield Result(f"import {rows:,} prices", seconds, seconds, IMPORT_SECONDS)
        yield Result("memory of that import", mib / 1000, mib / 1000, IMPORT_MIB / 1000, "MiB")
        query = OfferQuery(gpus=frozenset({"a100-sxm-80gb"}))
        with open_for_reading(folder) as connection:
            assert connection is not None
            past = date(2024, 9, 1)
            yield timed("offers of one GPU on a past day, of them", ASK_SECONDS, lambda: offers_on(connection, past, None, query))
            yield timed("the same today", ASK_SECONDS, lambda: offers_on(connection, None, None, query))
        argv = [sys.executable, "-P", "-m", "whichgpu", "offers", "--gpu", "A100-SXM-80GB"]
        for name, data in (("the bundled prices alone", Path(temporary)), ("that store beside them", folder)):
            action = process(*argv, WHICHGPU_DATA=str(data))
            yield timed(f"whichgpu offers --gpu A100-SXM-80GB, cold process, {name}", COLD_SECONDS, action)
