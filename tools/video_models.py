"""Video diffusion networks for the tracer: the input is one frame of the final size, the network sees the latents of all frames.

The image size of a table is the frame's height; width and number of frames are those of the published pipelines (`FORMATS`).
An autoencoder (VAE) shrinks a video in time, too: the first frame alone, the others in groups of 4 or 8 (`Format.stride`).
Sizes of the networks are those of the published configs, which are the defaults of diffusers' classes but for what is given here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from whichgpu.estimate.trace.framework import load_torch, load_torchvision


class Format(NamedTuple):
    """Default size of a model's video, and how much its latents are smaller: in height and width, and in frames."""

    height: int
    width: int
    frames: int
    shrink: int = 8
    stride: int = 4
    channels: int = 16

    def latents(self, like: Any, batch: int) -> Any:
        """Zeros of the shape of the latents: batch, channels, frames, height, width."""
        frames = (self.frames - 1) // self.stride + 1
        return like.new_zeros(batch, self.channels, frames, self.height // self.shrink, self.width // self.shrink)


WAN = Format(480, 832, 81)
WAN_5B = Format(704, 1280, 121, 16, 4, 48)
LTX = Format(512, 704, 161, 32, 8, 128)
COGVIDEOX = Format(480, 720, 49)
HUNYUAN = Format(720, 1280, 129)
FORMATS: dict[str, Format] = {
    "wan21_1_3b_transformer": WAN,
    "wan_14b_transformer": WAN,
    "wan_vae_decoder": WAN,
    "wan22_5b_transformer": WAN_5B,
    "wan22_vae_decoder": WAN_5B,
    "ltx_video_transformer": LTX,
    "ltx_video_vae_decoder": LTX,
    "cogvideox_2b_transformer": COGVIDEOX,
    "cogvideox_5b_transformer": COGVIDEOX,
    "cogvideox_vae_decoder": COGVIDEOX,
    "hunyuan_video_transformer": HUNYUAN,
    "hunyuan_video_vae_decoder": Format(256, 256, 17),  # one tile: its pipeline is published with tiling on
}
SIZES: dict[str, tuple[int, ...]] = {name: (format.height,) for name, format in FORMATS.items()}
SHAPES: dict[str, Any] = {name: lambda image, name=name: (3, 1, image, FORMATS[name].width) for name in FORMATS}


def network(name: str) -> Any:
    """Build the network of that name without weights."""
    load_torchvision()
    import diffusers

    torch, format = load_torch(), FORMATS[name]

    class Denoiser(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = NETWORKS[name](diffusers)

        def forward(self, pictures: Any) -> Any:
            latents = format.latents(pictures, pictures.shape[0])
            if name.endswith("vae_decoder"):
                return self.network._decode(latents, return_dict=False)[0]
            return self.network(**INPUTS[name](torch, latents), return_dict=False)[0]

    return Denoiser()


def _cogvideox(library: Any, layers: int, heads: int, rotary: bool) -> Any:
    return library.CogVideoXTransformer3DModel(
        num_layers=layers, num_attention_heads=heads, use_rotary_positional_embeddings=rotary
    )


def _cogvideox_autoencoder(library: Any) -> Any:
    """Return CogVideoX's autoencoder; its convolutions are split above 2 GB of input only, which the tracer's batch has."""
    blocks = import_module("diffusers.models.autoencoders.autoencoder_kl_cogvideox")
    blocks.CogVideoXSafeConv3d.forward = load_torch().nn.Conv3d.forward
    return library.AutoencoderKLCogVideoX()


def _wan_autoencoder(library: Any) -> Any:
    """Return the autoencoder of Wan 2.2 5B, which shrinks pictures to a sixteenth (vae/config.json of its repository)."""
    return library.AutoencoderKLWan(
        base_dim=160, decoder_base_dim=256, z_dim=48, in_channels=12, out_channels=12, is_residual=True, patch_size=2,
        scale_factor_spatial=16, latents_mean=[0.0] * 48, latents_std=[1.0] * 48,
    )  # fmt: skip


NETWORKS = {
    "wan21_1_3b_transformer": lambda library: library.WanTransformer3DModel(num_layers=30, num_attention_heads=12, ffn_dim=8960),
    "wan_14b_transformer": lambda library: library.WanTransformer3DModel(),
    "wan_vae_decoder": lambda library: library.AutoencoderKLWan(),
    "wan22_5b_transformer": lambda library: library.WanTransformer3DModel(
        num_layers=30, num_attention_heads=24, ffn_dim=14336, in_channels=48, out_channels=48
    ),
    "wan22_vae_decoder": _wan_autoencoder,
    "ltx_video_transformer": lambda library: library.LTXVideoTransformer3DModel(),
    "ltx_video_vae_decoder": lambda library: library.AutoencoderKLLTXVideo(),
    "cogvideox_2b_transformer": lambda library: _cogvideox(library, 30, 30, False),
    "cogvideox_5b_transformer": lambda library: _cogvideox(library, 42, 48, True),
    "cogvideox_vae_decoder": lambda library: _cogvideox_autoencoder(library),
    "hunyuan_video_transformer": lambda library: library.HunyuanVideoTransformer3DModel(),
    "hunyuan_video_vae_decoder": lambda library: library.AutoencoderKLHunyuanVideo(),
}


def _wan(torch: Any, latents: Any) -> dict[str, Any]:
    batch = latents.shape[0]
    return {
        "hidden_states": latents,
        "timestep": latents.new_zeros(batch, dtype=torch.int64),
        "encoder_hidden_states": latents.new_zeros(batch, 512, 4096),
    }


def _wan_5b(torch: Any, latents: Any) -> dict[str, Any]:
    """Inputs of Wan 2.2 5B: its pipeline gives every token a time step of its own (`expand_timesteps`)."""
    batch, _, frames, height, width = latents.shape
    steps = latents.new_zeros(batch, frames * (height // 2) * (width // 2), dtype=torch.int64)
    return {**_wan(torch, latents), "timestep": steps}


def _ltx(torch: Any, latents: Any) -> dict[str, Any]:
    batch, channels, frames, height, width = latents.shape
    return {
        "hidden_states": latents.new_zeros(batch, frames * height * width, channels),
        "encoder_hidden_states": latents.new_zeros(batch, 128, 4096),
        "timestep": latents.new_zeros(batch, dtype=torch.int64),
        "encoder_attention_mask": latents.new_zeros(batch, 128),
        "num_frames": frames,
        "height": height,
        "width": width,
    }


def _cogvideox_inputs(rotary: bool) -> Any:
    def make(torch: Any, latents: Any) -> dict[str, Any]:
        batch, channels, frames, height, width = latents.shape
        inputs = {
            "hidden_states": latents.new_zeros(batch, frames, channels, height, width),
            "encoder_hidden_states": latents.new_zeros(batch, 226, 4096),
            "timestep": latents.new_zeros(batch, dtype=torch.int64),
        }
        if rotary:
            angles = latents.new_zeros(frames * (height // 2) * (width // 2), 64, dtype=torch.float32)
            inputs["image_rotary_emb"] = angles, angles
        return inputs

    return make


def _hunyuan(torch: Any, latents: Any) -> dict[str, Any]:
    batch = latents.shape[0]
    return {
        "hidden_states": latents,
        "timestep": latents.new_zeros(batch, dtype=torch.int64),
        "encoder_hidden_states": latents.new_zeros(batch, 256, 4096),
        "encoder_attention_mask": latents.new_zeros(batch, 256, dtype=torch.bool),
        "pooled_projections": latents.new_zeros(batch, 768),
        "guidance": latents.new_zeros(batch),
    }


INPUTS = {
    "wan21_1_3b_transformer": _wan,
    "wan_14b_transformer": _wan,
    "wan22_5b_transformer": _wan_5b,
    "ltx_video_transformer": _ltx,
    "cogvideox_2b_transformer": _cogvideox_inputs(False),
    "cogvideox_5b_transformer": _cogvideox_inputs(True),
    "hunyuan_video_transformer": _hunyuan,
}
