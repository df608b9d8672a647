"""Shell code that serves a model with Ollama: a Modelfile with the weights, and the server's environment variables."""

from __future__ import annotations

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.decide.launch.engine_lines.offload import gpu_layers, offload_notes
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.serve_command import model_argument, shell_line
from whichgpu.workload.config_files.checkpoint_names import GGUF_TYPES

KV_TYPES = {"q8_0": "q8_0", "int8": "q8_0", "fp8": "q8_0", "q4_0": "q4_0", "int4": "q4_0"}  # OLLAMA_KV_CACHE_TYPE


def ollama_code(options: LaunchOptions) -> str:
    """Return the code that writes a Modelfile and starts the server.

    The variables are those of its FAQ: context, parallel requests, KV cache, several GPUs. The Modelfile sets layers on GPUs
    (https://docs.ollama.com/modelfile, https://docs.ollama.com/faq, 2026-11-18).
    """
    kv_type = KV_TYPES.get(options.kv_dtype or "")
    context = options.request_length or options.max_model_len
    variables = {
        "OLLAMA_CONTEXT_LENGTH": context,
        "OLLAMA_NUM_PARALLEL": options.max_num_seqs,
        "OLLAMA_KV_CACHE_TYPE": kv_type,
        "OLLAMA_FLASH_ATTENTION": 1 if kv_type else None,
        "OLLAMA_SCHED_SPREAD": 1 if options.gpus_per_copy > 1 else None,
    }
    serve = " ".join([*(f"{name}={value}" for name, value in variables.items() if value), "ollama serve"])
    return f"printf '%s\\n' {shell_line(_modelfile(options))} > {_file(options)}\n{serve}"


def ollama_notes(options: LaunchOptions) -> list[str]:
    """Return the weights to provide, and what Ollama has no setting for."""
    file_type = GGUF_TYPES.get(options.dtype, options.dtype)
    notes = [f"Weights: {options.model} in {file_type}, as the GGUF file that FROM names, or a model of Ollama's library there."]
    notes.append(f"When the server runs: ollama create {options.group} -f {_file(options)} && ollama run {options.group}")
    if options.offload and options.offload.whole_layers:
        notes += offload_notes(options, engine_record("llama.cpp"))
    elif options.offload and options.offload.experts:
        notes.append("Experts in host memory: Ollama has no setting for it, it keeps whole layers there.")
    notes += ["Speculative decoding is not set: Ollama has no variable for it."] if options.speculative else []
    return notes


def _file(options: LaunchOptions) -> str:
    return f"{options.group}.Modelfile"


def _modelfile(options: LaunchOptions) -> list[str]:
    """Return the lines of the Modelfile; a line break in a name must not begin another."""
    weights = model_argument(options, engine_record("llama.cpp").serve)
    lines = [f"FROM ./{' '.join(weights.removeprefix('./').split())}"]
    if options.offload and options.offload.whole_layers:
        lines.append(f"PARAMETER num_gpu {gpu_layers(options)}")
    return lines
