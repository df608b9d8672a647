"""Scripts that make pictures and videos: every diffusion model has one, with the size, steps and guidance of the estimate."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.decide.launch.diffusers_script import (
    PIPELINES,
    PRECISIONS,
    Pictures,
    call_arguments,
    generate_script,
    install_line,
    loaded_precision,
)
from whichgpu.decide.launch.models import repository_of
from whichgpu.decide.launch.picture_targets import PICTURE_TARGETS, PicturePlan, picture_files
from whichgpu.decide.launch.placement import Placement
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import TracedShape

MODELS = tuple(row.id for row in Catalog().models if row.kind == "diffusion")
SDXL = Pictures("stabilityai/stable-diffusion-xl-base-1.0", "sdxl_unet", "fp16", 2, 1024, 30, True)
WAN = Pictures("Wan-AI/Wan2.2-T2V-A14B-Diffusers", "wan_14b_transformer", "bf16", 1, 480, 40, True, frames=81, denoisers=2)
PLACE = Placement("l4", "nvidia", 1, 4, "gcp", "g2-standard-48", "us-central1", False)
PLAN = PicturePlan("sdxl-l4", SDXL, PLACE, "an/image", header=("Estimate: 1 s.",))


def keywords(script: str) -> dict[str, Any]:
    """Arguments of the pipeline's call."""
    [call] = [one for one in ast.walk(ast.parse(script)) if isinstance(one, ast.Call) and ast.unparse(one.func) == "pipeline"]
    return {one.arg: ast.unparse(one.value) for one in call.keywords if one.arg}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            "kubernetes",
            ("prompts.txt: |", "a photo of a lighthouse at dawn", '"mountPath": "/workspace/prompts.txt"', "in the ConfigMap"),
        ),
        ("skypilot", ('~/sky_workdir/prompts.txt: "./prompts.txt"', "HF_TOKEN")),
        ("dstack", ('files: ["prompts.txt"]', "HF_TOKEN")),
        ("docker", ("[ -e prompts.txt ] || cat > prompts.txt", "HF_TOKEN")),
        ("slurm", ("[ -e prompts.txt ] || cat > prompts.txt", "HF_TOKEN")),
    ],
)
def test_prompts_are_delivered_to_the_job(target: str, words: tuple[str, ...]) -> None:
    (content,) = picture_files(target, PLAN).values()
    assert all(word in content for word in words), content


@pytest.mark.parametrize("model", MODELS)
def test_every_diffusion_model_has_a_pipeline_and_a_repository(model: str) -> None:
    shape = find_model(model, Catalog(), None)
    assert isinstance(shape, TracedShape)
    assert shape.pipeline
    pipeline = PIPELINES[shape.table]
    assert pipeline.denoisers == (shape.denoiser,)
    assert bool(pipeline.frame_rate) == bool(shape.pipeline.frames)
    assert repository_of(model, Catalog()).count("/") == 1


@pytest.mark.parametrize("name", ["stable-diffusion-2-1", "stable-diffusion-2-base"])
def test_a_deleted_repository_is_loaded_from_its_mirror(name: str) -> None:
    assert repository_of(f"stabilityai/{name}", Catalog()) == repository_of(name, Catalog()) == f"sd2-community/{name}"


def test_the_call_has_the_size_steps_and_guidance_of_the_estimate() -> None:
    assert keywords(generate_script(SDXL)) == {
        "prompt": "[prompt for _, prompt in part]", "height": "1024", "width": "1024", "num_inference_steps": "30",
        "guidance_scale": "5.0",
    }  # fmt: skip
    assert call_arguments(replace(SDXL, is_guided=False))["guidance_scale"] == 1.0
    video = keywords(generate_script(WAN))
    assert (video["height"], video["width"], video["num_frames"]) == ("480", "832", "81")
    flux = replace(SDXL, table="flux_transformer", is_guided=False)
    assert not {"true_cfg_scale", "negative_prompt", "guidance_scale"} & keywords(generate_script(flux)).keys()
    assert {"true_cfg_scale", "negative_prompt"} <= keywords(generate_script(replace(flux, is_guided=True))).keys()


def test_precision_offloading_memory_format_and_compilation_are_written() -> None:
    assert 'torch_dtype=torch.float16,\n    variant=None if "MODEL" in os.environ else "fp16",' in generate_script(
        SDXL
    )  # Its other files are in fp32.
    assert "variant=" not in generate_script(replace(SDXL, precision="fp32"))
    assert loaded_precision("flux_transformer", "fp16", has_bf16=True) == "bf16"
    assert loaded_precision("flux_transformer", "fp16", has_bf16=False) == loaded_precision("sdxl_unet", "fp16", True) == "fp16"
    whole = replace(WAN, precision="fp8", is_offloaded=True, is_compiled=True)
    script = generate_script(whole)
    assert script.count("Float8DynamicActivationFloat8WeightConfig())") == 2  # one for each denoiser
    assert "pipeline.enable_model_cpu_offload(gpu_id=GPU)" in script
    assert "pipeline.to(" not in script
    assert "pipeline.transformer_2.compile()" in script
    assert "torchao" in install_line(whole)
    assert "imageio" not in install_line(SDXL)
    assert "pipeline.unet.to(memory_format=torch.channels_last)" in generate_script(replace(SDXL, is_channels_last=True))
    for precision in PRECISIONS:
        ast.parse(generate_script(replace(SDXL, precision=precision)))


@pytest.mark.parametrize("target", PICTURE_TARGETS)
def test_every_target_has_the_script_and_starts_a_process_on_each_gpu(target: str) -> None:
    texts = picture_files(target, PLAN) if target != "karpenter" else picture_files(target, replace(
        PLAN, place=replace(PLACE, provider="aws", instance="g6.12xlarge")))  # fmt: skip
    text = "\n".join(texts.values())
    assert "StableDiffusionXLPipeline.from_pretrained(" in text
    assert "torchrun --nnodes=1 --nproc-per-node=4 generate.py" in text
    assert "# Estimate: 1 s.\n" in text
    single = replace(PLAN, place=replace(PLACE, gpus_per_node=1))
    if target != "karpenter":
        assert "torchrun" not in "\n".join(picture_files(target, single).values())


def test_a_name_with_quotes_stays_a_name() -> None:
    hostile = replace(SDXL, model='a"); import os  # \n')
    script = generate_script(hostile)
    names = [one.value for one in ast.walk(ast.parse(script)) if isinstance(one, ast.Constant)]
    assert hostile.model in names


@pytest.mark.parametrize(("changes", "kind"), [({"precision": "q4_k_m"}, "emit-precision"), ({"table": "own"}, "emit-model")])
def test_what_diffusers_does_not_run_is_refused(changes: dict[str, Any], kind: str) -> None:
    with pytest.raises(UsageError) as refused:
        picture_files("docker", replace(PLAN, pictures=replace(SDXL, **changes)))
    assert refused.value.kind == kind
