"""Diffusion models: one denoising step of the denoiser alone, called so everywhere, and no requests a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import whichgpu
from tests.surface.cli import call
from whichgpu.base.errors import UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.workload.denoisers import denoiser
from whichgpu.workload.models import find_model

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
    assert refused.value.kind == "not-a-pipeline"
    assert refused.value.hint is not None
    assert refused.value.hint.values["model"] == model


def test_the_refusal_names_tasks_that_work_and_no_flags() -> None:
    reply = call("recommend", "serve", UNET, "--buy", "--budget", "1000usd", "--as-of", DAY)
    assert reply.code == 2
    assert "one denoising step of its UNet alone" in reply.err
    assert f"estimate {UNET} with the task forward or batch" in reply.err
    for task in ("forward", "batch"):
        assert call("estimate", task, UNET, "--batch", "2", "--gpu", "L4").code == 0
    with pytest.raises(UsageError) as refused:
        whichgpu.estimate("serve", UNET, gpu="L4")
    assert "--" not in str(refused.value.hint)


def test_a_comparison_of_served_requests_is_refused_too() -> None:
    compared = call("compare", "L4", "T4", "--task", "serve", "--model", UNET)
    assert "denoising steps/s" not in compared.out
    assert "requests a second, which are whole pictures, cannot be estimated" in compared.err


@pytest.mark.parametrize("kind", ["nonsense", "UNet", 5, ["unet"], {"kind": "unet"}])
def test_an_unknown_denoiser_in_a_config_is_refused(kind: object) -> None:
    config = {"model_type": "traced", "table": "resnet50", "image": 224, "denoiser": kind}
    with pytest.raises(UsageError) as refused:
        whichgpu.estimate("forward", config, gpu="L4")
    assert "denoiser" in str(refused.value)
    assert "none of unet, transformer" in str(refused.value)


@pytest.mark.parametrize(("model", "noun"), [(UNET, "the UNet"), (TRANSFORMER, "the denoising transformer")])
def test_an_estimate_is_of_one_denoising_step(model: str, noun: str) -> None:
    for task in ("forward", "batch"):
        reply = call("estimate", task, model, "--gpu", "A100 SXM 80GB")
        assert f"one denoising step of {noun} alone takes" in reply.err
        assert f"only one denoising step of {noun} is modelled" in reply.err
        assert "samples/s" not in reply.out + reply.err
    answer = whichgpu.estimate("forward", model, gpu="A100 SXM 80GB")
    assert answer.throughput is not None
    assert answer.throughput.unit == "denoising steps/s"


def test_a_recommendation_counts_denoising_steps() -> None:
    reply = call("recommend", "batch", UNET, "--buy", "--budget", "1000usd", "--as-of", DAY)
    text = reply.out + reply.err
    assert "Only denoising steps of the UNet are modelled, not whole pictures." in text
    assert "a thousand denoising steps" in text
    for word in ("an answer", "requests/s", "samples/s", "thousand samples"):
        assert word not in text
    answer = whichgpu.recommend("batch", UNET, as_of=DAY)
    assert answer.answer.throughput.unit == "denoising steps/s"
    assert "note.denoiser-unet" in ids(answer.warnings)


def test_fit_compare_and_models_note_the_denoiser_too() -> None:
    assert "note.denoiser-unet" in ids(whichgpu.fit(UNET, gpu="L4").warnings)
    assert "note.denoiser-transformer" in ids(whichgpu.fit(TRANSFORMER, gpu="L4").warnings)
    compared = call("compare", "L4", "T4", "--task", "forward", "--model", UNET)
    assert "denoising steps/s" in compared.out
    assert "only one denoising step of the UNet is modelled" in compared.err
    listed = call("models", UNET)
    assert "only one denoising step of the UNet is modelled" in listed.err
    assert whichgpu.models(UNET).models[0].denoiser == "unet"
    assert whichgpu.models("resnet50").models[0].denoiser is None


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
