"""Kernels that each PyTorch operator launches.

A rule takes a call and returns its operators. A call without a rule is assumed to be one elementwise kernel that reads all
inputs and writes all outputs.
"""

from __future__ import annotations

from whichgpu.estimate.time.lower.eager import convolution, elementwise, gemm, reductions
from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions
from whichgpu.estimate.time.lower.eager.elementwise import Rule
from whichgpu.estimate.time.operators import Op

# These views and allocations launch no kernel.
VIEW_OPERATORS = frozenset(
    "view _unsafe_view t transpose permute expand unsqueeze squeeze select slice split split_with_sizes unbind as_strided "
    "as_strided_ alias detach chunk unfold empty empty_like new_empty new_empty_strided empty_strided lift_fresh reshape "
    "flatten".split()
)


def aten_kernels(call: Call, options: LoweringOptions) -> list[Op]:
    """Return the operators that a PyTorch call launches; none for a view."""
    if call.name in VIEW_OPERATORS or not call.outputs:
        return []
    return RULES.get(call.name, elementwise.elementwise)(call, options)


_OPERATORS_BY_RULE: tuple[tuple[Rule, str], ...] = (
    (convolution.forward, "convolution"),
    (convolution.backward, "convolution_backward"),
    (gemm.matmul, "addmm mm bmm baddbmm"),
    (gemm.attention, "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention"),
    (gemm.attention_backward, "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward"),
    (gemm.native_attention, "_native_multi_head_attention"),
    (reductions.batch_norm, "native_batch_norm"),
    (reductions.batch_norm_backward, "native_batch_norm_backward"),
    (reductions.layer_norm, "native_layer_norm"),
    (reductions.layer_norm_backward, "native_layer_norm_backward"),
    (reductions.group_norm, "native_group_norm"),
    (reductions.group_norm_backward, "native_group_norm_backward"),
    (reductions.softmax_rule("softmax", 1), "_softmax _safe_softmax"),
    (reductions.softmax_rule("softmax_backward", 2), "_softmax_backward_data"),
    (reductions.softmax_rule("softmax", 1, axis=1), "_log_softmax"),
    (reductions.softmax_rule("softmax_backward", 2, axis=1), "_log_softmax_backward_data"),
    (reductions.reduce, "mean sum linalg_vector_norm amax"),
    (reductions.max_pool, "max_pool2d_with_indices"),
    (reductions.max_pool_backward, "max_pool2d_with_indices_backward"),
    (reductions.average_pool, "avg_pool2d"),
    (reductions.average_pool_backward, "avg_pool2d_backward"),
    (elementwise.copy_rule("pool"), "_adaptive_avg_pool2d"),
    (elementwise.broadcast_gradient, "_adaptive_avg_pool2d_backward expanded"),
    (elementwise.copy_rule("elementwise", "strided"), "upsample_nearest2d upsample_nearest2d_backward"),
    (elementwise.cast, "_to_copy"),
    (elementwise.clone, "clone"),
    (elementwise.copy_rule("copy", ""), "copy_ constant_pad_nd"),
    (elementwise.copy_rule("transpose", "concat"), "roll"),
    (elementwise.strided_elementwise, "add_strided threshold_backward_strided"),
    (elementwise.concatenate, "cat stack"),
    (elementwise.copy_rule("embedding"), "index index_select embedding"),
    (elementwise.copy_rule("embedding_backward"), "index_add embedding_dense_backward"),
    (elementwise.copy_rule("copy", "strided"), "repeat"),
    (elementwise.index_put, "index_put"),
    (elementwise.scatter, "select_backward slice_backward"),
    (elementwise.dropout, "native_dropout"),
    (elementwise.dropout_backward, "native_dropout_backward"),
    (elementwise.fill, "zeros ones zeros_like ones_like new_zeros full fill_ bernoulli_ arange scalar_tensor"),
)
RULES: dict[str, Rule] = {name: rule for rule, names in _OPERATORS_BY_RULE for name in names.split()}
