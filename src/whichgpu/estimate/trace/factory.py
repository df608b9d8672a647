"""Tracing of a model named as MODULE:FACTORY in the user's own code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.estimate.trace.framework import load_torch, load_torchvision
from whichgpu.estimate.trace.prepare import InputFactory
from whichgpu.estimate.trace.run import trace
from whichgpu.estimate.trace.trace_log import ModuleTrace


def trace_factory(name: str, inputs: InputFactory | None = None, **options: Any) -> ModuleTrace:
    """Trace what `MODULE:FACTORY` returns: a module, or a module and its example inputs. Options are those of `trace`."""
    load_torch()
    factory = find_factory(name)
    try:
        return trace(factory, inputs, **options)
    except UsageError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError("trace-failed", msg("error.trace_failed", name=name, reason=reason), msg("hint.trace_failed")) from error


def find_factory(name: str) -> Callable[[], Any]:
    """Import and return the user's factory, with the working directory temporarily on the import path."""
    module_name, _, factory_name = name.partition(":")
    if not module_name or not factory_name:
        raise UsageError("bad-value", msg("error.factory_spelling", name=name), msg("hint.factory_spelling"))
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        factory = getattr(_imported(module_name), factory_name)
    except (ImportError, AttributeError) as error:
        missing = msg("error.factory_missing", name=name, reason=str(error))
        raise UsageError("bad-value", missing, msg("hint.factory_spelling")) from error
    finally:
        sys.path.remove(here)
    if not callable(factory):
        raise UsageError("bad-value", msg("error.factory_result"), msg("hint.factory_result"))
    typed: Callable[[], Any] = factory
    return typed


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    load_torchvision()
    return import_module(name)
