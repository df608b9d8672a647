"""YAML file with the settings of a replica that have no option of their own, written before an engine starts."""

from __future__ import annotations

import shlex

from whichgpu.catalog.engines.record import EngineRecord
from whichgpu.decide.launch.engine_lines.speculative import speculative_line
from whichgpu.decide.launch.options import LaunchOptions

DEFAULT_SHARE = 0.9  # of free memory that KV caches get if nothing else is set: TensorRT-LLM's default


def file_setup(options: LaunchOptions, record: EngineRecord) -> str:
    """Return shell code that writes the file; empty if nothing needs one."""
    lines = _lines(options, record)
    return f"printf '%s\\n' {' '.join(map(shlex.quote, lines))} > {_name(options)}; " if lines else ""


def file_words(options: LaunchOptions, record: EngineRecord) -> list[str]:
    """Return the option that names the file; none if nothing needs one."""
    return record.serve.config_file.format(file=_name(options)).split() if _lines(options, record) else []


def _lines(options: LaunchOptions, record: EngineRecord) -> list[str]:
    attention = record.serve.attention_data_parallel_file if options.attention_ranks > 1 else ""
    kv_precision = record.serve.kv_precision_file.get(options.kv_dtype or "", "")
    kv_precision = kv_precision.replace("{share}", f"{options.memory_share or DEFAULT_SHARE:.2f}")
    return [line for line in (attention, kv_precision, speculative_line(options, record)) if line]


def _name(options: LaunchOptions) -> str:
    return f"{options.group}-engine.yaml"
