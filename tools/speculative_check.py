"""Measure passes of speculative decoding on this machine's GPU: `python tools/speculative_check.py > speculative.csv`.

It needs PyTorch. Each line has the median seconds of one pass over `tokens` new tokens of `batch` sequences, as a CUDA graph of
compiled layers with random weights; one token is plain decode, or a step of the draft.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.speculative import BATCHES, CONTEXT, DRAFTED, DRAFTS  # noqa: E402
from whichgpu.catalog.store import Catalog  # noqa: E402
from whichgpu.measure.bench.fused_models import Decoder  # noqa: E402
from whichgpu.measure.bench.gpu_timer import GpuTimer  # noqa: E402
from whichgpu.workload.models import find_model  # noqa: E402
from whichgpu.workload.shapes import as_transformer  # noqa: E402


def main() -> None:
    """Print the table."""
    import torch

    print("model,batch,tokens,seconds")
    lengths = {model: (1, *(drafted + 1 for drafted in DRAFTED)) for model in DRAFTS} | dict.fromkeys(DRAFTS.values(), (1,))
    for name, tokens_of_pass in lengths.items():
        for batch in BATCHES:
            for tokens in tokens_of_pass:
                print(f"{name},{batch},{tokens},{pass_seconds(torch, name, batch, tokens):.6g}", flush=True)


def pass_seconds(torch: Any, name: str, batch: int, tokens: int) -> float:
    """Return the median seconds of one pass."""
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    shape = as_transformer(find_model(name, Catalog()))
    decoder = Decoder(torch, shape, batch, CONTEXT, torch.bfloat16)
    decoder.compiled()
    ids = torch.randint(0, shape.vocab, (batch, tokens), device="cuda")
    timer = GpuTimer(torch, lambda: None)
    with torch.no_grad():
        return timer.step(timer.graph(lambda: decoder.verify(ids))).seconds


if __name__ == "__main__":
    main()
