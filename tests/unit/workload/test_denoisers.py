"""Diffusion models: a batch is of whole pictures, a forward pass is one denoising step, and no requests a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import whichgpu
from tests.surface.cli import call
from whichgpu.base.errors import UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.workload.denoisers import adapter_parameters, denoiser
from whichgpu.workload.hf.pipelines import TEXT_ENCODERS
from whichgpu.workload.models import find_model
from whichgpu.workload.parameters import count_parameters

DAY = "2026-11-15"
UNET, TRANSFORMER = "stable-diffusion-xl", "flux.1-dev"


def ids(messages: Any) -> set[str]:
    return {one.id for one in messages}


def test_every_diffusion_model_of_the_catalog_is_marked_and_no_other_is(catalog: Catalog) -> None:
    marked = {model.id: denoiser(find_model(model.id, catalog)) for model in catalog.models}
    for model in catalog.models:
        assert bool(marked[model.id]) == (model.kind == "diffusion"), model.id
    assert (marked[UNET], marked[TRANSFORMER]) == ("unet", "transformer")
    assert marked["unet"] == ""  # it segments images


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: whichgpu.recommend("serve", model, as_of=DAY),
        lambda model: whichgpu.recommend("serve", model, as_of=DAY, buy=True, budget="1000usd"),
        lambda model: whichgpu.recommend("serve", model, as_of=DAY, batch=2),
        lambda model: whichgpu.estimate("serve", model, gpu="L4", rate="1/s"),
        lambda model: whichgpu.estimate("serve", model, gpu="L4"),
        lambda model: whichgpu.fit(model, gpu="L4", rate="1/s"),
        lambda model: whichgpu.plan(model, rate="2/s"),
    ],
)
@pytest.mark.parametrize("model", [UNET, TRANSFORMER])
def test_requests_per_second_are_refused_with_a_hint(ask: Callable[[str], object], model: str) -> None:
    with pytest.raises(UsageError) as refused:
        ask(model)
    assert refused.value.kind == "pictures-served"
    assert refused.value.hint is not None
    assert refused.value.hint.values["model"] == model


def test_the_refusal_names_tasks_that_work_and_no_flags() -> None:
    reply = call("recommend", "serve", UNET, "--buy", "--budget", "1000usd", "--as-of", DAY)
    assert reply.code == 2
    assert "makes pictures" in reply.err
    assert f"estimate {UNET} with the task batch (pictures) or forward (one denoising step)" in reply.err
    for task in ("forward", "batch"):
        assert call("estimate", task, UNET, "--batch", "2", "--gpu", "L4").code == 0
    with pytest.raises(UsageError) as refused:
        whichgpu.estimate("serve", UNET, gpu="L4")
    assert "--" not in str(refused.value.hint)


def test_a_comparison_of_served_requests_is_refused_too() -> None:
    compared = call("compare", "L4", "T4", "--task", "serve", "--model", UNET)
    assert "denoising steps/s" not in compared.out
    assert "serving them at a rate of requests is not modelled" in compared.err


@pytest.mark.parametrize("kind", ["nonsense", "UNet", 5, ["unet"], {"kind": "unet"}])
def test_an_unknown_denoiser_in_a_config_is_refused(kind: object) -> None:
    config = {"model_type": "traced", "table": "resnet50", "image": 224, "denoiser": kind}
    with pytest.raises(UsageError) as refused:
        whichgpu.estimate("forward", config, gpu="L4")
    assert "denoiser" in str(refused.value)
    assert "none of unet, transformer" in str(refused.value)


@pytest.mark.parametrize(("model", "noun"), [(UNET, "the UNet"), (TRANSFORMER, "the denoising transformer")])
def test_a_forward_pass_is_one_denoising_step(model: str, noun: str) -> None:
    reply = call("estimate", "forward", model, "--gpu", "A100 SXM 80GB")
    assert f"one denoising step of {noun} alone takes" in reply.err
    assert f"only one denoising step of {noun} is modelled" in reply.err
    assert "samples/s" not in reply.out + reply.err
    answer = whichgpu.estimate("forward", model, gpu="A100 SXM 80GB")
    assert answer.throughput is not None
    assert answer.throughput.unit == "denoising steps/s"


@pytest.mark.parametrize("model", ["sd1.5", UNET, "sd3", TRANSFORMER])
def test_a_batch_is_of_whole_pictures(model: str) -> None:
    reply = call("estimate", "batch", model, "--gpu", "A100 SXM 80GB")
    assert "one picture takes" in reply.err
    assert "alone" not in reply.err
    picture = whichgpu.estimate("batch", model, gpu="A100 SXM 80GB")
    passes = 2 if picture.request["guidance"] else 1
    step = whichgpu.estimate("forward", model, gpu="A100 SXM 80GB", batch=passes)
    assert picture.time is not None
    assert step.time is not None
    assert picture.throughput is not None
    assert picture.throughput.unit == "pictures/s"
    assert picture.throughput.value == pytest.approx(1 / picture.time.value)
    assert 1.0 < picture.time.value / (step.time.value * picture.request["denoising_steps"]) < 1.5
    for part in ("text_encoders", "vae"):
        assert picture.memory_parts[part].value > 0
    assert picture.memory.value > step.memory.value + picture.memory_parts["text_encoders"].value


def test_steps_and_guidance_multiply_the_time() -> None:
    def seconds(**fields: Any) -> float:
        answer = whichgpu.estimate("batch", UNET, gpu="A100 SXM 80GB", batch=2, **fields)
        assert answer.time is not None
        return answer.time.value

    usual, half, unguided = seconds(), seconds(denoising_steps=25), seconds(guidance=False)
    assert seconds(denoising_steps=50, guidance=True) == usual
    assert 0.5 < half / usual < 0.6
    assert 0.45 < unguided / usual < 0.75


def test_fields_of_pictures_have_no_effect_on_other_models() -> None:
    answer = whichgpu.estimate("batch", "resnet50", gpu="L4", denoising_steps=20)
    assert "warning.unused-model" in ids(answer.warnings)
    step = whichgpu.estimate("forward", UNET, gpu="L4", denoising_steps=20)
    assert "warning.unused-task" in ids(step.warnings)


def test_the_vae_of_sdxl_is_decoded_in_fp32_if_the_rest_is_fp16() -> None:
    vae = {precision: whichgpu.fit(UNET, precision=precision).memory_parts["vae"].value for precision in ("fp16", "bf16")}
    assert vae["fp16"] == 2 * vae["bf16"] == 4 * 83_653_863


def test_text_encoders_have_their_published_parameters() -> None:
    counts = {name: count_parameters(shape).total for name, shape in TEXT_ENCODERS.items()}
    assert counts["clip-l"] == 123_060_480
    assert counts["clip-h"] == 340_387_840
    assert counts["clip-bigg"] == 694_659_840
    assert counts["t5-xxl"] == 4_762_310_656
    assert counts["umt5-xxl"] == 5_680_910_336
    assert counts["gemma-2-2b"] == 2_614_341_888
    assert counts["llama-3-8b"] == 8_030_261_248 - 128_256 * 4096 + 64 * 4096  # without its head, with 64 tokens more
    assert counts["qwen2.5-vl-7b"] == 8_292_166_656


# Steps, guidance and size of the published pipelines; parameters of the whole VAE, encoder and decoder.
PUBLISHED = {
    "stable-diffusion-3.5-medium": (40, True, 1024, 83_819_683),
    "stable-diffusion-3.5-large": (28, True, 1024, 83_819_683),
    "flux.1-schnell": (4, False, 1024, 83_819_683),
    "pixart-sigma": (20, True, 1024, 83_653_863),
    "sana-1.6b": (20, True, 1024, 312_250_275),
    "qwen-image": (50, True, 1024, 126_892_531),
    "wan2.1-1.3b": (50, True, 480, 126_892_531),
    "wan2.2-a14b": (40, True, 480, 126_892_531),
    "wan2.2-5b": (50, True, 704, 704_688_668),
    "ltx-video": (50, True, 512, 419_193_649),
    "cogvideox-5b": (50, True, 480, 215_583_907),
    "hunyuanvideo": (50, False, 720, 246_478_803),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_picture_or_video_is_made_as_its_published_pipeline_makes_it(model: str) -> None:
    steps, guidance, image, vae = PUBLISHED[model]
    answer = whichgpu.estimate("batch", model, gpu="A100 SXM 80GB", precision="bf16")
    request = answer.request
    assert (request["denoising_steps"], request["guidance"], request["image"]) == (steps, guidance, image)
    assert answer.memory_parts["vae"].value == 2 * vae


def test_offloaded_parts_need_the_memory_of_the_largest_and_the_time_of_copies() -> None:
    whole, parts = (whichgpu.estimate("batch", "sd3.5", gpu="A100 SXM 80GB", offload=offload) for offload in (None, "parts"))
    assert whole.memory_parts.keys() >= {"weights", "text_encoders", "vae"}
    assert not {"text_encoders", "vae"} & parts.memory_parts.keys()
    assert parts.memory_parts["weights"].value == whole.memory_parts["weights"].value
    assert "note.offload-parts" in ids(parts.warnings)
    assert whole.time is not None
    assert parts.time is not None
    # 8.06 + 5.58 + 0.08 billion parameters of two bytes over PCIe 4.0, of 32 GB/s at most.
    copied = 2 * (8_056_627_520 + 123_060_480 + 694_659_840 + 4_762_310_656 + 83_819_683)
    assert copied / 32e9 < parts.time.value - whole.time.value < copied / 12e9


def test_offload_is_proposed_or_chosen_if_a_picture_model_does_not_fit() -> None:
    small = whichgpu.fit("sd3.5", gpu="RTX 4090", precision="bf16")
    assert [one.change for one in small.gpus[0].remedies if one.id == "offload"] == [{"offload": "parts"}]
    chosen = whichgpu.estimate("batch", "sd3.5", gpu="RTX 4090", precision="bf16", offload="auto")
    assert chosen.request["offload"] == "parts"
    assert whichgpu.estimate("batch", "sdxl", gpu="RTX 4090", offload="auto").request["offload"] is None


@pytest.mark.parametrize("task", ["batch", "images"])
def test_a_recommendation_counts_pictures(task: str) -> None:
    reply = call("recommend", task, UNET, "--buy", "--budget", "1000usd", "--as-of", DAY)
    text = reply.out + reply.err
    assert "a thousand pictures" in text
    for word in ("an answer", "requests/s", "samples/s", "thousand samples", "steps/s"):
        assert word not in text
    answer = whichgpu.recommend(task, UNET, as_of=DAY)
    assert answer.answer.throughput.unit == "pictures/s"
    assert "note.pictures-guided" in ids(answer.warnings)


def test_fit_counts_all_parts_and_compare_counts_steps() -> None:
    fit = whichgpu.fit(UNET, gpu="L4")
    assert "note.pictures-guided" in ids(fit.warnings)
    assert fit.memory_parts["text_encoders"].value == 2 * (123_060_480 + 694_659_840)
    assert "note.pictures" in ids(whichgpu.fit(TRANSFORMER, gpu="L4").warnings)
    compared = call("compare", "L4", "T4", "--task", "forward", "--model", UNET)
    assert "denoising steps/s" in compared.out
    assert "only one denoising step of the UNet is modelled" in compared.err
    assert whichgpu.models(UNET).models[0].denoiser == "unet"
    assert whichgpu.models("resnet50").models[0].denoiser is None


@pytest.mark.parametrize("pipeline", [5, {}, {"text_encoders": {"nonsense": 7}, "vae_decoder": "kl_vae_decoder"}])
def test_an_invalid_pipeline_in_a_config_is_refused(pipeline: object) -> None:
    config = {"model_type": "traced", "table": "sd15_unet", "image": 512, "denoiser": "unet", "pipeline": pipeline}
    with pytest.raises(UsageError) as refused:
        whichgpu.estimate("batch", config, gpu="L4")
    assert "pipeline" in str(refused.value)


def test_training_is_of_the_unet_alone_and_of_samples() -> None:
    answer = whichgpu.estimate("train", UNET, gpu="A100 SXM 80GB")
    assert answer.throughput is not None
    assert answer.throughput.unit == "samples/s"
    assert "note.denoiser-unet-train" in ids(answer.warnings)


def test_other_models_are_counted_as_before() -> None:
    answer = whichgpu.estimate("forward", "resnet50", gpu="L4")
    assert answer.throughput is not None
    assert answer.throughput.unit == "samples/s"
    assert not [one for one in answer.warnings if one.id.startswith("note.denoiser")]


@pytest.mark.parametrize(
    ("model", "frames"), [("wan2.1-1.3b", 81), ("ltx-video", 161), ("cogvideox-5b", 49), ("hunyuanvideo", 129)]
)
def test_a_video_has_the_frames_of_its_published_pipeline(model: str, frames: int) -> None:
    reply = call("estimate", "batch", model, "--gpu", "H100 SXM")
    assert "one video takes" in reply.err
    assert f"a video of {frames} frames" in reply.err
    answer = whichgpu.estimate("batch", model, gpu="H100 SXM")
    assert answer.throughput is not None
    assert (answer.request["frames"], answer.throughput.unit) == (frames, "videos/s")


def test_more_frames_take_more_time_than_in_proportion() -> None:
    short, usual = (whichgpu.estimate("batch", "wan2.1-14b", gpu="H100 SXM", frames=frames) for frames in (41, 81))
    assert short.time is not None
    assert usual.time is not None
    # 11 and 21 latent frames: in proportion, at least, and at most with the square.
    assert 21 / 11 < usual.time.value / short.time.value < (21 / 11) ** 2


def test_more_frames_need_more_memory_if_the_video_is_decoded_at_once() -> None:
    short, usual = (whichgpu.fit("ltx-video", frames=frames).memory_parts["temporary"].value for frames in (81, 161))
    assert usual / short == pytest.approx(21 / 11, rel=0.02)  # latent frames


def test_frames_have_no_effect_on_pictures() -> None:
    answer = whichgpu.estimate("batch", UNET, gpu="L4", frames=81)
    assert "warning.unused-model" in ids(answer.warnings)


def test_two_denoisers_are_loaded_and_one_runs() -> None:
    one, two = (whichgpu.estimate("batch", model, gpu="H200 SXM", denoising_steps=40) for model in ("wan2.1-14b", "wan2.2-a14b"))
    assert two.memory_parts["weights"].value == 2 * one.memory_parts["weights"].value
    assert one.time == two.time
    offloaded = whichgpu.estimate("batch", "wan2.2-a14b", gpu="H200 SXM", offload="parts")
    assert offloaded.memory_parts["weights"].value == one.memory_parts["weights"].value


def test_guidance_in_turn_doubles_the_time_and_not_the_memory() -> None:
    guided, plain = (whichgpu.estimate("batch", "qwen-image", gpu="H200 SXM", guidance=guidance) for guidance in (True, False))
    assert guided.memory.value == plain.memory.value
    assert guided.time is not None
    assert plain.time is not None
    assert 1.9 < guided.time.value / plain.time.value < 2.0


def test_a_recommendation_counts_videos() -> None:
    reply = call("recommend", "images", "wan2.1-1.3b", "--as-of", DAY)
    assert "a thousand videos" in reply.out + reply.err
    assert " a video on each GPU (" in reply.out + reply.err
    assert "picture" not in reply.out


def test_gguf_types_shrink_the_denoiser_and_cost_the_time_of_dequantising() -> None:
    plain, narrow = (whichgpu.estimate("batch", TRANSFORMER, gpu="A40", precision=precision) for precision in ("bf16", "q4_k_s"))
    weights = 11_901_408_320
    assert narrow.memory_parts["weights"].value == pytest.approx(0.571 * weights, rel=0.01)  # 4.5 bits, and some in 16 bits
    assert narrow.memory_parts["text_encoders"] == plain.memory_parts["text_encoders"]
    assert plain.time is not None
    assert narrow.time is not None
    moved = 28 * 15.5 * weights / 696e9  # seconds at the A40's bandwidth: bytes of the kernels of all steps
    assert moved < narrow.time.value - plain.time.value < 2 * moved
    with pytest.raises(UsageError, match="GGUF type"):
        whichgpu.estimate("finetune", TRANSFORMER, gpu="A40", precision="q4_k_s")


# Steps of diffusers 0.42.1 on an H200 (torch 2.11, 2026-11-17): frozen bf16 weights, adapters of rank 16 on all linear layers,
# fused AdamW; seconds and bytes allocated at the peak.
@pytest.mark.parametrize(
    ("model", "batch", "seconds", "allocated"),
    [
        ("stable-diffusion-1.5", 1, 0.139, 2_807_067_136),
        ("stable-diffusion-1.5", 4, 0.163, 5_669_154_816),
        ("stable-diffusion-xl", 1, 0.425, 12_500_868_608),
        ("stable-diffusion-xl", 4, 0.473, 33_281_690_624),
    ],
)
def test_lora_steps_of_unets_are_as_measured(model: str, batch: int, seconds: float, allocated: int) -> None:
    answer = whichgpu.estimate("finetune", model, gpu="H200 SXM", batch=batch, micro_batch=batch, lora=True)
    parts = {name: part.value for name, part in answer.memory_parts.items() if name not in ("context", "slack")}
    assert sum(parts.values()) == pytest.approx(allocated, rel=0.01)
    assert answer.time is not None
    assert answer.time.low <= seconds <= answer.time.high


def test_adapters_are_counted_on_all_linear_layers_and_qlora_shrinks_the_frozen_weights() -> None:
    assert adapter_parameters("sdxl_unet", 1024, 16) == 43_298_816  # 743 layers, counted by the class of diffusers
    lora = whichgpu.fit(TRANSFORMER, task="finetune", lora=True)
    qlora = whichgpu.fit(TRANSFORMER, task="finetune", qlora=True)
    assert qlora.memory_parts["weights"].value < 0.3 * lora.memory_parts["weights"].value
    with pytest.raises(UsageError, match="neither a transformer nor a diffusion model"):
        whichgpu.estimate("finetune", "resnet50", gpu="H200 SXM", lora=True)
