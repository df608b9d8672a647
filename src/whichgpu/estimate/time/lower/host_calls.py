"""Framework calls that the host makes in a pass, attributed to the operators that they launch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from whichgpu.estimate.time.lower.eager.aten import VIEW_OPERATORS
from whichgpu.estimate.time.lower.eager.call import Call
from whichgpu.estimate.time.operators import Op

# Weights of lighter calls: their host time relative to that of a call that launches a kernel (assumed).
VIEW_CALL_WEIGHT = 0.05  # views and allocations
LIGHT_CALL_WEIGHT = 0.25  # gradient accumulation inside autograd's engine; integer counters
CAST_CALL_WEIGHT = 0.6  # casts by autocast, forward and backward


def host_call_weight(call: Call) -> float:
    """Return the host cost of one call, in units of a kernel-launching call."""
    if call.name in VIEW_OPERATORS or not call.outputs:
        return VIEW_CALL_WEIGHT
    if call.dtype == "int64" or (call.phase == "backward" and call.name in ("add", "add_strided")):
        return LIGHT_CALL_WEIGHT
    return CAST_CALL_WEIGHT if call.name == "_to_copy" else 1.0


def view_overhead(calls: Iterable[Call]) -> dict[str, float]:
    """Return, by phase, the host cost of all calls divided by that of the calls that launch kernels; views launch none."""
    total, launching = {"forward": 0.0, "backward": 0.0}, {"forward": 0.0, "backward": 0.0}
    for call in calls:
        cost = host_call_weight(call) * call.count
        total[call.phase] += cost
        if call.outputs and call.name not in VIEW_OPERATORS:
            launching[call.phase] += cost
    return {phase: total[phase] / cost if cost else 1.0 for phase, cost in launching.items()}


def charge_host_cost(call: Call, ops: list[Op], shares: Mapping[str, float]) -> list[Op]:
    """Return a call's operators with its host cost charged to the first, scaled by `shares` (`view_overhead` by phase)."""
    if not ops:
        return ops
    first, *rest = ops
    cost = host_call_weight(call) * shares[call.phase] * call.count / float(first.count)
    return [first.with_calls(cost), *rest]
