"""Diffusion networks for the tracer: the input is a picture of the final size, the network sees its latents.

The autoencoder (VAE) shrinks a picture by eight in each direction; text enters as embeddings of the encoders' length and width.
Denoising networks and the VAE's decoder are traced each for itself; text encoders are transformers (`workload/pipelines.py`).
Sizes are those of the published configs (`transformer/config.json`, `unet/config.json`, `vae/config.json` of each repository).
"""

from __future__ import annotations

from typing import Any

from whichgpu.estimate.trace.framework import load_torch, load_torchvision

SHRINK = 8
QWEN_IMAGE_TOKENS = 128  # assumed: its pipeline pads prompts to the longest of a batch only
SIZES: dict[str, tuple[int, ...]] = {
    "sd15_unet": (512,),
    "sd2_unet": (768, 512),
    "sdxl_unet": (1024,),
    "sd3_transformer": (1024,),
    "flux_transformer": (1024,),
    "kl_vae_decoder": (512, 1024),
    "flux_schnell_transformer": (1024,),
    "sd35_medium_transformer": (1024,),
    "sd35_large_transformer": (1024,),
    "pixart_transformer": (1024,),
    "sana_transformer": (1024,),
    "sana_vae_decoder": (1024,),
    "qwen_image_transformer": (1024,),
    "qwen_image_vae_decoder": (1024,),
}
# Decoders with convolutions over time take a video of one frame, in the default memory format.
SHAPES: dict[str, Any] = {"qwen_image_vae_decoder": lambda image: (3, 1, image, image)}


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
            batch, side = pictures.shape[0], pictures.shape[-1]
            inputs = INPUTS[name](torch, pictures, batch, side // SHRINK)
            if name.endswith("vae_decoder"):
                return self.network(**inputs)
            output = self.network(**inputs, return_dict=False)
            return output[0] if isinstance(output, tuple) else output

    return Denoiser()


def _sd35_network(library: Any, layers: int, positions: int, **more: Any) -> Any:
    """Return the transformer of Stable Diffusion 3.5: as many heads of 64 as layers, `positions` patches per side."""
    return library.SD3Transformer2DModel(
        sample_size=128,
        num_layers=layers,
        num_attention_heads=layers,
        caption_projection_dim=64 * layers,
        pos_embed_max_size=positions,
        joint_attention_dim=4096,
        pooled_projection_dim=2048,
        qk_norm="rms_norm",
        **more,
    )


NETWORKS = {
    "sd15_unet": lambda library: library.UNet2DConditionModel(cross_attention_dim=768),
    "sd2_unet": lambda library: library.UNet2DConditionModel(
        attention_head_dim=[5, 10, 20, 20], cross_attention_dim=1024, use_linear_projection=True
    ),
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
    "kl_vae_decoder": lambda library: (
        library.AutoencoderKL(
            block_out_channels=(128, 256, 512, 512),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=2,
            latent_channels=4,
        ).decoder
    ),
    "flux_schnell_transformer": lambda library: library.FluxTransformer2DModel(guidance_embeds=False),
    "sd35_medium_transformer": lambda library: _sd35_network(library, 24, 384, dual_attention_layers=tuple(range(13))),
    "sd35_large_transformer": lambda library: _sd35_network(library, 38, 192),
    "pixart_transformer": lambda library: library.PixArtTransformer2DModel(
        sample_size=128,
        num_layers=28,
        num_attention_heads=16,
        attention_head_dim=72,
        in_channels=4,
        out_channels=8,
        cross_attention_dim=1152,
        caption_channels=4096,
        use_additional_conditions=False,
    ),
    "sana_transformer": lambda library: library.SanaTransformer2DModel(
        num_layers=20,
        num_attention_heads=70,
        attention_head_dim=32,
        num_cross_attention_heads=20,
        cross_attention_head_dim=112,
        cross_attention_dim=2240,
        caption_channels=2304,
    ),
    "sana_vae_decoder": lambda library: _dc_autoencoder(library).decoder,
    "qwen_image_transformer": lambda library: _qwen_image_network(library),
    "qwen_image_vae_decoder": lambda library: library.AutoencoderKLQwenImage().decoder,
}


def _qwen_image_network(library: Any) -> Any:
    """Return Qwen-Image's transformer; its rotary angles are computed anew in each run, as in the first of a process."""
    network = library.QwenImageTransformer2DModel()
    for name in ("_get_device_freqs", "_compute_video_freqs"):
        cached = getattr(type(network.pos_embed), name)
        setattr(type(network.pos_embed), name, getattr(cached, "__wrapped__", cached))
    return network


def _dc_autoencoder(library: Any) -> Any:
    """Return the deep compression autoencoder of Sana, which shrinks a picture by 32 (mit-han-lab/dc-ae-f32c32-sana-1.0)."""
    blocks = ("ResBlock",) * 3 + ("EfficientViTBlock",) * 3
    scales = ((),) * 3 + ((5,),) * 3
    widths = (128, 256, 512, 512, 1024, 1024)
    return library.AutoencoderDC(
        encoder_block_types=blocks,
        decoder_block_types=blocks,
        encoder_block_out_channels=widths,
        decoder_block_out_channels=widths,
        encoder_layers_per_block=(2, 2, 2, 3, 3, 3),
        decoder_layers_per_block=(3,) * 6,
        encoder_qkv_multiscales=scales,
        decoder_qkv_multiscales=scales,
        downsample_block_type="Conv",
        upsample_block_type="interpolate",
    )


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


def _flux(tokens: int, guided: bool) -> Any:
    def make(_: Any, like: Any, batch: int, side: int) -> dict[str, Any]:
        patches = (side // 2) ** 2
        return {
            "hidden_states": like.new_zeros(batch, patches, 64),
            "encoder_hidden_states": like.new_zeros(batch, tokens, 4096),
            "pooled_projections": like.new_zeros(batch, 768),
            "timestep": like.new_zeros(batch),
            "img_ids": like.new_zeros(patches, 3),
            "txt_ids": like.new_zeros(tokens, 3),
            "guidance": like.new_zeros(batch) if guided else None,
        }

    return make


def _decoder(_: Any, like: Any, batch: int, side: int) -> dict[str, Any]:
    return {"sample": like.new_zeros(batch, 4, side, side)}


def _pixart(torch: Any, like: Any, batch: int, side: int) -> dict[str, Any]:
    return {
        "hidden_states": like.new_zeros(batch, 4, side, side),
        "encoder_hidden_states": like.new_zeros(batch, 300, 4096),
        "timestep": like.new_zeros(batch, dtype=torch.int64),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
    }


def _sana(torch: Any, like: Any, batch: int, side: int) -> dict[str, Any]:
    return {
        "hidden_states": like.new_zeros(batch, 32, side // 4, side // 4),
        "encoder_hidden_states": like.new_zeros(batch, 300, 2304),
        "timestep": like.new_zeros(batch, dtype=torch.int64),
    }


def _sana_decoder(_: Any, like: Any, batch: int, side: int) -> dict[str, Any]:
    return {"hidden_states": like.new_zeros(batch, 32, side // 4, side // 4)}


def _qwen_image(_: Any, like: Any, batch: int, side: int) -> dict[str, Any]:
    return {
        "hidden_states": like.new_zeros(batch, (side // 2) ** 2, 64),
        "encoder_hidden_states": like.new_zeros(batch, QWEN_IMAGE_TOKENS, 3584),
        "encoder_hidden_states_mask": None,
        "timestep": like.new_zeros(batch),
        "img_shapes": [[(1, side // 2, side // 2)]],
    }


def _qwen_image_decoder(_: Any, like: Any, batch: int, side: int) -> dict[str, Any]:
    return {"x": like.new_zeros(batch, 16, 1, side, side)}


INPUTS = {
    "sd15_unet": _unet(768, False),
    "sd2_unet": _unet(1024, False),
    "sdxl_unet": _unet(2048, True),
    "sd3_transformer": _sd3,
    "flux_transformer": _flux(512, True),
    "kl_vae_decoder": _decoder,
    "flux_schnell_transformer": _flux(256, False),
    "sd35_medium_transformer": _sd3,
    "sd35_large_transformer": _sd3,
    "pixart_transformer": _pixart,
    "sana_transformer": _sana,
    "sana_vae_decoder": _sana_decoder,
    "qwen_image_transformer": _qwen_image,
    "qwen_image_vae_decoder": _qwen_image_decoder,
}
