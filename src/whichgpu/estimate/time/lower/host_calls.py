"""The host's work: how many framework calls it makes for a pass, borne by the operators those calls launch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from whichgpu.estimate.time.lower.eager.aten import VIEW_OPERATORS
from whichgpu.estimate.time.lower.eager.call import Call
from whichgpu.estimate.time.operators import Op

# The host's time for lighter calls, in calls of an operator that launches a kernel.
VIEW_CALL_WEIGHT = 0.05  # a view, or room for a result
LIGHT_CALL_WEIGHT = 0.25  # adding up gradients inside autograd's engine; counting batches
CAST_CALL_WEIGHT = 0.6  # by autocast, or of a gradient back


def host_call_weight(call: Call) -> float:
    """What one call costs the host."""
    if call.name in VIEW_OPERATORS or not call.outputs:
        return VIEW_CALL_WEIGHT
    if call.dtype == "int64" or (call.phase == "backward" and call.name in ("add", "add_strided")):
        return LIGHT_CALL_WEIGHT
    return CAST_CALL_WEIGHT if call.name == "_to_copy" else 1.0


def view_overhead(calls: Iterable[Call]) -> dict[str, float]:
    """By phase: the cost of all calls over that of those which launch a kernel, who bear that of the views."""
    every, launching = {"forward": 0.0, "backward": 0.0}, {"forward": 0.0, "backward": 0.0}
    for call in calls:
        cost = host_call_weight(call) * call.count
        every[call.phase] += cost
        if call.outputs and call.name not in VIEW_OPERATORS:
            launching[call.phase] += cost
    return {phase: every[phase] / cost if cost else 1.0 for phase, cost in launching.items()}


def with_host_calls(call: Call, ops: list[Op], shares: Mapping[str, float]) -> list[Op]:
    """The operators of a call, the first of which bears its cost."""
    if not ops:
        return ops
    first, *rest = ops
    cost = host_call_weight(call) * shares[call.phase] * call.count / float(first.count)
    return [first.with_calls(cost), *rest]
