"""Tasks and shapes; `embed` as a forward pass without an output head."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit import shapes
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.recommend.verification import verify_command
from whichgpu.api.workloads.estimate import resolve_workload
from whichgpu.decide.work import work_of
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.offline import SAMPLES, default_sequences
from whichgpu.estimate.time.time_estimate import work_per_step
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.shapes import Dlrm, Mlp, Patches, TracedShape, WeightsOnly, as_transformer
from whichgpu.workload.spelling import from_object
from whichgpu.workload.tasks import RUN_TASKS, TASK_TRAITS, TASKS, Task
from whichgpu.workload.workload import Workload


def those(question: str) -> tuple[str, ...]:
    return tuple(task for task, traits in TASK_TRAITS.items() if getattr(traits, question))


@pytest.mark.parametrize(
    ("question", "tasks"),
    [
        ("training", ("train", "finetune")),
        ("finetuning", ("finetune",)),
        ("serving", ("serve",)),
        ("offline", ("batch", "embed")),
        ("generating", ("serve", "batch")),
        ("decoding", ("serve", "batch", "decode")),
        ("caching", ("serve", "batch", "prefill", "decode")),
        ("ends", ("train", "finetune", "batch", "embed")),
    ],
)
def test_which_tasks(question: str, tasks: tuple[str, ...]) -> None:
    assert those(question) == tasks


def test_tasks_to_rent_gpus_for() -> None:
    assert RUN_TASKS == ("train", "finetune", "serve", "batch", "embed")
    assert set(RUN_TASKS) < set(TASKS)


def test_tasks_supported_by_shapes() -> None:
    def answers(shape: Any) -> tuple[bool, ...]:
        return shape.is_language_model, shape.is_generative, shape.has_kv_cache, shape.reads_images

    llama, bert = shapes.LLAMA_3_8B, shapes.BERT_LARGE
    assert answers(llama) == (True, True, True, False)
    assert answers(bert) == (True, False, False, False)
    assert answers(replace(bert, patches=Patches(224, 16))) == (False, False, False, True)
    assert answers(replace(bert, encoder_layers=6)) == (True, False, True, False)
    assert answers(TracedShape("", "resnet50", 224)) == (False, False, False, True)
    for plain in (Mlp("", (8, 4)), TracedShape("", "net", 0), WeightsOnly("", 8, 16), Dlrm("", 8, (4,), (2,), (1,))):
        assert answers(plain) == (False, False, False, False)


def workload_and_shape(task: Task, model: str) -> tuple[Workload, Any]:
    workload = Workload(task, model, batch=4, seq_in=256)
    shape = lookup_cache(own=False).shape_for(workload)
    return fill_defaults(workload, shape), shape


def test_embedding_computes_no_logits_and_holds_no_output_head() -> None:
    (embed, headless), (forward, whole) = (
        workload_and_shape("embed", "llama-3.1-8b"),
        workload_and_shape("forward", "llama-3.1-8b"),
    )
    assert not as_transformer(headless).head
    assert as_transformer(whole).head
    assert "kv_cache" not in estimate_memory(embed, headless).parts
    head = 2 * whole.vocab * whole.hidden
    assert (
        estimate_memory(forward, whole).parts["weights"].value - estimate_memory(embed, headless).parts["weights"].value == head
    )


def test_embedding_counts_samples() -> None:
    for model in ("llama-3.1-8b", "bert-large"):
        workload, shape = workload_and_shape("embed", model)
        assert work_per_step(workload, shape) == (4.0, "samples/s")
        assert work_of(replace(workload, samples=1000), shape, None).unit == "samples"
        assert work_of(replace(workload, samples=1000), shape, None).amount == 1000.0


def test_a_desk_gives_the_same_shape_again() -> None:
    """Caches know shapes by their identity."""
    lookups, workload = lookup_cache(own=False), Workload("embed", "llama-3.1-8b")
    assert lookups.shape_for(workload) is lookups.shape_for(workload)


def test_embedding_without_a_batch_takes_samples_and_no_concurrency_of_a_serving_engine() -> None:
    for model in ("llama-3.2-1b", "bert-large"):
        resolved = resolve_workload(from_object({"task": "embed", "model": model, "gpu": "L4"}), lookup_cache(own=False))
        assert resolved.gpu is not None
        assert resolved.workload.batch in SAMPLES
        assert default_sequences(resolved.workload, resolved.shape, resolved.gpu) is None


def test_embedding_is_verified_with_a_forward_pass() -> None:
    workload, shape = workload_and_shape("embed", "llama-3.2-1b")
    assert verify_command(workload, shape, 4)[0].startswith("whichgpu measure --verify 'estimate forward llama-3.2-1b ")
