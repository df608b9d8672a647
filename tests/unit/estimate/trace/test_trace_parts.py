"""The parts of tracing without torch: recording, restoring, requests and refusals."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks.trace.convolution_workspace import convolution_workspace
from whichgpu.base.errors import UsageError
from whichgpu.base.units import MIB
from whichgpu.catalog.store import Catalog
from whichgpu.estimate import trace as traces
from whichgpu.estimate.memory import module
from whichgpu.estimate.memory.module import module_memory, recognise_module
from whichgpu.estimate.memory.overhead import context_bytes, workspace_bytes
from whichgpu.estimate.time.lower import live_trace
from whichgpu.estimate.trace import ModuleTrace, TracedOperator, factory, framework
from whichgpu.estimate.trace.factory import find_factory, trace_factory
from whichgpu.estimate.trace.framework import load_torch, load_torchvision
from whichgpu.estimate.trace.recorder import tensors_of
from whichgpu.estimate.trace.step import OPTIMIZERS, TracedOptimizer
from whichgpu.estimate.trace.trace_log import TraceLog
from whichgpu.workload.shapes import TracedShape
from whichgpu.workload.workload import Workload


def spec(**present: bool) -> Any:
    """What `find_spec` says where these packages are, or are not, installed."""
    return lambda name: ModuleSpec(name, None) if present.get(name) else None


# what is written down


def test_only_tensors_that_outlive_the_forward_pass_are_activations() -> None:
    ledger = TraceLog()
    ledger.begin("forward", 0)
    saved, gone = ledger.birth(100, "aten.mm.default"), ledger.birth(50, "aten.relu.default")
    weights = ledger.birth(10, "weights", "weights")
    ledger.death(gone)
    ledger.begin("backward", 0)
    later = ledger.birth(7, "aten.add.Tensor")
    ledger.begin("optimizer", 0)
    assert {id: ledger.labels[id] for id in (saved, gone, weights, later)} == {
        saved: "activations",
        gone: "temporary",
        weights: "weights",
        later: "temporary",
    }
    assert ledger.marks == {"forward 0": 0, "backward 0": 4, "optimizer 0": 5}


def test_a_storage_dies_once() -> None:
    ledger = TraceLog()
    id = ledger.birth(100, "aten.mm.default")
    ledger.death(id)
    ledger.death(id)
    ledger.death(99)
    assert ledger.events == [(id, 100), (id, -100)]


def test_trace_replay_has_bytes_per_label() -> None:
    replay = ModuleTrace(
        ((0, 4096), (1, 2048), (1, -2048), (2, 512)), {0: "weights", 1: "temporary", 2: "input"}, {}, (), 0, 0
    ).replay()
    assert replay.peak_allocated == 6144
    assert replay.breakdown == {"weights": 4096, "temporary": 2048}


def test_tensors_are_found_in_nested_containers() -> None:
    assert list(tensors_of([1, (2.5, {"a": 3, "b": [4]}), "5", None], int)) == [1, 3, 4]


# what is put back


def convolution(
    name: str = "aten.convolution.default", dtype: str = "float32", groups: int = 1, channels: int = 8
) -> TracedOperator:
    input, weight, output = (2, 8, 4, 4), (16, channels, 3, 3), (2, 16, 4, 4)
    if name.endswith("backward.default"):
        return TracedOperator(name, (output, input, weight), (input, weight, (16,)), dtype, "backward", {"groups": groups}, 0, 1)
    return TracedOperator(name, (input, weight), (output,), dtype, "forward", {"groups": groups}, 0, 1)


def with_operators(*operators: TracedOperator) -> ModuleTrace:
    return ModuleTrace(((0, 10), (1, 20), (2, 30), (2, -30)), {}, {0: "a", 1: "b", 2: "c"}, operators, 0, 0)


WORKSPACE = 2 * 8 * 16 + 16 * 8 * 9 + 2 * 16 * 16  # elements of input, weight and output


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("bfloat16", 2), ("float16", 2), ("unheard-of", 4)])
def test_a_convolution_holds_its_three_tensors_once_more_while_it_runs(dtype: str, width: int) -> None:
    size = WORKSPACE * width
    assert convolution_workspace(with_operators(convolution(dtype=dtype))) == (
        (0, 10), (1, 20), (3, size), (3, -size), (2, 30), (2, -30),
    )  # fmt: skip


def test_its_gradients_are_two_calls_each_after_the_birth_of_its_result() -> None:
    workspace = convolution_workspace(with_operators(convolution("aten.convolution_backward.default")))
    size = WORKSPACE * 4
    assert workspace == ((0, 10), (1, 20), (3, size), (3, -size), (2, 30), (4, size), (4, -size), (2, -30))


@pytest.mark.parametrize("name", ["aten.convolution.default", "aten.convolution_backward.default"])
def test_depthwise_convolutions_and_all_else_need_none(name: str) -> None:
    plain = with_operators(
        convolution(name, groups=8, channels=1),
        TracedOperator("aten.mm.default", ((2, 2), (2, 2)), ((2, 2),), "float32", "forward"),
    )
    assert convolution_workspace(plain) is plain.events
    assert len(convolution_workspace(with_operators(convolution(name, groups=2, channels=4)))) > len(plain.events)


# the requested sizes


@pytest.mark.parametrize("name", ["nothing", ":build", "mine:", ""])
def test_a_factory_is_a_module_and_a_name(name: str) -> None:
    with pytest.raises(UsageError) as error:
        find_factory(name)
    assert error.value.message.id == "error.factory_spelling"


def test_factory_import_restores_sys_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traced_by_a_test.py").write_text("def build(): return 7\nsize = 3\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    try:
        assert find_factory("traced_by_a_test:build")() == 7
        with pytest.raises(UsageError) as none:
            find_factory("traced_by_a_test:biuld")
        with pytest.raises(UsageError) as number:
            find_factory("traced_by_a_test:size")
        with pytest.raises(UsageError) as lacking:
            find_factory("not_there_at_all:build")
    finally:
        sys.modules.pop("traced_by_a_test", None)
    assert none.value.message.id == lacking.value.message.id == "error.factory_missing"
    assert "biuld" in str(none.value)
    assert number.value.message.id == "error.factory_result"
    assert sys.path == before


def test_a_module_that_needs_torchvisions_operators_is_imported_again_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    imports: list[str] = []

    def importing(name: str) -> Any:
        imports.append(name)
        if len(imports) == 1:
            raise RuntimeError("operator torchvision::nms does not exist")
        return SimpleNamespace(build=lambda: "made")

    helped: list[bool] = []
    monkeypatch.setattr(factory, "import_module", importing)
    monkeypatch.setattr(factory, "load_torchvision", lambda: helped.append(True))
    assert find_factory("mine:build")() == "made"
    assert (imports, helped) == (["mine", "mine"], [True])

    def failing(name: str) -> Any:
        raise RuntimeError("something else")

    monkeypatch.setattr(factory, "import_module", failing)
    with pytest.raises(RuntimeError, match="something else"):
        find_factory("mine:build")


def test_user_code_failures_are_attributed_and_our_errors_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "load_torch", lambda: None)
    monkeypatch.setattr(factory, "find_factory", lambda name: name)

    def failing(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(factory, "trace", failing)
    with pytest.raises(UsageError, match="ZeroDivisionError: by nothing") as error:
        trace_factory("mine:build")
    assert error.value.kind == "trace-failed"
    ours = UsageError("bad-value", error.value.message)

    def refusing(*_: Any, **__: Any) -> Any:
        raise ours

    monkeypatch.setattr(factory, "trace", refusing)
    with pytest.raises(UsageError) as refused:
        trace_factory("mine:build")
    assert refused.value is ours


def test_an_optimizer_that_is_not_traced_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError) as error:
        TracedOptimizer(None, "lion", True)
    assert error.value.choices == OPTIMIZERS


# where torch is, and where it is not


def test_without_torch_a_traced_name_is_refused_and_other_names_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", spec())
    for name in ("python:mine:build", "torchvision:resnet18", "timm:vit_tiny"):
        with pytest.raises(UsageError, match=name) as error:
            recognise_module(name)
        assert error.value.kind == "needs-torch"
    assert recognise_module("resnet18") is None
    assert recognise_module("elsewhere:resnet18") is None
    monkeypatch.setattr(framework, "find_spec", spec())
    with pytest.raises(UsageError) as needs:
        load_torch()
    assert needs.value.kind == "needs-torch"


def test_with_torch_names_are_searched_in_installed_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_torchvision", lambda: SimpleNamespace(models=SimpleNamespace(list_models=lambda: ["resnet18"])))
    monkeypatch.setattr(module, "_timm", lambda: SimpleNamespace(list_models=lambda: ["vit_tiny"]))
    monkeypatch.setattr(module, "find_spec", spec(torch=True, torchvision=True))
    assert recognise_module("resnet18") == TracedShape("resnet18", "torchvision:resnet18", 224)
    assert recognise_module("vit_tiny") is None  # there is no timm
    monkeypatch.setattr(module, "find_spec", spec(torch=True, torchvision=True, timm=True))
    assert recognise_module("vit_tiny") == TracedShape("vit_tiny", "timm:vit_tiny", 224)
    assert recognise_module("python:mine:build") == TracedShape("mine:build", "python:mine:build", 0)
    assert recognise_module("timm:whatever") == TracedShape("whatever", "timm:whatever", 224)
    assert recognise_module("timm:") is None
    with pytest.raises(UsageError, match="timm:novel") as error:
        module.model_factory("timm", "novel")
    assert error.value.kind == "unknown-model"


def test_models_of_libraries_are_made_without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, object]] = []

    def of_vision(name: str, weights: object) -> str:
        calls.append((name, weights))
        return "vision"

    def of_timm(name: str, pretrained: bool) -> str:
        calls.append((name, pretrained))
        return "image"

    vision = SimpleNamespace(list_models=lambda: ["resnet18"], get_model=of_vision)
    monkeypatch.setattr(framework, "load_torchvision", lambda: SimpleNamespace(models=vision))
    timm = ModuleType("timm")
    timm.list_models = lambda: ["vit_tiny"]  # type: ignore[attr-defined]
    timm.create_model = of_timm  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    assert module.model_factory("torchvision", "resnet18")() == "vision"
    assert module.model_factory("timm", "vit_tiny")() == "image"
    assert calls == [("resnet18", None), ("vit_tiny", False)]


def test_missing_torchvision_operators_are_registered_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    defined: list[str] = []
    library = SimpleNamespace(define=lambda schema: defined.append(schema.partition("(")[0]))
    played = ModuleType("torch")
    played.library = SimpleNamespace(Library=lambda name, kind: library)  # type: ignore[attr-defined]
    whole, imported = ModuleType("torchvision"), []

    def importing(name: str) -> Any:
        if name == "torch":
            return played
        imported.append(name)
        if len(imported) == 1:
            raise RuntimeError("operator torchvision::nms does not exist")
        return whole

    monkeypatch.setattr(framework, "find_spec", spec(torch=True))
    monkeypatch.setattr(framework, "import_module", importing)
    monkeypatch.setitem(sys.modules, "torchvision.half_loaded", ModuleType("torchvision.half_loaded"))
    assert load_torchvision() is whole
    assert defined == ["nms", "qnms"]
    assert "torchvision.half_loaded" not in sys.modules
    imported.clear()

    def failing(name: str) -> Any:
        if name == "torch":
            return played
        raise RuntimeError("another fault")

    monkeypatch.setattr(framework, "import_module", failing)
    with pytest.raises(RuntimeError, match="another fault"):
        load_torchvision()


# what comes of a trace


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Fake traces: 4 MiB of weights, an input of 1 MiB, 2 MiB of activations; the arguments are recorded."""
    calls: dict[str, Any] = {}
    events = ((0, 4 * MIB), (1, MIB), (2, 2 * MIB))
    trace = ModuleTrace(events, {0: "weights", 1: "input", 2: "activations"}, {}, (), 10, 10)

    def of_factory(name: str, **options: Any) -> ModuleTrace:
        calls.update(options, name=name)
        return trace

    def of_library(arguments: Any, inputs: Any, **options: Any) -> ModuleTrace:
        calls.update(options, made=arguments, inputs=inputs)
        return trace

    monkeypatch.setattr(traces, "trace_factory", of_factory)
    monkeypatch.setattr(traces, "trace", of_library)
    monkeypatch.setattr(traces, "images", lambda batch, size: (batch, size))
    monkeypatch.setattr(module, "model_factory", lambda kind, name: f"{kind} {name}")
    return calls


