"""Command line that serves one replica, from the options in an engine's record (`serve.*` in `data/engines/<id>.csv`)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from whichgpu.catalog.engines.record import EngineRecord, ServeCommand
from whichgpu.catalog.engines.registry import engine_ids, engine_record
from whichgpu.decide.launch.engine_lines.config_file import file_setup, file_words
from whichgpu.decide.launch.engine_lines.offload import offload_notes, offload_words
from whichgpu.decide.launch.engine_lines.quantised_checkpoint import is_instruction_tuned
from whichgpu.decide.launch.engine_lines.speculative import speculative_notes, speculative_words
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.text import NodeWord, argument, in_folder
from whichgpu.workload.config_files.checkpoint_names import GGUF_TYPES, checkpoint_placeholder, gguf_file
from whichgpu.workload.precisions import TRAINED_PRECISIONS

GGUF = ".gguf"
# Options of prefill and decode workers that exchange KV caches, from https://docs.vllm.ai/en/latest/features/disagg_prefill.html
# and https://docs.sglang.io/advanced_features/pd_disaggregation.html.
WORKER_OPTIONS = {
    ("vllm", "prefill"): '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_producer"}',
    ("vllm", "decode"): '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_consumer"}',
    ("sglang", "prefill"): "--disaggregation-mode=prefill",
    ("sglang", "decode"): "--disaggregation-mode=decode",
}
# What the workers also need, from https://docs.vllm.ai/en/latest/features/nixl_connector_usage.html and SGLang's page above.
WORKER_NEEDS = {
    "vllm": "pip install nixl; on several machines VLLM_NIXL_SIDE_CHANNEL_HOST is each worker's own address",
    "sglang": "pip install mooncake-transfer-engine",
}
HALF = ("bf16", "fp16", "f16")


def serving_engines() -> tuple[str, ...]:
    """Return the ids of the engines whose command line is known."""
    return tuple(id for id in engine_ids() if engine_record(id).serve.command)


def serve_words(options: LaunchOptions, engine: str, port: int | NodeWord | None = None, folder: str = "") -> list[str]:
    """Return the words of the command line that launches one replica with an engine.

    A port is one that other machines reach; with None the engine listens where it does by default. GGUF files are in `folder`.
    """
    record = engine_record(engine)
    serve = record.serve
    model = in_folder(folder, model_argument(options, serve)) if serve.reads_gguf else model_argument(options, serve)
    words = [word.format(model=model) for word in serve.command.split()]
    words += offload_words(options, serve) + (serve.embedding.split() if options.is_embedding else [])
    for option, value in _sized_options(options, serve):
        words += _option(serve, option, value)
    if options.checkpoint is None:  # The engine reads the precision of a quantised checkpoint from its config.json.
        words += serve.precision.get(options.dtype, "").split()
    if not options.has_bf16 and options.dtype not in TRAINED_PRECISIONS:  # Checkpoints ask for bf16 beside quantised weights.
        words += serve.precision.get("fp16", "").split()
    kv_dtype = "fp16" if options.kv_dtype == "bf16" and not options.has_bf16 else options.kv_dtype
    if kv_dtype != options.dtype:
        words += serve.kv_precision.get(kv_dtype or "", "").split()
    words += speculative_words(options, record, folder) + file_words(options, record)
    words += WORKER_OPTIONS.get((engine, options.role), "").split()
    if options.nodes > 1:
        several = serve.nodes.format(nodes=options.nodes).split() + (["$NODE_OPTIONS"] if serve.other_nodes else [])
        words += map(NodeWord, several)
    if port is None:
        return words
    reached = _option(serve, serve.port, str(port))
    return [*words, *(map(NodeWord, reached) if isinstance(port, NodeWord) else reached), *serve.host.split()]


def serve_line(options: LaunchOptions, engine: str, port: int | NodeWord | None = None, program: str = "") -> str:
    """Return the shell code that starts one replica, under a `program` if given; writes the config file an engine needs first."""
    return file_setup(options, engine_record(engine)) + program + shell_line(serve_words(options, engine, port))


def container_words(options: LaunchOptions, engine: str, port: int, folder: str = "") -> list[str]:
    """Return the words that start one replica in a container: those of a shell if an engine's config file is written first.

    GGUF files are in `folder`.
    """
    record = engine_record(engine)
    program, *words = serve_words(options, engine, port, folder)
    words = [record.serve.image_program or program, *words]
    setup = file_setup(options, record)
    return ["sh", "-c", setup + shell_line(words)] if setup else words


def node_setup(engine: str, rank: str, head: str) -> str:
    """Return shell code that sets the variables of a node from a scheduler's words for its rank and the first node's address."""
    other = engine_record(engine).serve.other_nodes
    code = f"NODE_RANK={rank}; HEAD_ADDRESS={head}; "
    return code + (f'[ "$NODE_RANK" = 0 ] || NODE_OPTIONS={other}; ' if other else "")


def shell_line(words: list[str]) -> str:
    """Return words as one line for a shell, quoted except for the variables of a node."""
    return " ".join(word if isinstance(word, NodeWord) else shlex.quote(word) for word in words)


def model_argument(options: LaunchOptions, serve: ServeCommand) -> str:
    """Return the model as the engine names it: a repository, a placeholder for a checkpoint to provide, or a GGUF file."""
    if serve.reads_gguf and not options.model.endswith(GGUF):
        return argument(gguf_file(options.model, options.dtype))
    if options.checkpoint is not None:
        return argument(options.checkpoint)
    return checkpoint_placeholder(options.model, options.dtype) if needs_checkpoint(options, serve) else argument(options.model)


def needs_checkpoint(options: LaunchOptions, serve: ServeCommand) -> bool:
    """Whether an engine cannot load the published weights in the precision of the request, only a checkpoint made in it."""
    if serve.reads_gguf or options.model.endswith(GGUF) or options.checkpoint is not None:
        return False
    if options.published and options.published not in TRAINED_PRECISIONS:  # Quantised weights are loaded as they are.
        return options.dtype != options.published
    return options.dtype not in (*serve.precision, *HALF, *TRAINED_PRECISIONS)


def checkpoint_notes(options: LaunchOptions, record: EngineRecord) -> list[str]:
    """Return which checkpoint is served if it is another than the model, or what to put in place of a placeholder for it."""
    if options.checkpoint is not None and not record.serve.reads_gguf:
        tuned = is_instruction_tuned(options.checkpoint) and not is_instruction_tuned(options.model)
        why = "; it is instruction-tuned for chat, the other is the base model" if tuned else ""
        return [f"Checkpoint: {options.checkpoint} has the weights of {options.model} in {options.dtype}{why}."]
    if not needs_checkpoint(options, record.serve):
        return []
    return [
        f"{model_argument(options, record.serve)}: name a checkpoint in {options.dtype} here, a repository or a folder; "
        f"{record.name} reads this precision from it. LLM Compressor and NVIDIA Model Optimizer make quantised ones."
    ]


def serve_notes(options: LaunchOptions, engine: str) -> list[str]:
    """Return what the command line of a replica does not say: weights to provide, releases, ranks that it cannot express."""
    record = engine_record(engine)
    serve, notes = record.serve, list[str]()
    if options.max_model_len and options.context_reason:
        notes.append(options.context_reason if not serve.context_of_all else _reserved_note(options))
    if engine in options.earlier:
        release = options.releases.get(engine)
        which = f'release {release} does: pip install "{serve.package}=={release}"' if release else "an earlier one did"
        notes.append(f"The present release does not run on {options.gpu}, {which}: {options.earlier[engine]}")
    if serve.reads_gguf and not options.model.endswith(GGUF):
        file_type = GGUF_TYPES.get(options.dtype, options.dtype)
        instead = f", {record.name}'s type for {options.dtype}" if file_type != options.dtype else ""
        notes.append(f"Weights: {options.model} as a GGUF file in {file_type}{instead}.")
    elif own := checkpoint_notes(options, record):
        notes += own
    elif options.dtype not in (*serve.precision, *HALF) and not options.model.endswith(GGUF):
        notes.append(f"Weights: a checkpoint in {options.dtype}; {record.name} reads its precision from the checkpoint.")
    if options.kv_dtype not in (None, options.dtype, *serve.kv_precision, *serve.kv_precision_file, *HALF):
        notes.append(f"KV cache in {options.kv_dtype}: {record.name} has no option for it, its checkpoint decides.")
    if has_attention_ranks(options, serve):
        if serve.attention_data_parallel_file and options.tensor_parallel_size > 1:
            ranks = _expert_ranks(options)
            notes.append(f"{record.name}: attention is data parallel over all {ranks} ranks, without tensor parallel.")
    elif options.data_parallel_size > 1 and not serve.data_parallel:
        notes.append(
            f"{record.name} has no data parallelism: start {options.data_parallel_size} of these, one on each part of the GPUs."
        )
    if _experts_span_fewer_ranks(options, serve):
        notes.append(
            f"Expert parallel: {record.name} uses all {_expert_ranks(options)} ranks, not {options.expert_parallel_size}."
        )
    notes += [*offload_notes(options, record), *speculative_notes(options, record)]
    if options.role != "both":
        notes.append(f"A {options.role} worker: a router sends each prompt to a prefill worker, then to a decode worker.")
        needs = WORKER_NEEDS.get(engine, f"{record.name} does so as its own configuration says")
        notes.append(f"The workers exchange KV caches: {needs}.")
    return notes


def _reserved_note(options: LaunchOptions) -> str:
    """Return the context that an engine reserves for each sequence."""
    each = options.request_length or options.max_model_len
    return f"Context: {each} tokens for each sequence ({options.max_num_seqs or 1} at once), reserved at the start."


def node_notes(options: LaunchOptions, engine: str) -> list[str]:
    """Return how to start a replica on several nodes where no scheduler does it; nothing for one node."""
    serve = engine_record(engine).serve
    if options.nodes == 1:
        return []
    if not serve.nodes:
        return [f"{options.nodes} nodes a replica: start it under mpirun or srun with one rank on each GPU."]
    others = f"; on the others also NODE_OPTIONS={serve.other_nodes}." if serve.other_nodes else "."
    return [
        f"{options.nodes} nodes a replica: run this on each, NODE_RANK=0..{options.nodes - 1}, HEAD_ADDRESS of the first{others}"
    ]


def _sized_options(options: LaunchOptions, serve: ServeCommand) -> Iterator[tuple[str, str]]:
    """Yield the options of a replica with their values; those of size 1 and those the engine lacks are left out."""
    ep, dp = options.expert_parallel_size, options.data_parallel_size
    attention_dp = has_attention_ranks(options, serve)
    tp = options.tensor_parallel_size * (dp if attention_dp and serve.counts_attention_data_parallel else 1)
    context, sequences, tokens = options.max_model_len, options.max_num_seqs, options.max_num_batched_tokens
    if attention_dp and serve.limits_of_all_ranks:
        sequences, tokens = sequences and sequences * dp, tokens and tokens * dp
    if context and serve.context_of_all:  # Its memory is reserved for all sequences at the start.
        context = (options.request_length or context) * (sequences or 1)
    first = serve.tensor_parallel if " " not in serve.tensor_parallel else ""  # Written out even if it is 1.
    sizes = {serve.tensor_parallel: tp, serve.pipeline_parallel: options.pipeline_parallel_size, serve.data_parallel: dp}
    if " " in serve.tensor_parallel and options.pipeline_parallel_size > 1:  # One of two modes, not sizes of both.
        del sizes[serve.tensor_parallel]
    yield from ((option, str(size)) for option, size in sizes.items() if option and (size > 1 or option == first))
    if attention_dp and serve.attention_data_parallel:
        yield serve.attention_data_parallel, ""
    if ep > 1 and serve.expert_parallel:
        option, _, size = serve.expert_parallel.format(ep=ep).partition("=")
        yield option, size
    limits = {serve.max_sequences: sequences, serve.context: context, serve.chunk: tokens}
    yield from ((option, str(value)) for option, value in limits.items() if option and value)
    if serve.memory_share and options.memory_share:
        yield serve.memory_share, f"{options.memory_share:.3f}".removesuffix("0")


def has_attention_ranks(options: LaunchOptions, serve: ServeCommand) -> bool:
    """Whether the data parallel ranks are attention data parallel ranks inside the engine's tensor parallel group."""
    return options.attention_ranks > 1 and bool(serve.attention_data_parallel or serve.attention_data_parallel_file)


def _option(serve: ServeCommand, option: str, value: str) -> list[str]:
    """Return the words of an option; one that contains its value, or a switch, takes none."""
    if " " in option or not value:
        return option.split()
    return [option, value] if serve.separate_values else [f"{option}={value}"]


def _experts_span_fewer_ranks(options: LaunchOptions, serve: ServeCommand) -> bool:
    """Whether the engine's expert parallel option is a switch that spreads experts over more ranks than the layout does."""
    is_switch = bool(serve.expert_parallel) and "{ep}" not in serve.expert_parallel
    return is_switch and options.expert_parallel_size not in (1, _expert_ranks(options))


def _expert_ranks(options: LaunchOptions) -> int:
    return options.tensor_parallel_size * options.data_parallel_size
