"""Default values of a workload's fields, by task and kind of model."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.engines.registry import default_engine, engine_record
from whichgpu.workload.contradictions import check_adapters, check_decoding, check_expert_parallel, check_output_tokens
from whichgpu.workload.denoisers import check_not_denoiser, check_request_rate, denoiser, pipeline_of
from whichgpu.workload.precisions import GGUF_PRECISIONS, PRECISION_BY_NAME
from whichgpu.workload.shapes import Dlrm, Mlp, Patches, Shape, TracedShape, Transformer, WeightsOnly
from whichgpu.workload.training_defaults import with_default_batch
from whichgpu.workload.workload import FIELDS, KINDS, Parallel, Workload

SEQ_IN, SEQ_OUT = 2048, 256
LORA_RANK = 16  # LoRA rank used if --qlora is given without a rank (assumed).
SMALLEST_IMAGE = 28  # Smallest image side in pixels (MNIST's); networks that halve images repeatedly cannot take a smaller one.
# Traced models whose recipes use AdamW rather than SGD with momentum (attention, diffusion, ConvNeXt).
ADAMW = re.compile(
    r"vit|deit|swin|convnext|clip|siglip|unet|dit|flux|stable|sdxl|sd3|beit|mixer|coat|cait|xcit|maxvit|eva|dino|former", re.I
)


def fill_defaults(workload: Workload, shape: Shape, user_fields: Collection[str] = ()) -> Workload:
    """Return the workload with every field that matters to its task filled in; `user_fields` are those the user named."""
    workload = _laid_out(workload, shape)
    if workload.training:
        workload = with_default_batch(workload, shape, "accumulation" in user_fields)
    precision = workload.precision or _precision(workload, shape)
    engine = workload.engine or _engine(workload, shape)
    if (precision, engine) == ("mxfp4", "llama.cpp"):
        precision = "mxfp4_moe"  # llama.cpp calls its file type of a model published in mxfp4 by this name.
    record = engine_record(engine, workload.year)
    filled = replace(workload, precision=precision).with_defaults(
        engine=engine,
        batch=(workload.micro_batch or 1) * workload.parallel.dp,  # One micro-batch for each replica.
        attention=record.attention if shape.is_transformer else None,
    )
    if isinstance(shape, Transformer):
        filled = _patched(filled, shape.patches) if shape.patches else _sequences(filled, shape)
        _refuse_empty_parts(filled)
    if isinstance(shape, TracedShape) and shape.image:
        filled = filled.with_defaults(image=shape.image, memory_format=record.memory_format)
    if pipeline := pipeline_of(filled, shape):
        filled = filled.with_defaults(denoising_steps=pipeline.steps, guidance=pipeline.guidance)
    if isinstance(shape, TracedShape) and shape.pipeline and shape.pipeline.frames:
        filled = filled.with_defaults(frames=shape.pipeline.frames)
    if filled.training:
        filled = filled.with_defaults(optimizer=_optimizer(workload, shape), lora_rank=LORA_RANK if workload.qlora else None)
        if "optimizer_fused" not in user_fields and record.optimizer_kernels != "fused":
            filled = replace(filled, optimizer_fused=False)
    elif shape.is_generative:
        shipped = record.kv_precisions.get(precision)
        filled = filled.with_defaults(kv_precision=shipped or PRECISION_BY_NAME[precision].kv_default)
    return filled


def chooses_batch(workload: Workload, shape: Shape, user_fields: Collection[str]) -> bool:
    """Whether the batch size is to be chosen for the user: in offline inference for which no batch was given.

    Pictures are made one at a time unless a batch is given: denoising one fills a GPU already.
    """
    stated = {"batch", "micro_batch"} & set(user_fields)
    return workload.traits.offline and not stated and pipeline_of(workload, shape) is None


def validate_workload(workload: Workload, shape: Shape) -> None:
    """Raise for an invalid workload: decoding with a model that cannot, adapters without linear layers, indivisible batches."""
    check_adapters(workload, shape)
    check_decoding(workload, shape)
    if workload.task == "serve":
        check_not_denoiser(shape.name, shape)
    check_request_rate(workload, shape)
    check_output_tokens(workload, shape)
    _refuse_small_images(workload, shape)
    reads = isinstance(shape, Transformer | WeightsOnly)
    draws = bool(denoiser(shape)) and not workload.training
    if not reads and not draws and (workload.precision or "") in GGUF_PRECISIONS:
        message = msg("error.text-files", precision=workload.precision or "", model=shape.name)
        raise UsageError("wrong-precision", message, msg("hint.text-files"))
    silent = not isinstance(shape, WeightsOnly) and not shape.is_generative
    if (workload.traits.step == "prefill" and not reads) or (workload.traits.step == "decode" and silent):
        raise UsageError("wrong-task", msg("error.wrong-task", task=workload.task, model=shape.name), msg("hint.wrong-task"))
    if workload.batch is None:
        return
    rounds = workload.accumulation if workload.training else 1
    split = workload.parallel.dp * rounds
    usual = _laid_out(workload, shape).parallel.dp * rounds if workload.micro_batch else split
    if workload.micro_batch is not None and not _divides(workload, split) and not _divides(workload, usual):
        values = {"batch": workload.batch, "micro": workload.micro_batch, "split": usual}
        raise UsageError("batch-mismatch", msg("error.batch-mismatch", **values), msg("hint.batch-mismatch"))
    if workload.training and workload.batch % split:
        raise UsageError("batch-split", msg("error.batch-split", batch=workload.batch, split=split), msg("hint.batch-mismatch"))


def _divides(workload: Workload, split: int) -> bool:
    """Whether the batch is the micro-batch times `split` (ranks x passes); in training with one pass, any multiple of it."""
    batch, micro = workload.batch or 0, workload.micro_batch or 1
    follows = workload.training and workload.accumulation == 1
    return batch % (micro * split) == 0 and batch > 0 if follows else batch == micro * split


def _refuse_small_images(workload: Workload, shape: Shape) -> None:
    """Raise if an image is smaller than one patch, or than a convolutional network can halve repeatedly."""
    min_side = shape.patches.size if shape.patches else SMALLEST_IMAGE if shape.reads_images else 0
    if workload.image is not None and workload.image < min_side:
        values = {"image": workload.image, "model": shape.name, "least": min_side}
        raise UsageError("small-image", msg("error.small-image", **values), msg("hint.small-image", least=min_side))


def echo(workload: Workload, user_fields: Collection[str]) -> dict[str, Any]:
    """Return every field of a workload with its value; `defaults` lists the names of those the user did not give."""
    values = {name: getattr(workload, name) for name in FIELDS}
    written = {name: None if value is None else KINDS[name].write(value) for name, value in values.items()}
    return written | {"defaults": [name for name in FIELDS if values[name] is not None and name not in user_fields]}


def from_echo(request: Mapping[str, Any]) -> Workload:
    """Return the workload of an echoed request: the inverse of `echo`."""
    return Workload(**{name: KINDS[name].read(request[name]) for name in FIELDS if request[name] is not None})


def _precision(workload: Workload, shape: Shape) -> str:
    if shape.file_format == "gguf":
        return shape.native
    if isinstance(shape, Mlp | Dlrm):
        return "fp32"
    vision = isinstance(shape, TracedShape) or shape.reads_images
    kind = ("vision" if vision else "language") + ("-train" if workload.training else "")
    record = engine_record(workload.engine or _engine(workload, shape), workload.year)
    if kind in record.usual_precisions:
        return record.usual_precisions[kind]
    if workload.training and (workload.lora_rank or workload.qlora) and (denoiser(shape) or not vision):
        return "bf16"  # Frozen weights need no fp32 copy.
    if workload.training:
        return "amp-bf16"  # Trained parameters are kept in fp32.
    if vision:
        return "fp16"
    if shape.native in GGUF_PRECISIONS and workload.engine not in (None, default_engine("gguf")):
        return "bf16"  # Other engines do not read GGUF files.
    if shape.native == "fp32" and record.serve.command:
        return "bf16"  # Serving engines convert weights that are published in fp32 to 16 bits by default.
    return shape.native or "bf16"


def _engine(workload: Workload, shape: Shape) -> str:
    if shape.file_format == "gguf":
        return default_engine("gguf")
    if (workload.precision or shape.native) in GGUF_PRECISIONS and not workload.training and not denoiser(shape):
        return default_engine("gguf")
    return default_engine(workload.task if shape.is_generative else "any")


def _sequences(workload: Workload, shape: Transformer) -> Workload:
    """Fill in sequence lengths: 2048 input and 256 output tokens, or fewer if the model's context is shorter."""
    limit = shape.max_context or SEQ_IN + SEQ_OUT
    if workload.generating and shape.is_generative:
        workload = workload.with_defaults(seq_out=min(SEQ_OUT, max(1, limit // 4)))
        return workload.with_defaults(seq_in=max(1, min(SEQ_IN, limit - (workload.seq_out or 0))))
    return workload.with_defaults(seq_in=min(SEQ_IN, limit))


def _patched(workload: Workload, patches: Patches) -> Workload:
    """Fill in the image size, and as input length the number of patches of that image."""
    workload = workload.with_defaults(image=patches.image)
    return workload.with_defaults(seq_in=replace(patches, image=workload.image or patches.image).tokens)


def _optimizer(workload: Workload, shape: Shape) -> str:
    if workload.qlora:
        return "adamw-8bit"  # paged_adamw_8bit, as in the recipes of QLoRA (arXiv 2305.14314)
    if isinstance(shape, TracedShape):
        return "adamw" if ADAMW.search(shape.table) else "sgd-momentum"
    return "adamw" if isinstance(shape, Transformer | WeightsOnly) else "sgd-momentum"


def _laid_out(workload: Workload, shape: Shape) -> Workload:
    """Return the workload with a GPU count that fits its parallel layout, or with a default layout for the GPUs given."""
    layout, gpus = workload.parallel, workload.gpus
    used = layout.dp * layout.tp * layout.pp * layout.cp
    if used > 1 and gpus == 1:
        workload = replace(workload, gpus=used)
    elif used == 1 and gpus > 1:
        workload = replace(workload, parallel=_plain_layout(workload, shape))
    elif used != gpus:
        if layout.dp > 1 or gpus % used:
            message = msg("error.layout", used=used, gpus=gpus)
            raise UsageError("bad-field", message, msg("hint.layout"), ("gpus", "parallel"))
        workload = replace(workload, parallel=replace(layout, dp=gpus // used))
    pads = bool(workload.engine) and engine_record(workload.engine, workload.year).pads_heads
    if isinstance(shape, Transformer) and shape.heads % workload.parallel.tp and not pads:
        message = msg("error.tensor-parallel", tp=workload.parallel.tp, heads=shape.heads)
        raise UsageError("bad-field", message, msg("hint.tensor-parallel"), ("parallel",))
    check_expert_parallel(workload, shape)
    stages, layers = workload.parallel.pp * workload.parallel.chunks, _layers(shape)
    if layers is not None and stages > layers:
        message = msg("error.pipeline-parallel", stages=stages, layers=layers)
        raise UsageError("bad-field", message, msg("hint.pipeline-parallel", layers=layers), ("parallel",))
    if workload.gpus % workload.nodes:
        raise UsageError("bad-field", msg("error.nodes", gpus=workload.gpus, nodes=workload.nodes), msg("hint.nodes"), ("nodes",))
    return workload


def _layers(shape: Shape) -> int | None:
    """Return the number of a model's layers, which pipeline stages are made of; None if unknown."""
    if isinstance(shape, Mlp):
        return len(shape.units) - 1
    return shape.layers + shape.encoder_layers if isinstance(shape, Transformer) else None


def _refuse_empty_parts(workload: Workload) -> None:
    """Raise if context parallelism would leave a GPU without a token of the sequence."""
    cp, tokens = workload.parallel.cp, workload.seq_in or 1
    if cp > tokens:
        message = msg("error.context-parallel", cp=cp, tokens=tokens)
        raise UsageError("bad-field", message, msg("hint.context-parallel", tokens=tokens), ("parallel",))


def _plain_layout(workload: Workload, shape: Shape) -> Parallel:
    """Return the default layout: ZeRO 3 to train a language model, tensor parallel to run one, data parallel for other models.

    An engine that shares the layers among GPUs (llama.cpp) has a pipeline instead of tensor parallelism.
    """
    layout, gpus = workload.parallel, workload.gpus
    if workload.training or not isinstance(shape, Transformer):
        sharded = workload.training and shape.is_transformer and layout.zero == 0
        return replace(layout, dp=gpus, zero=3 if sharded else layout.zero)
    if engine_record(workload.engine or _engine(workload, shape), workload.year).splits_layers and gpus <= shape.layers:
        return replace(layout, pp=gpus)
    tp = next(degree for degree in range(gpus, 0, -1) if gpus % degree == 0 and shape.heads % degree == 0)
    return replace(layout, tp=tp, dp=gpus // tp)
