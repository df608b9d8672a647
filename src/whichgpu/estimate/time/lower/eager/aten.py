"""Which kernels each operator of PyTorch runs, as operators of ours.

A rule takes a call and returns its operators. What no rule knows is taken as an elementwise kernel that reads its inputs and
writes its outputs.
"""

from __future__ import annotations

from whichgpu.estimate.time.lower.eager import convolution, elementwise, gemm, reductions
from whichgpu.estimate.time.lower.eager.call import Call, Settings
from whichgpu.estimate.time.lower.eager.elementwise import Rule
from whichgpu.estimate.time.operators import Op

# These only make a new description of memory, or find room: no kernel runs.
VIEWS = frozenset(
    "view _unsafe_view t transpose permute expand unsqueeze squeeze select slice split split_with_sizes unbind as_strided "
    "as_strided_ alias detach chunk unfold empty empty_like new_empty new_empty_strided empty_strided lift_fresh reshape "
    "flatten".split()
)


def kernels(call: Call, settings: Settings) -> list[Op]:
    """The operators of a call; none for a view."""
    if call.name in VIEWS or not call.outputs:
        return []
    return RULES.get(call.name, elementwise.elementwise)(call, settings)


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
    "_softmax": reductions.rowwise("softmax", 1),
    "_safe_softmax": reductions.rowwise("softmax", 1),
    "_softmax_backward_data": reductions.rowwise("softmax_backward", 2),
    "_log_softmax": reductions.rowwise("softmax", 1, over=1),
    "_log_softmax_backward_data": reductions.rowwise("softmax_backward", 2, over=1),
    "mean": reductions.reduce,
    "sum": reductions.reduce,
    "linalg_vector_norm": reductions.reduce,
    "amax": reductions.reduce,
    "max_pool2d_with_indices": reductions.max_pool,
    "max_pool2d_with_indices_backward": reductions.max_pool_backward,
    "avg_pool2d": reductions.average_pool,
    "avg_pool2d_backward": reductions.average_pool_backward,
    "_adaptive_avg_pool2d": elementwise.moving("pool"),
    "_adaptive_avg_pool2d_backward": elementwise.expanded,
    "upsample_nearest2d": elementwise.moving("pointwise", "strided"),
    "upsample_nearest2d_backward": elementwise.moving("pointwise", "strided"),
    "_to_copy": elementwise.cast,
    "clone": elementwise.clone,
    "copy_": elementwise.moving("copy", ""),
    "roll": elementwise.moving("transpose", "join"),
    "add_strided": elementwise.strided,
    "expanded": elementwise.expanded,
    "threshold_backward_strided": elementwise.strided,
    "constant_pad_nd": elementwise.moving("copy", ""),
    "cat": elementwise.concatenate,
    "stack": elementwise.concatenate,
    "index": elementwise.moving("embedding"),
    "index_select": elementwise.moving("embedding"),
    "index_add": elementwise.moving("embedding_backward"),
    "repeat": elementwise.moving("copy", "strided"),
    "index_put": elementwise.index_put,
    "embedding": elementwise.moving("embedding"),
    "embedding_dense_backward": elementwise.moving("embedding_backward"),
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
