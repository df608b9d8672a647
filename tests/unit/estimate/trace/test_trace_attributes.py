"""What a trace keeps of an operator's arguments, by the names PyTorch's schemas give them (native_functions.yaml)."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from whichgpu.estimate.trace.recorder import _operator
from whichgpu.estimate.trace.trace_log import TraceLog

SCHEMAS = {
    "aten.convolution.default": "input weight bias stride padding dilation transposed output_padding groups",
    "aten.convolution_backward.default": "grad_output input weight bias_sizes stride padding dilation transposed output_padding "
    "groups output_mask",
    "aten.max_pool2d_with_indices.default": "self kernel_size stride padding dilation ceil_mode",
    "aten.avg_pool2d.default": "self kernel_size stride padding ceil_mode count_include_pad divisor_override",
    "aten._scaled_dot_product_flash_attention.default": "query key value dropout_p is_causal return_debug_mask",
    "aten._scaled_dot_product_flash_attention_backward.default": "grad_out query key value out logsumexp cum_seq_q cum_seq_k "
    "max_q max_k dropout_p is_causal philox_seed philox_offset",
    "aten._scaled_dot_product_efficient_attention.default": "query key value attn_bias compute_log_sumexp dropout_p is_causal",
    "aten._scaled_dot_product_efficient_attention_backward.default": "grad_out_ query key value attn_bias out logsumexp "
    "philox_seed philox_offset dropout_p grad_input_mask is_causal",
}
KEPT = {
    "convolution": "stride padding dilation transposed groups",
    "convolution_backward": "stride padding dilation transposed groups output_mask",
    "max_pool2d_with_indices": "kernel_size stride padding",
    "avg_pool2d": "kernel_size stride padding",
}
OURS = {"kernel_size": "kernel", "output_mask": "mask", "is_causal": "causal"}


@dataclass
class Tensor:
    shape: tuple[int, ...]
    dtype: str = "torch.bfloat16"


def recorded_operator(name: str, args: tuple[Any, ...], outputs: Any = None) -> Any:
    ledger = TraceLog()
    ledger.begin("forward", 1)
    return _operator(SimpleNamespace(Tensor=Tensor), name, args, outputs or [Tensor((2, 3))], ledger, 7)


@pytest.mark.parametrize("name", SCHEMAS)
def test_attributes_are_those_of_the_schema(name: str) -> None:
    words = SCHEMAS[name].split()
    attributes = KEPT.get(name.split(".")[1], "is_causal").split()
    expected = {OURS.get(word, word): f"the {word}" for word in attributes}
    assert recorded_operator(name, tuple(f"the {word}" for word in words)).attributes == expected
    short = words.index(attributes[-1])  # defaults are left out of a call
    assert recorded_operator(name, tuple(f"the {word}" for word in words[:short])).attributes == {
        key: value for key, value in expected.items() if key != OURS.get(attributes[-1], attributes[-1])
    }


def test_shapes_type_and_place_of_a_call() -> None:
    operator = recorded_operator(
        "aten.mm.default", (Tensor((4, 8)), [Tensor((8, 3))], 5), [Tensor((4, 3)), Tensor((4,), "torch.float32")]
    )
    assert (operator.inputs, operator.outputs) == (((4, 8), (8, 3)), ((4, 3), (4,)))
    assert (operator.name, operator.dtype, operator.phase, operator.step, operator.event) == (
        "aten.mm.default",
        "bfloat16",
        "forward",
        1,
        7,
    )
    assert operator.attributes == {}
