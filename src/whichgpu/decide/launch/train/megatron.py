"""Arguments of Megatron-LM: the model's sizes, layout, batch, schedule, data and checkpoints of a training run."""

from __future__ import annotations

from whichgpu.decide.launch.train.options import TrainOptions
from whichgpu.decide.launch.train.rotary import Rotary, known_rotary
from whichgpu.workload.layer_pattern import layer_parts
from whichgpu.workload.shapes import Transformer

RELEASE = "Megatron-LM core 0.15"
SCRIPT = "pretrain_gpt.py"
FOLDER = "Megatron-LM"
# Nodes may start in one shared folder at once: each clones into a folder of its own, and the first to finish gives it the name.
SETUP = (
    f"{{ [ -d {FOLDER} ] || {{ CLONE=$(mktemp -d -p . {FOLDER}.XXXXXX)"
    ' && git clone --depth 1 --branch core_v0.15.0 https://github.com/NVIDIA/Megatron-LM "$CLONE" && chmod 755 "$CLONE"'
    f' && {{ mv -T "$CLONE" {FOLDER} || rm -rf "$CLONE"; }}; }}; }}'
    " && PIP_CONSTRAINT= pip install transformers"  # for the tokenizer; the container's own constraints exclude it
)
# Container with Transformer Engine that Megatron Core's installation guide names
# (https://docs.nvidia.com/megatron-core/developer-guide/latest/get-started/install.html, 2026-11-18).
IMAGE = "nvcr.io/nvidia/pytorch:25.04-py3"
# Parts of a model that the arguments written here do not describe.
LACKS = (
    *("mla", "sparse", "recurrent", "pattern", "full_heads", "parallel_block", "encoder_layers", "patches", "layer_other"),
    *("other", "embedding_norm", "embedding", "kv_shared", "keys_are_values", "token_types", "lm_transform"),
)
ACTIVATIONS = {True: ("silu",), False: ("gelu", "gelu_tanh")}  # of MLPs with and without a gate
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}  # by ZeRO stage
# Arguments of each precision that an estimate may have; 16-bit weights always have fp32 main weights, states and gradients.
PRECISIONS = {
    "fp32": (), "fp32-default": (), "tf32": (), "amp-bf16": ("--bf16",), "bf16": ("--bf16",),
    **dict.fromkeys(("amp-fp16", "fp16"), ("--fp16", "--accumulate-allreduce-grads-in-fp32")),
    "fp8": ("--bf16", "--fp8-format=hybrid"),
}  # fmt: skip
OPTIMIZERS = {"sgd": "sgd", "sgd-momentum": "sgd", "adamw": "adam", "adam": "adam"}
DATA, SAVED, WEIGHTS = "data/tokens_text_document", "checkpoints", "weights"  # Files and folders of the user.
SAVE_INTERVAL = 500  # steps between checkpoints
# Peak learning rates: Llama 3's for 8B parameters (arXiv 2407.21783, table 3), and a usual one of fine-tuning (assumed).
LEARNING_RATE, FINETUNING_RATE = 3e-4, 1e-5
TRIAL_STEPS = 100  # of a run whose length is unknown


def has_model(options: TrainOptions) -> bool:
    """Whether Megatron-LM's arguments describe the model."""
    shape = options.shape
    if not isinstance(shape, Transformer) or not shape.causal or any(getattr(shape, name) for name in LACKS):
        return False
    has_layers = shape.norms == 2 and shape.norm_affine and shape.final_norm and shape.activation in ACTIVATIONS[shape.gated]
    return has_layers and (not shape.window or (options.sequence or 0) <= shape.window)


def variables(options: TrainOptions) -> list[str]:
    """Return the environment variables without which Megatron-LM refuses a layout on GPUs before Blackwell."""
    layout = options.parallel
    is_sharded = layout.zero >= 2 and options.replicas > 1
    return ["CUDA_DEVICE_MAX_CONNECTIONS=1"] if max(layout.tp, layout.cp) > 1 and not is_sharded else []


def words(options: TrainOptions) -> list[str]:
    """Return the arguments of pretrain_gpt.py."""
    shape, layout = options.shape, options.parallel
    assert isinstance(shape, Transformer)
    longest = max(shape.max_context, options.sequence or 0)
    sizes = {
        "num-layers": shape.layers, "hidden-size": shape.hidden, "ffn-hidden-size": shape.ffn,
        "num-attention-heads": shape.heads, "kv-channels": shape.head_dim, "vocab-size": shape.vocab,
        "seq-length": options.sequence, "max-position-embeddings": longest,
        "micro-batch-size": options.micro_batch,
        "global-batch-size": options.micro_batch * options.accumulation * options.replicas,
        "tensor-model-parallel-size": layout.tp, "pipeline-model-parallel-size": layout.pp, "context-parallel-size": layout.cp,
        "expert-model-parallel-size": layout.ep if layout.ep > 1 else None,
    }  # fmt: skip
    words = [f"--{name}={size}" for name, size in sizes.items() if size]
    if shape.kv_heads != shape.heads:
        words += ["--group-query-attention", f"--num-query-groups={shape.kv_heads}"]
    words += ["--swiglu"] if shape.gated else []
    words += ["--normalization=RMSNorm"] if shape.norm == "rms" else []
    words += _position_words(options)
    words += [] if shape.tied else ["--untie-embeddings-and-output-weights"]
    if not (shape.mlp_bias or shape.out_bias):
        words += ["--disable-bias-linear", *(["--add-qkv-bias"] if shape.qkv_bias else [])]
    words += ["--qk-layernorm"] if shape.qk_norm else []
    words += [f"--attention-dropout={shape.dropout}", f"--hidden-dropout={shape.dropout}"]  # 0.1 by default
    return words + _expert_words(options) + _run_words(options) + _schedule_words(options)


