"""Diffusion networks for the tracer: the input is a picture of the final size, the network sees its latents.

The autoencoder shrinks a picture by eight in each direction; text enters as embeddings of the encoders' length and width. Only
the denoising network is traced: autoencoder and text encoders run before or after it and are small in comparison.
"""

from __future__ import annotations

from typing import Any

from whichgpu.estimate.trace.framework import load_torch, load_torchvision

SHRINK = 8
SIZES: dict[str, tuple[int, ...]] = {
    "sd15_unet": (512,),
    "sdxl_unet": (1024,),
    "sd3_transformer": (1024,),
    "flux_transformer": (1024,),
}


def network(name: str) -> Any:
    """Build the network of that name without weights."""
    load_torchvision()
    import diffusers

    torch = load_torch()

    class Denoiser(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = NETWORKS[name](diffusers)

        def forward(self, pictures: Any) -> Any:
            batch, _, side, _ = pictures.shape
            inputs = INPUTS[name](torch, pictures, batch, side // SHRINK)
            return self.network(**inputs, return_dict=False)[0]

    return Denoiser()


NETWORKS = {
    "sd15_unet": lambda library: library.UNet2DConditionModel(cross_attention_dim=768),
    "sdxl_unet": lambda library: library.UNet2DConditionModel(
        block_out_channels=(320, 640, 1280),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=[1, 2, 10],
        attention_head_dim=[5, 10, 20],
        cross_attention_dim=2048,
        addition_embed_type="text_time",
        addition_time_embed_dim=256,
        projection_class_embeddings_input_dim=2816,
        use_linear_projection=True,
    ),
    "sd3_transformer": lambda library: library.SD3Transformer2DModel(
        sample_size=128,
        num_layers=24,
        num_attention_heads=24,
        caption_projection_dim=1536,
        pos_embed_max_size=192,
        joint_attention_dim=4096,
        pooled_projection_dim=2048,
    ),
    "flux_transformer": lambda library: library.FluxTransformer2DModel(guidance_embeds=True),
}


def _unet(width: int, extra: bool) -> Any:
    def make(torch: Any, like: Any, batch: int, side: int) -> dict[str, Any]:
        inputs = {
            "sample": like.new_zeros(batch, 4, side, side),
            "timestep": like.new_zeros(batch, dtype=torch.int64),
            "encoder_hidden_states": like.new_zeros(batch, 77, width),
        }
        if extra:
            inputs["added_cond_kwargs"] = {"text_embeds": like.new_zeros(batch, 1280), "time_ids": like.new_zeros(batch, 6)}
        return inputs

    return make


def _sd3(torch: Any, like: Any, batch: int, side: int) -> dict[str, Any]:
    return {
        "hidden_states": like.new_zeros(batch, 16, side, side),
        "encoder_hidden_states": like.new_zeros(batch, 333, 4096),
        "pooled_projections": like.new_zeros(batch, 2048),
        "timestep": like.new_zeros(batch, dtype=torch.int64),
    }


def _flux(_: Any, like: Any, batch: int, side: int) -> dict[str, Any]:
    patches = (side // 2) ** 2
    return {
        "hidden_states": like.new_zeros(batch, patches, 64),
        "encoder_hidden_states": like.new_zeros(batch, 512, 4096),
        "pooled_projections": like.new_zeros(batch, 768),
        "timestep": like.new_zeros(batch),
        "img_ids": like.new_zeros(patches, 3),
        "txt_ids": like.new_zeros(512, 3),
        "guidance": like.new_zeros(batch),
    }


INPUTS = {"sd15_unet": _unet(768, False), "sdxl_unet": _unet(2048, True), "sd3_transformer": _sd3, "flux_transformer": _flux}
