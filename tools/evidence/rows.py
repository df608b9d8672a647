"""Which published and measured rows the calibration uses, in which form, and why the others are left out.

PYTHONPATH=src:tools python -m evidence.rows ../shared/truth
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from evidence import language, vision
from evidence.h200 import measured_on_h200
from evidence.kernels.operators import h200_micro, h200_operators, published_operator
from evidence.names import doubt
from evidence.published import Published, read_published
from evidence.reasons import Reason
from evidence.runs import mlperf, nvdle
from whichgpu.catalog.evidence import Measurement, steps

Adapter = Callable[[Published], Measurement | Reason]


def _always(reason: Reason) -> Adapter:
    return lambda _: reason


ADAPTERS: Mapping[str, Adapter] = {
    "ryujaehun": vision.torchvision_script,
    "lamikr": vision.torchvision_script,
    "timm": vision.timm,
    "mxnet": vision.mxnet,
    "soumith": vision.forward_and_backward,
    "u39kun": vision.forward_and_backward,
    "devos50": vision.devos50,
    "argonne": language.argonne,
    "trtllm": language.tensorrt_llm,
    "XiongjieDai": language.llama_cpp,
    "splitwise": language.splitwise,
    "cloudrift": language.cloudrift,
    "massed": _always(Reason.NO_PRECISION),
    "llm-foundry": _always(Reason.UNKNOWN_NETWORK),
    "lambda-blog-2020": _always(Reason.MAX_BATCH),
    "mlperf-inf": mlperf.mlperf,
    "neusight": published_operator,
    "vidur": published_operator,
    "aiconfigurator": published_operator,
    "stas00": published_operator,
}


class Read(msgspec.Struct, frozen=True):
    """A published row with its measurement, or the reason why it is left out."""

    row: Published
    result: Measurement | Reason


def read_all(truth: Path) -> list[Read]:
    """Every published row with its measurement or the reason why it is left out."""
    rows = read_published(truth / "public" / "calibration.csv")
    nv = {row.line: result for row, result in nvdle.read(row for row in rows if row.source == "nv-dle")}
    return [Read(row, doubt(row) or (nv[row.line] if row.source == "nv-dle" else ADAPTERS[row.source](row))) for row in rows]


def single_gpu_rows(truth: Path) -> list[Measurement]:
    """Every step on one GPU that the tool can estimate: the H200's rows and the published ones."""
    published = [read.result for read in read_all(truth) if isinstance(read.result, Measurement) and read.result.kind != "op"]
    return steps(measured_on_h200(truth / "h200")[0] + published)


def max_load_rows(truth: Path) -> list[Measurement]:
    """Serving at maximum load with the largest batch that fits: weaker evidence, not in the table."""
    rows = [row for row in read_published(truth / "public" / "calibration.csv") if row.source == "trtllm" and row.gpus == 1]
    return [result for row in rows if isinstance(result := language.tensorrt_llm_max_load(row), Measurement)]


def operator_rows(truth: Path) -> list[Measurement]:
    """Every single operator."""
    published = [read.result for read in read_all(truth) if isinstance(read.result, Measurement) and read.result.kind == "op"]
    return h200_operators(truth / "h200") + h200_micro(truth / "h200") + published


def left_out(truth: Path) -> Counter[tuple[str, Reason]]:
    """How many published rows of each source are left out, by reason."""
    return Counter((read.row.source, read.result) for read in read_all(truth) if isinstance(read.result, Reason))


class Tally(msgspec.Struct, frozen=True):
    """Counts of one source's rows on one GPU: used and left out."""

    rows: int
    single: int
    stated: int  # single-GPU rows that state model, precision and batch
    stated_used: int  # those of them that are used, or are another metric of a run that is
    used: int
    reasons: Counter[Reason]


def tally(reads: Iterable[Read]) -> dict[str, Tally]:
    """Counts by source, and their sum under `all`."""
    groups: dict[str, list[Read]] = {"all": []}
    for read in reads:
        groups.setdefault(read.row.source, []).append(read)
        groups["all"].append(read)
    return {source: _tally(group) for source, group in groups.items()}


def _tally(group: list[Read]) -> Tally:
    single = [read for read in group if read.row.gpus == 1]
    stated = [read for read in single if read.row.states_all]
    return Tally(
        rows=len(group),
        single=len(single),
        stated=len(stated),
        stated_used=sum(isinstance(read.result, Measurement) or read.result is Reason.TWIN for read in stated),
        used=sum(isinstance(read.result, Measurement) for read in single),
        reasons=Counter(read.result for read in single if isinstance(read.result, Reason)),
    )


def main(truth: Path) -> None:
    """Print the counts of rows used and left out."""
    print("source\trows\tsingle GPU\tstate all\tof these used\tshare\tused of single GPU\tleft out")
    for source, count in tally(read_all(truth)).items():
        share = f"{count.stated_used / count.stated:.0%}" if count.stated else "-"
        reasons = "; ".join(f"{number} {reason}" for reason, number in count.reasons.most_common())
        print(source, count.rows, count.single, count.stated, count.stated_used, share, count.used, reasons, sep="\t")
    h200, errors = measured_on_h200(truth / "h200")
    print(f"h200\t{len(h200)} steps used\t{errors} errors left out")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/truth"))