def notes(options: TrainOptions) -> list[str]:
    """Return what the user provides or decides: data, weights in Megatron's format, the learning rate, rotary embeddings."""
    lines = [
        f"{DATA}: your tokens, made by tools/preprocess_data.py with the tokenizer of {options.model}; "
        "--mock-data in place of --data-path tries it without data.",
        f"{SAVED}/: checkpoints; the last one is kept, and read if the run starts again.",
        f"Learning rate: {_learning_rate(options):g}, a usual start that you may change.",
    ]
    if options.is_finetuning:
        lines.insert(1, f"{WEIGHTS}/: the weights of {options.model} in Megatron's format (Megatron Bridge converts them).")
    rotary = _rotary(options)
    if isinstance(options.shape, Transformer) and options.shape.rope and rotary is None:
        lines.append("Rotary embeddings: --rotary-base is rope_theta in the model's config.json; add it if that is not 10000.")
    if rotary and rotary.other:
        lines.append(f"Rotary embeddings: the model scales them by {rotary.other} for long contexts, which this does not.")
    if _has_experts(options) and options.parallel.tp > 1 and not options.parallel.sp:
        lines.append(
            "Sequence parallel: Megatron-LM requires it of MoE models; it saves memory, which the estimate does not count."
        )
    if options.optimizer not in OPTIMIZERS:
        lines.append(f"Megatron-LM has no {options.optimizer}: this trains with Adam, whose state needs more memory.")
    return lines


def _position_words(options: TrainOptions) -> list[str]:
    """Return the arguments of rotary embeddings; their base is Megatron's default if the model's is not known."""
    assert isinstance(options.shape, Transformer)
    if not options.shape.rope:
        return []
    rotary, words = _rotary(options), ["--position-embedding-type=rope"]
    if rotary is None:
        return words
    words.append(f"--rotary-base={rotary.base:.0f}")
    return words + (["--use-rope-scaling", f"--rope-scaling-factor={rotary.scaling:g}"] if rotary.scaling else [])


def _rotary(options: TrainOptions) -> Rotary | None:
    """Return the rotary embeddings that the model's own config states, else those known of its family."""
    return options.rotary or (known_rotary(options.shape) if isinstance(options.shape, Transformer) else None)


def _expert_words(options: TrainOptions) -> list[str]:
    """Return the arguments of MoE layers; grouped GEMMs are for bf16 only."""
    shape = options.shape
    assert isinstance(shape, Transformer)
    experts = shape.experts
    if experts is None:
        return []
    words = [f"--num-experts={experts.count}", f"--moe-router-topk={experts.active}", f"--moe-ffn-hidden-size={experts.ffn}"]
    words += [f"--moe-shared-expert-intermediate-size={experts.shared_ffn}"] if experts.shared_ffn else []
    if experts.dense_layers or experts.every > 1:
        kinds = [int(layer_parts(shape, layer).experts) for layer in range(shape.layers)]
        words.append(f"--moe-layer-freq={kinds}".replace(" ", ""))
    words += ["--moe-grouped-gemm"] if "--bf16" in PRECISIONS[options.precision] else []
    return [*words, "--moe-token-dispatcher-type=alltoall"]


def _run_words(options: TrainOptions) -> list[str]:
    layout = options.parallel
    words = [*PRECISIONS[options.precision]]
    words += ["--sequence-parallel"] if layout.tp > 1 and (layout.sp or _has_experts(options)) else []
    if layout.pp > 1 and layout.chunks > 1:
        words.append(f"--num-virtual-stages-per-pipeline-rank={layout.chunks}")
    if layout.zero >= 2 and options.replicas > 1:
        words += ["--use-megatron-fsdp", f"--data-parallel-sharding-strategy={SHARDING[layout.zero]}"]
        words.append("--ckpt-format=fsdp_dtensor")  # The only format that it allows.
    elif layout.zero == 1:
        words.append("--use-distributed-optimizer")
    if options.checkpointing == "full":
        words += ["--recompute-granularity=full", "--recompute-method=uniform", "--recompute-num-layers=1"]
    elif options.checkpointing == "selective":
        words.append("--recompute-activations")
    return words


def _has_experts(options: TrainOptions) -> bool:
    """Whether it is an MoE model, which Megatron-LM trains on tensor parallel ranks only with sequence parallel."""
    return isinstance(options.shape, Transformer) and options.shape.experts is not None


def _schedule_words(options: TrainOptions) -> list[str]:
    """Return the arguments of the run's length, learning rate, data and checkpoints, of which only the last is kept."""
    steps, rate = options.steps or TRIAL_STEPS, _learning_rate(options)
    interval = min(SAVE_INTERVAL, steps)
    retained = interval * -(-steps // interval)  # A multiple of the interval, as it must be.
    words = [
        f"--train-iters={steps}", f"--optimizer={OPTIMIZERS.get(options.optimizer, 'adam')}", f"--lr={rate:g}",
        f"--min-lr={rate / 10:g}", "--lr-decay-style=cosine", f"--data-path={DATA}", "--tokenizer-type=HuggingFaceTokenizer",
        f"--tokenizer-model={options.model}", f"--save={SAVED}", f"--load={SAVED}",
        f"--save-interval={interval}", f"--save-retain-interval={retained}",
    ]  # fmt: skip
    return words + ([f"--pretrained-checkpoint={WEIGHTS}"] if options.is_finetuning else [])


def _learning_rate(options: TrainOptions) -> float:
    return FINETUNING_RATE if options.is_finetuning else LEARNING_RATE