def test_factory_memory_is_that_of_its_trace_with_the_batch_s_origin(traced: dict[str, Any], catalog: Catalog) -> None:
    gpu = catalog.gpu_by_id["t4"]
    workload = Workload("train", "m", precision="bf16", optimizer="adamw", batch=4)
    estimate = module_memory(workload, TracedShape("mine:build", "python:mine:build", 0), gpu)
    assert traced == {"name": "mine:build", "precision": "bf16", "optimizer": "adamw", "fused": True, "training": True}
    parts = {name: part.value for name, part in estimate.parts.items()}
    assert parts["weights"] == 4 * MIB
    assert parts["activations"] == 3 * MIB  # the input is one of them
    assert parts["workspace"] == workspace_bytes(gpu)
    assert parts["context"] == context_bytes(gpu)
    assert estimate.device.value == sum(parts.values())
    assert [warning.id for warning in estimate.warnings] == ["warning.factory-batch"]


@pytest.mark.parametrize(("image", "memory_format", "size", "last"), [(None, None, 224, True), (96, "contiguous", 96, False)])
def test_library_model_is_traced_at_the_requested_batch_and_image(
    traced: dict[str, Any], image: int | None, memory_format: str | None, size: int, last: bool
) -> None:
    workload = Workload("batch", "m", batch=4, image=image, memory_format=memory_format)
    estimate = module_memory(workload, TracedShape("resnet18", "torchvision:resnet18", 224), None)
    assert traced == {
        "made": "torchvision resnet18", "inputs": (4, size), "channels_last": last,
        "precision": "fp32", "optimizer": "sgd-momentum", "fused": True, "training": False,
    }  # fmt: skip
    assert estimate.warnings == ()


