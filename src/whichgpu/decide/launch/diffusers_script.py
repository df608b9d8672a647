"""Python script that makes pictures or videos with diffusers, one process per GPU, each with its share of the prompts."""

from __future__ import annotations

import json
from typing import Any

import msgspec

RELEASE = "diffusers 0.42"  # whose documented classes and arguments are written
SCRIPT, OUTPUT = "generate.py", "output"  # the script and the folder it writes to
PROMPTS = "prompts.txt"  # has a prompt on each line
EXAMPLE_PROMPT = "a photo of a lighthouse at dawn"
PACKAGES = ("diffusers>=0.42", "transformers", "accelerate", "sentencepiece", "ftfy")
VIDEO_PACKAGES = ("imageio", "imageio-ffmpeg")
DTYPES = {"fp32": "float32", "fp32-default": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
# Quantised weights of the denoiser: class of diffusers, import, config and package, by precision
# (https://huggingface.co/docs/diffusers/quantization/overview).
QUANTISED = {
    "int4": (
        "BitsAndBytesConfig",
        "",
        'BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)',
        "bitsandbytes",
    ),
    "int8": (
        "TorchAoConfig",
        "from torchao.quantization import Int8DynamicActivationInt8WeightConfig\n",
        "TorchAoConfig(Int8DynamicActivationInt8WeightConfig())",
        "torchao",
    ),
    "fp8": (
        "TorchAoConfig",
        "from torchao.quantization import Float8DynamicActivationFloat8WeightConfig\n",
        "TorchAoConfig(Float8DynamicActivationFloat8WeightConfig())",
        "torchao",
    ),
}
PRECISIONS = (*DTYPES, *QUANTISED)
# Repositories that have files in fp16, a variant, beside those in fp32.
FP16_FILES = ("stable-diffusion-v1-5/stable-diffusion-v1-5", "stabilityai/stable-diffusion-xl-base-1.0")
# What PyTorch computes in fp32 matrices with: its default is TF32 in convolutions only.
TF32_SETTINGS = {
    "fp32": "torch.backends.cudnn.allow_tf32 = False\n",
    "tf32": "torch.backends.cuda.matmul.allow_tf32 = True\n",
}


class PipelineClass(msgspec.Struct, frozen=True):
    """A pipeline of diffusers: its class, the argument that sets guidance with its usual scale, and the format of its videos."""

    name: str
    scale: float
    argument: str = "guidance_scale"
    denoisers: tuple[str, ...] = ("transformer",)
    aspect: float = 1.0  # width divided by height
    multiple: int = 16  # of pixels, that a width must be
    frame_rate: int = 0  # frames a second; 0 for pictures
    is_bf16: bool = False  # made for bf16: fp16 may overflow


NEGATIVE_PROMPT = "true_cfg_scale"  # argument that guides only together with a negative prompt
_WAN = PipelineClass("WanPipeline", 5.0, aspect=832 / 480, frame_rate=16, is_bf16=True)
_COGVIDEOX = PipelineClass("CogVideoXPipeline", 6.0, aspect=720 / 480, frame_rate=8)
_SD = PipelineClass("StableDiffusionPipeline", 7.5, denoisers=("unet",))
_SD3 = PipelineClass("StableDiffusion3Pipeline", 7.0)
_SD35 = msgspec.structs.replace(_SD3, scale=4.5, is_bf16=True)
_FLUX = PipelineClass("FluxPipeline", 4.0, NEGATIVE_PROMPT, is_bf16=True)
# By the table of a denoiser's operators; scales and formats are those of the pipelines' documentation and model cards.
PIPELINES = {
    "sd15_unet": _SD,
    "sd2_unet": _SD,
    "sdxl_unet": PipelineClass("StableDiffusionXLPipeline", 5.0, denoisers=("unet",)),
    "sd3_transformer": _SD3,
    "sd35_medium_transformer": _SD35,
    "sd35_large_transformer": _SD35,
    "flux_transformer": _FLUX,
    "flux_schnell_transformer": _FLUX,
    "pixart_transformer": PipelineClass("PixArtSigmaPipeline", 4.5),
    "sana_transformer": PipelineClass("SanaPipeline", 4.5, is_bf16=True),
    "qwen_image_transformer": PipelineClass("QwenImagePipeline", 4.0, NEGATIVE_PROMPT, is_bf16=True),
    "wan21_1_3b_transformer": _WAN,
    "wan_14b_transformer": _WAN,
    "wan22_5b_transformer": PipelineClass("WanPipeline", 5.0, aspect=1280 / 704, multiple=32, frame_rate=24, is_bf16=True),
    "ltx_video_transformer": PipelineClass("LTXPipeline", 3.0, aspect=704 / 512, multiple=32, frame_rate=24, is_bf16=True),
    "cogvideox_2b_transformer": _COGVIDEOX,
    "cogvideox_5b_transformer": msgspec.structs.replace(_COGVIDEOX, is_bf16=True),
    "hunyuan_video_transformer": PipelineClass(
        "HunyuanVideoPipeline", 4.0, NEGATIVE_PROMPT, aspect=16 / 9, frame_rate=24, is_bf16=True
    ),
}


class Pictures(msgspec.Struct, frozen=True):
    """Pictures or videos to make: model, precision, size, steps and how many at once on each GPU."""

    model: str
    table: str  # of the denoiser's operators
    precision: str
    batch: int  # at once on each GPU
    side: int  # pixels; the height of a video
    steps: int
    is_guided: bool
    frames: int = 0
    denoisers: int = 1
    is_offloaded: bool = False  # parts that do not run are in host memory
    is_compiled: bool = False
    is_channels_last: bool = False


def install_line(pictures: Pictures) -> str:
    """Return the shell line that installs what the script needs beside PyTorch."""
    packages = [*PACKAGES, *(VIDEO_PACKAGES if pictures.frames else ())]
    packages += [QUANTISED[pictures.precision][-1]] if pictures.precision in QUANTISED else []
    return "pip install " + " ".join(f'"{one}"' if ">" in one else one for one in packages)


def call_arguments(pictures: Pictures) -> dict[str, Any]:
    """Return the arguments of the pipeline's call beside the prompts."""
    pipeline = PIPELINES[pictures.table]
    width = round(pictures.side * pipeline.aspect / pipeline.multiple) * pipeline.multiple if pictures.frames else pictures.side
    arguments: dict[str, Any] = {"height": pictures.side, "width": width, "num_inference_steps": pictures.steps}
    if pictures.frames:
        arguments["num_frames"] = pictures.frames
    if pipeline.argument != NEGATIVE_PROMPT:
        arguments[pipeline.argument] = pipeline.scale if pictures.is_guided else 1.0  # A scale of 1 is no guidance.
    elif pictures.is_guided:
        arguments[pipeline.argument] = pipeline.scale
    return arguments


def generate_script(pictures: Pictures) -> str:
    """Return the script; it reads a prompt from each line of a file if there is one, and writes a file for each."""
    pipeline = PIPELINES[pictures.table]
    others = range(2, pictures.denoisers + 1)
    denoisers = [name for first in pipeline.denoisers for name in (first, *(f"{first}_{number}" for number in others))]
    imports, loading = _loading(pictures, pipeline.name, denoisers)
    save = 'made.save(FOLDER / f"{number:05}.png")'
    if pictures.frames:
        save = f'export_to_video(made, str(FOLDER / f"{{number:05}}.mp4"), fps={pipeline.frame_rate})'
    return f"""# Classes and arguments: as documented for {RELEASE}.
import os
from pathlib import Path

import torch
{imports}
MODEL = os.environ.get("MODEL", {json.dumps(pictures.model)})  # a repository of the Hugging Face hub, or a folder
PROMPTS = Path("{PROMPTS}")  # a prompt on each line
FOLDER = Path("{OUTPUT}")
BATCH = {pictures.batch}  # at once on each GPU
RANK, RANKS, GPU = (int(os.environ.get(name, usual)) for name, usual in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))

if torch.cuda.is_available():
    torch.cuda.set_device(GPU)
{TF32_SETTINGS.get(pictures.precision, "")}pipeline = {pipeline.name}.from_pretrained(
    MODEL,
{loading})
{_device_lines(pictures, denoisers)}

FOLDER.mkdir(exist_ok=True)
prompts = PROMPTS.read_text(encoding="utf-8").splitlines() if PROMPTS.exists() else ["{EXAMPLE_PROMPT}"]
own = list(enumerate(prompts))[RANK::RANKS]
for first in range(0, len(own), BATCH):
    part = own[first : first + BATCH]
    result = pipeline(
        prompt=[prompt for _, prompt in part],
{_call_lines(pictures)}    )
    for (number, _), made in zip(part, result.{"frames" if pictures.frames else "images"}):
        {save}
"""


def loaded_precision(table: str, precision: str, has_bf16: bool) -> str:
    """Return the precision that a model is loaded in: bf16 in place of fp16 if it is made for it and the GPU has it."""
    return "bf16" if precision == "fp16" and has_bf16 and table in PIPELINES and PIPELINES[table].is_bf16 else precision


def has_fp16_files(pictures: Pictures) -> bool:
    """Whether a repository's files in fp16 are downloaded rather than its main files, which may be in fp32."""
    return pictures.precision in ("fp16", "bf16") and pictures.model in FP16_FILES


def _call_lines(pictures: Pictures) -> str:
    """Return the arguments of the pipeline's call, one on each line."""
    arguments = call_arguments(pictures)
    lines = [f"{name}={value}" for name, value in arguments.items()]
    lines += ['negative_prompt=[" "] * len(part)'] if NEGATIVE_PROMPT in arguments else []
    return "".join(f"        {line},\n" for line in lines)


def _loading(pictures: Pictures, pipeline: str, denoisers: list[str]) -> tuple[str, str]:
    """Return the imports, and the arguments that load the weights in their precision, one on each line."""
    videos = "from diffusers.utils import export_to_video\n" if pictures.frames else ""
    if pictures.precision not in QUANTISED:
        dtype = f"    torch_dtype=torch.{DTYPES[pictures.precision]},\n"
        dtype += '    variant=None if "MODEL" in os.environ else "fp16",\n' if has_fp16_files(pictures) else ""
        return f"from diffusers import {pipeline}\n{videos}", dtype
    name, others, config, _ = QUANTISED[pictures.precision]
    names = ", ".join(sorted((name, pipeline, "PipelineQuantizationConfig")))
    mapping = "".join(f'        "{one}": {config},\n' for one in denoisers)
    quantised = f"    quantization_config=PipelineQuantizationConfig(quant_mapping={{\n{mapping}    }}),\n"
    return f"from diffusers import {names}\n{videos}{others}", f"    torch_dtype=torch.bfloat16,\n{quantised}"


def _device_lines(pictures: Pictures, denoisers: list[str]) -> str:
    """Return the lines that put the weights on the GPU, or each part when it runs, in the memory format, and compile."""
    lines = ['pipeline.to(f"cuda:{GPU}" if torch.cuda.is_available() else "cpu")']
    if pictures.is_offloaded:
        lines = ["pipeline.enable_model_cpu_offload(gpu_id=GPU)"]
    for name in denoisers:
        lines += [f"pipeline.{name}.to(memory_format=torch.channels_last)"] if pictures.is_channels_last else []
        lines += [f"pipeline.{name}.compile()"] if pictures.is_compiled else []
    return "\n".join(lines)
