"""Memory of a user's own module, found by running it without a GPU and without weights."""

from whichgpu.estimate.trace.factory import trace_factory
from whichgpu.estimate.trace.prepare import images, tokens
from whichgpu.estimate.trace.run import trace
from whichgpu.estimate.trace.trace_log import ModuleTrace, TracedOperator

__all__ = ["ModuleTrace", "TracedOperator", "images", "tokens", "trace", "trace_factory"]
