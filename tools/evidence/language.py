"""Language models under serving engines."""

from __future__ import annotations

from evidence.fits_in_memory import most_sequences
from evidence.names import gpu_id, model_named, precision
from evidence.published import Published
from evidence.reasons import Reason
from evidence.requests import measured
from whichgpu.catalog.evidence import Measurement

_MOST_SEQUENCES = 2048  # TensorRT-LLM's largest batch in these runs


def argonne(row: Published) -> Measurement | Reason:
    """A fixed batch, offline: the whole time from prompts to last tokens."""
    whole = row.noted(r"latency=([\d.eE+-]+) s")
    if not whole:
        return Reason.NOT_A_TIME
    return measured(row, "generate", float(whole), more={"seq_in": row.seq_in, "seq_out": row.seq_out})


def tensorrt_llm(row: Published) -> Measurement | Reason:
    """NVIDIA's tables: static batches and first tokens are times; loads held at a maximum or at a rate do not state a batch."""
    lengths: dict[str, object] = {"seq_in": row.seq_in, "seq_out": row.seq_out}
    if row.precision == "FP8":
        lengths["kv_precision"] = "fp8"  # the documents' runs keep the cache in fp8 too
    if row.notes.startswith("static batching"):
        tokens = row.batch or 0
        return measured(row, "generate", tokens * (row.seq_out or 0) / (row.value * row.gpus), more=lengths)
    if row.notes.startswith("low-latency table"):
        return measured(row, "prefill", row.value / 1e3, more={"seq_in": row.seq_in})
    return Reason.LATENCY_BOUND if row.notes.startswith("online serving") else Reason.NO_BATCH


def tensorrt_llm_at_most(row: Published) -> Measurement | Reason:
    """NVIDIA's tables at maximum load, whose batch is not printed: taken to be what fits, 2,048 at most.

    Weaker evidence than a stated batch, so not among the measured rows; the rate changes little with the batch there.
    """
    model, gpu = model_named(row.source, row.model), gpu_id(row.gpu)
    dtype = precision(row.source, row.precision, row.gpu)
    if (
        not row.notes.startswith("in-flight batching")
        or isinstance(model, Reason)
        or isinstance(gpu, Reason)
        or isinstance(dtype, Reason)
    ):
        return Reason.NO_BATCH
    kv = "fp8" if dtype == "fp8" else "fp16"
    lengths = {"seq_in": row.seq_in or 0, "seq_out": row.seq_out or 0}
    batch = min(most_sequences(model, gpu, dtype, sum(lengths.values()), kv, row.gpus), _MOST_SEQUENCES)
    more: dict[str, object] = {**lengths, "batch": batch, "kv_precision": kv}
    seconds = batch * lengths["seq_out"] / row.value
    return (
        measured(row, "generate", seconds, model=model, dtype=dtype, more=more, throughput_only=True) if batch else Reason.QUEUED
    )


def llama_cpp(row: Published) -> Measurement | Reason:
    """llama-bench: prompts of n tokens, and n tokens generated from an empty context, so at a mean context of n / 2."""
    if row.task == "infer-prefill":
        return measured(row, "prefill", (row.seq_in or 0) / row.value, more={"seq_in": row.seq_in})
    return measured(row, "decode", 1.0 / row.value, more={"seq_in": max((row.seq_out or 0) // 2, 1)})


def splitwise(row: Published) -> Measurement | Reason:
    """Prompt and token times of one batch, all on several GPUs."""
    tensor = {"parallel": {"tp": row.gpus}} if row.gpus > 1 else {}
    if row.task == "infer-prefill":
        return measured(row, "prefill", row.value / 1e3, more={"seq_in": row.seq_in, **tensor})
    context = (row.seq_in or 0) + (row.seq_out or 0) // 2
    return measured(row, "decode", row.value / 1e3, more={"seq_in": context, **tensor})


def cloudrift(row: Published) -> Measurement | Reason:
    """vLLM under a fixed concurrency: the time between one sequence's output tokens stands for all metrics of a run.

    A request comes in when another is done, so prompts are read one by one while others decode.
    """
    more: dict[str, object] = {"task": "serve", "seq_in": row.seq_in, "seq_out": row.seq_out}
    if "kv fp8" in row.notes:
        more["kv_precision"] = "fp8"
    result = measured(row, "serve", row.value / 1e3, more=more)
    if row.metric == "ms TPOT median" or isinstance(result, Reason):
        return result
    return Reason.TWIN