def call(name: str, batch: int, phase: str = "forward") -> TracedOperator:
    return TracedOperator(name, ((batch, 8),), ((batch, 16), (3,)), "float32", phase)  # type: ignore[arg-type]


def test_sizes_of_a_librarys_model_are_lines_over_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def tracing(arguments: Any, inputs: int, **options: Any) -> ModuleTrace:
        calls.append(inputs)
        names = ("aten.mm.default", "aten.relu.default", "aten.mm.default")
        last = call("aten.add.Tensor", inputs, "optimizer")
        operators = (*(call(name, inputs) for name in names), last)
        return ModuleTrace((), {0: "gradients", 1: "gradients", 2: "weights"}, {}, operators, 20, 10)

    monkeypatch.setattr(traces, "trace", tracing)
    monkeypatch.setattr(traces, "images", lambda batch, size: batch)
    monkeypatch.setattr(live_trace, "model_factory", lambda kind, name: None)
    live_trace.live_operators.cache_clear()
    operators, trained, tensors = live_trace.live_operators("timm:of-a-test", 224, True, "fp32", True)
    live_trace.live_operators.cache_clear()
    assert calls == list(live_trace.TRACED_BATCHES)
    assert (trained, tensors) == (10, 2)
    assert [(one.name, one.count) for one in operators] == [("aten.mm.default", 2), ("aten.relu.default", 1)]
    assert operators[0].inputs == (((0, 1), (8, 0)),)
    assert operators[0].outputs == (((0, 1), (16, 0)), ((3, 0),))


def test_a_factorys_sizes_are_those_of_its_own_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        traces, "trace_factory", lambda name, **options: ModuleTrace((), {}, {}, (call("aten.mm.default", 5),), 20, 10)
    )
    live_trace.live_operators.cache_clear()
    operators, _, _ = live_trace.live_operators("python:mine:build", 0, False, "fp32", True)
    live_trace.live_operators.cache_clear()
    assert operators[0].inputs == (((5, 0), (8, 0)),)
