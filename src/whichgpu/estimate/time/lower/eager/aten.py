"""Which kernels each operator of PyTorch runs, as operators of ours.

A rule takes a call and returns its operators. What no rule knows is taken as an elementwise kernel that reads its inputs and
writes its outputs.
"""

from __future__ import annotations

from whichgpu.estimate.time.lower.eager import convolution, elementwise, gemm, reductions
from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions
from whichgpu.estimate.time.lower.eager.elementwise import Rule
from whichgpu.estimate.time.operators import Op

# These only make a new description of memory, or find room: no kernel runs.
VIEW_OPERATORS = frozenset(
    "view _unsafe_view t transpose permute expand unsqueeze squeeze select slice split split_with_sizes unbind as_strided "
    "as_strided_ alias detach chunk unfold empty empty_like new_empty new_empty_strided empty_strided lift_fresh reshape "
    "flatten".split()
)


def aten_kernels(call: Call, options: LoweringOptions) -> list[Op]:
    """The operators of a call; none for a view."""
    if call.name in VIEW_OPERATORS or not call.outputs:
        return []
    return RULES.get(call.name, elementwise.elementwise)(call, options)


RULES: dict[str, Rule] = {
    "convolution": convolution.forward,
    "convolution_backward": convolution.backward,
    "addmm": gemm.matmul,
    "mm": gemm.matmul,
    "bmm": gemm.matmul,
    "baddbmm": gemm.matmul,
    "_scaled_dot_product_flash_attention": gemm.attention,
    "_scaled_dot_product_efficient_attention": gemm.attention,
    "_scaled_dot_product_flash_attention_backward": gemm.attention_backward,
    "_scaled_dot_product_efficient_attention_backward": gemm.attention_backward,
    "_native_multi_head_attention": gemm.native_attention,
    "native_batch_norm": reductions.batch_norm,
    "native_batch_norm_backward": reductions.batch_norm_backward,
    "native_layer_norm": reductions.layer_norm,
    "native_layer_norm_backward": reductions.layer_norm_backward,
    "native_group_norm": reductions.group_norm,
    "native_group_norm_backward": reductions.group_norm_backward,
    "_softmax": reductions.softmax_rule("softmax", 1),
    "_safe_softmax": reductions.softmax_rule("softmax", 1),
    "_softmax_backward_data": reductions.softmax_rule("softmax_backward", 2),
    "_log_softmax": reductions.softmax_rule("softmax", 1, over=1),
    "_log_softmax_backward_data": reductions.softmax_rule("softmax_backward", 2, over=1),
    "mean": reductions.reduce,
    "sum": reductions.reduce,
    "linalg_vector_norm": reductions.reduce,
    "amax": reductions.reduce,
    "max_pool2d_with_indices": reductions.max_pool,
    "max_pool2d_with_indices_backward": reductions.max_pool_backward,
    "avg_pool2d": reductions.average_pool,
    "avg_pool2d_backward": reductions.average_pool_backward,
    "_adaptive_avg_pool2d": elementwise.copy_rule("pool"),
    "_adaptive_avg_pool2d_backward": elementwise.broadcast_gradient,
    "upsample_nearest2d": elementwise.copy_rule("pointwise", "strided"),
    "upsample_nearest2d_backward": elementwise.copy_rule("pointwise", "strided"),
    "_to_copy": elementwise.cast,
    "clone": elementwise.clone,
    "copy_": elementwise.copy_rule("copy", ""),
    "roll": elementwise.copy_rule("transpose", "join"),
    "add_strided": elementwise.strided_elementwise,
    "expanded": elementwise.broadcast_gradient,
    "threshold_backward_strided": elementwise.strided_elementwise,
    "constant_pad_nd": elementwise.copy_rule("copy", ""),
    "cat": elementwise.concatenate,
    "stack": elementwise.concatenate,
    "index": elementwise.copy_rule("embedding"),
    "index_select": elementwise.copy_rule("embedding"),
    "index_add": elementwise.copy_rule("embedding_backward"),
    "repeat": elementwise.copy_rule("copy", "strided"),
    "index_put": elementwise.index_put,
    "embedding": elementwise.copy_rule("embedding"),
    "embedding_dense_backward": elementwise.copy_rule("embedding_backward"),
    "select_backward": elementwise.scatter,
    "slice_backward": elementwise.scatter,
    "native_dropout": elementwise.dropout,
    "native_dropout_backward": elementwise.dropout_backward,
    "zeros": elementwise.fill,
    "ones": elementwise.fill,
    "zeros_like": elementwise.fill,
    "ones_like": elementwise.fill,
    "new_zeros": elementwise.fill,
    "full": elementwise.fill,
    "fill_": elementwise.fill,
    "bernoulli_": elementwise.fill,
    "arange": elementwise.fill,
    "scalar_tensor": elementwise.fill,
}
