"""Model FLOPs utilisation (MFU) of a training run on several GPUs, with its layout and the price of each GPU."""

from __future__ import annotations

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import significant
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.candidate import Candidate
from whichgpu.decide.configurations.cluster_span import FLOPS_PER_PARAMETER
from whichgpu.estimate.group.group_answer import layout_words
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Workload


def utilisation(tokens_per_second: float, parameters: float, gpus: float, peak: float) -> float:
    """Return the share of the GPUs' peak FLOP/s that 6 FLOPs per parameter and token make up (https://arxiv.org/abs/2204.02311).

    >>> round(utilisation(220_000, 70.6e9, 256, 989.4e12), 2)
    0.37
    """
    return FLOPS_PER_PARAMETER * parameters * tokens_per_second / (gpus * peak)


def utilisation_reason(one: Candidate, workload: Workload, shape: Shape, gpu: Gpu) -> Message | None:
    """Return a message with MFU, layout and price per GPU hour of training a language model on several GPUs; else None."""
    peak = gpu.peaks.get(PRECISION_BY_NAME[one.precision].wanted_peak or "")
    if one.gpus < 2 or not peak or not (workload.training and shape.is_language_model) or workload.lora_rank:
        return None
    share = utilisation(one.throughput.value, count_parameters(shape).active, float(one.gpus), peak)
    price, currency = float(one.cost_per_hour.amount) / float(one.gpus), one.cost_per_hour.currency
    return msg("because.mfu", mfu=f"{share:.0%}", layout=layout_words(one.parallel), price=significant(price), currency=currency)
