"""Arguments of torchtitan: its config of the model, layout, batch, length and checkpoints of a training run."""

from __future__ import annotations

from whichgpu.decide.launch.train.options import TrainOptions
from whichgpu.workload.shapes import Transformer

RELEASE, PACKAGE = "torchtitan 0.3", "torchtitan==0.3.0"
# Module and config by `model_type`, layers, hidden size and vocabulary.
MODELS = {
    ("llama", 32, 4096, 128256): ("llama3", "llama3_8b"),
    ("llama", 80, 8192, 128256): ("llama3", "llama3_70b"),
    ("llama", 126, 16384, 128256): ("llama3", "llama3_405b"),
    ("qwen3", 28, 1024, 151936): ("qwen3", "qwen3_0_6b"),
    ("qwen3", 28, 2048, 151936): ("qwen3", "qwen3_1_7b"),
    ("qwen3", 40, 5120, 151936): ("qwen3", "qwen3_14b"),
    ("qwen3", 64, 5120, 151936): ("qwen3", "qwen3_32b"),
    ("qwen3_moe", 48, 2048, 151936): ("qwen3", "qwen3_30b_a3b"),
    ("deepseek_v3", 61, 7168, 129280): ("deepseek_v3", "deepseek_v3_671b"),
    ("gpt_oss", 24, 2880, 201088): ("gpt_oss", "gpt_oss_20b"),
    ("gpt_oss", 36, 2880, 201088): ("gpt_oss", "gpt_oss_120b"),
}
CHECKPOINT_INTERVAL, KEPT_CHECKPOINTS = 500, 2  # steps between checkpoints; the fewest that it may keep
FOLDER = "outputs"  # where it writes checkpoints
TOKENIZER_FILES = "*token*"  # of a repository on the Hugging Face hub
SCHEDULE, INTERLEAVED = "1F1B", "Interleaved1F1B"
INTERLEAVED_CHUNKS = 2  # stages of a rank in an interleaved schedule whose layers are not stated


def titan_model(options: TrainOptions) -> tuple[str, str] | None:
    """Return the module and config of a model in torchtitan; None if it has none of these sizes."""
    shape = options.shape
    if not isinstance(shape, Transformer):
        return None
    return MODELS.get((shape.model_type, shape.layers, shape.hidden, shape.vocab))


def pipeline_stages(options: TrainOptions) -> int:
    """Return the stages of the pipeline over all ranks; PyTorch's schedules ask for as many passes a step."""
    return options.parallel.pp * _chunks(options)


def torchtitan_words(options: TrainOptions) -> list[str]:
    """Return torchtitan's arguments: FSDP shards over data-parallel ranks under ZeRO 2 and 3, else they hold replicas.

    The passes of a step are the pipeline's microbatches; without a pipeline they accumulate gradients.
    """
    layout, replicas = options.parallel, options.replicas
    shards = _shards(options)
    module, config = titan_model(options) or ("", "")
    passes = options.accumulation if layout.pp > 1 else 1
    values = {
        "hf_assets_path": _assets(options),
        "training.local_batch_size": options.micro_batch * passes,
        "training.global_batch_size": options.micro_batch * options.accumulation * replicas,
        "training.seq_len": options.sequence,
        "training.steps": options.steps,
        "training.dtype": "bfloat16" if options.precision in ("bf16", "fp16") else "float32",
        "training.mixed_precision_param": "bfloat16" if options.half else "float32",
        "parallelism.data_parallel_replicate_degree": replicas // shards,
        "parallelism.data_parallel_shard_degree": shards,
        "parallelism.fsdp_reshard_after_forward": {2: "never", 3: "always"}.get(layout.zero),
        "parallelism.tensor_parallel_degree": layout.tp,
        "parallelism.pipeline_parallel_degree": layout.pp,
        "parallelism.context_parallel_degree": layout.cp,
        "parallelism.expert_parallel_degree": layout.ep,
    }
    if layout.pp > 1:
        values["parallelism.pipeline_parallel_microbatch_size"] = options.micro_batch
        values["parallelism.pipeline_parallel_schedule"] = INTERLEAVED if _chunks(options) > 1 else SCHEDULE
    values["checkpoint.interval"] = CHECKPOINT_INTERVAL
    values["checkpoint.keep_latest_k"] = KEPT_CHECKPOINTS
    words = [f"--{name}={value}" for name, value in values.items() if value is not None]
    words += ["--checkpoint.enable", *(["--checkpoint.initial_load_in_hf"] if options.is_finetuning else [])]
    # torchtitan refuses CUDA graphs beside pipeline stages and beside experts exchanged between ranks.
    words += ["--training.disable_cuda_graphs"] if layout.pp > 1 or layout.ep > 1 else []
    return [f"--module={module}", f"--config={config}", *words, f"activation_checkpoint:{options.checkpointing}"]


def torchtitan_notes(options: TrainOptions) -> list[str]:
    """Return what the user does first and may change, and where torchtitan differs from what was estimated."""
    layout, notes = options.parallel, list[str]()
    files = ' --exclude "original/*"' if options.is_finetuning else f' --include "{TOKENIZER_FILES}"'
    notes.append(f'First, on every node: pip install "{PACKAGE}" huggingface_hub')
    notes.append(f"Then, on every node: hf download {options.model} --local-dir {_assets(options)}{files}")
    notes.append(
        "Data: C4, streamed; --dataloader.dataset and --dataloader.dataset_path choose yours. Learning rate: as configured."
    )
    if layout.zero == 1 and _shards(options) == 1:
        notes.append("torchtitan shards optimizer state only with parameters: this keeps whole replicas and needs more memory.")
    if layout.ep > 1 and layout.zero < 2:
        notes.append("torchtitan takes expert parallel ranks from those that shard parameters: this shards them.")
    if layout.pp > 1 and layout.chunks not in (1, INTERLEAVED_CHUNKS):
        notes.append(f"The estimate has {layout.chunks} parts of a pipeline stage, this has {_chunks(options)}.")
    if options.half == "fp16":
        notes.append("torchtitan computes in bf16, not in fp16.")
    if options.optimizer not in ("adamw", "adam"):
        notes.append(f"torchtitan trains with AdamW, not with {options.optimizer}, and needs more memory.")
    return notes


def _shards(options: TrainOptions) -> int:
    """Return the ranks that share parameters: all of them under ZeRO 2 and 3, or if experts need more than tensor ranks."""
    layout = options.parallel
    needs_shards = layout.ep > layout.cp * layout.tp
    return options.replicas if layout.zero >= 2 or needs_shards else 1


def _chunks(options: TrainOptions) -> int:
    return INTERLEAVED_CHUNKS if options.parallel.chunks > 1 and options.parallel.pp > 1 else 1


def _assets(options: TrainOptions) -> str:
    return f"assets/hf/{options.model.rpartition('/')[2]}"
