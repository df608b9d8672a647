"""Language models under serving engines."""

from __future__ import annotations

from evidence.fits_in_memory import max_sequences
from evidence.names import gpu_id, model_named, precision
from evidence.published import Published
from evidence.reasons import Reason
from evidence.requests import measured
from whichgpu.catalog.evidence import Measurement

_MAX_BATCH = 2048  # TensorRT-LLM's largest batch in these runs


def argonne(row: Published) -> Measurement | Reason:
    """A fixed batch, offline: seconds from the start of prefill to the last token."""
    whole = row.noted(r"latency=([\d.eE+-]+) s")
    if not whole:
        return Reason.NOT_A_TIME
    return measured(row, "generate", float(whole), more={"seq_in": row.seq_in, "seq_out": row.seq_out})


def tensorrt_llm(row: Published) -> Measurement | Reason:
    """NVIDIA's tables: static batches and times to first token; other rows (maximum load, request rate) state no batch."""
    lengths: dict[str, object] = {"seq_in": row.seq_in, "seq_out": row.seq_out}
    if row.precision == "FP8":
        lengths["kv_precision"] = "fp8"  # the documents' runs keep the cache in fp8 too
    if row.notes.startswith("static batching"):
        tokens = row.batch or 0
        return measured(row, "generate", tokens * (row.seq_out or 0) / (row.value * row.gpus), more=lengths)
    if row.notes.startswith("low-latency table"):
        return measured(row, "prefill", row.value / 1e3, more={"seq_in": row.seq_in})
    return Reason.LATENCY_BOUND if row.notes.startswith("online serving") else Reason.NO_BATCH


def tensorrt_llm_max_load(row: Published) -> Measurement | Reason:
    """NVIDIA's tables at maximum load, whose batch is not printed: assumed to be the largest that fits, at most 2,048.

    Weaker evidence than a stated batch, so these rows are not in the table; the rate depends little on such large batches.
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
    batch = min(max_sequences(model, gpu, dtype, sum(lengths.values()), kv, row.gpus), _MAX_BATCH)
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
    """Times of the prompt and of a token in one batch, all on several GPUs."""
    tensor = {"parallel": {"tp": row.gpus}} if row.gpus > 1 else {}
    if row.task == "infer-prefill":
        return measured(row, "prefill", row.value / 1e3, more={"seq_in": row.seq_in, **tensor})
    context = (row.seq_in or 0) + (row.seq_out or 0) // 2
    return measured(row, "decode", row.value / 1e3, more={"seq_in": context, **tensor})


def cloudrift(row: Published) -> Measurement | Reason:
    """vLLM under a fixed concurrency: of a run's metrics, the time between output tokens of one sequence is used.

    A request starts when another ends, so prompts are prefilled one by one while other sequences decode.
    """
    more: dict[str, object] = {"task": "serve", "seq_in": row.seq_in, "seq_out": row.seq_out}
    if "kv fp8" in row.notes:
        more["kv_precision"] = "fp8"
    result = measured(row, "serve", row.value / 1e3, more=more)
    if row.metric == "ms TPOT median" or isinstance(result, Reason):
        return result
    return Reason.TWIN
