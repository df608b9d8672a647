"""Workspace of convolutions, which a trace cannot see, inserted into the events of a trace.

Tensor-core convolutions work in channels-last order; given tensors in channels-first order, cuDNN transposes its operands and its
result in a workspace as large as all three, for as long as the call lasts.
"""

from __future__ import annotations

from math import prod

from whichgpu.estimate.allocator import Event
from whichgpu.estimate.trace.trace_log import ModuleTrace, TracedOperator

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def convolution_workspace(trace: ModuleTrace) -> tuple[Event, ...]:
    """Events of a trace with the workspace of each convolution of the last step allocated and freed."""
    requests: dict[int, list[int]] = {}
    for operator in trace.operators:
        for at, size in _requests(operator):
            requests.setdefault(at, []).append(size)
    if not requests:
        return trace.events
    id = len(trace.makers)
    events: list[Event] = []
    for index, event in enumerate(trace.events):
        events.append(event)
        for size in requests.get(index, ()):
            events += [(id, size), (id, -size)]
            id += 1
    return tuple(events)


def _requests(operator: TracedOperator) -> list[tuple[int, int]]:
    """Workspaces of one call: the index of the event before each, and its bytes."""
    width = BYTES.get(operator.dtype, 4)
    if operator.name == "aten.convolution.default":
        input, weight = operator.inputs[:2]
        if _depthwise(operator, input, weight):
            return []
        return [(operator.event, width * (prod(input) + prod(weight) + prod(operator.outputs[0])))]
    if operator.name == "aten.convolution_backward.default":
        gradient, input, weight = operator.inputs[:3]
        if _depthwise(operator, input, weight):
            return []
        size = width * (prod(input) + prod(weight) + prod(gradient))
        # One for the input's gradient, then one for the weight's; each follows the allocation of its result.
        return [(operator.event + n, size) for n in range(min(2, len(operator.outputs)))]
    return []


def _depthwise(operator: TracedOperator, input: tuple[int, ...], weight: tuple[int, ...]) -> bool:
    return int(operator.attributes.get("groups", 1)) == input[1] and weight[1] == 1
