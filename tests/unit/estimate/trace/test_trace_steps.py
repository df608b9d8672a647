"""A traced run from its first operator to its last, with a torch that is played: what is recorded, when, and when it dies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.played_torch import BF16, FP16, FP32, TORCH, Module, Parameter, Storage, Tensor
from whichgpu.estimate.trace import ModuleTrace, trace
from whichgpu.estimate.trace.recorder import StorageTracker, recorder
from whichgpu.estimate.trace.trace_log import TraceLog

run = sys.modules["whichgpu.estimate.trace.run"]


class Overload:
    """An operator with its name."""

    def __init__(self, name: str, call: Any) -> None:
        self._name, self._call = name, call

    def __str__(self) -> str:
        return self._name

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self._call(*args, **keywords)


def packet(name: str, overload: str = "default", call: Any = lambda *args, **keywords: Tensor(4)) -> Any:
    return SimpleNamespace(**{overload: Overload(f"aten.{name}.{overload}", call)})


def fake_torch(**more: Any) -> Any:
    names = (
        "_local_scalar_dense equal nonzero masked_select _softmax _log_softmax convolution_backward convolution mm detach".split()
    )
    aten = {name: packet(name) for name in names}
    aten |= {"add": packet("add", "Tensor"), "add_": packet("add_", "Tensor", lambda total, more: total)}
    return SimpleNamespace(**{**vars(TORCH), "ops": SimpleNamespace(aten=SimpleNamespace(**aten)), **more})


@pytest.fixture(autouse=True)
def dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The class that torch would call for every operator."""

    class Mode:
        def __enter__(self) -> Mode:
            return self

        def __exit__(self, *_: object) -> None: ...

    module = ModuleType("torch.utils._python_dispatch")
    module.TorchDispatchMode = Mode  # type: ignore[attr-defined]
    for name in ("torch", "torch.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "torch.utils._python_dispatch", module)


def recording(torch: Any) -> tuple[TraceLog, Any]:
    ledger = TraceLog()
    mode = recorder(torch, ledger, StorageTracker(ledger))
    return ledger, lambda func, *args, **keywords: mode.__torch_dispatch__(func, (), args, keywords or None)


def test_an_operator_is_written_down_with_its_shapes_its_attributes_and_its_place() -> None:
    torch = fake_torch()
    ledger, call = recording(torch)
    ledger.begin("forward", 1)
    input, weight = Tensor(2, 8, 4, 4), Tensor(16, 8, 3, 3)
    out = call(torch.ops.aten.convolution.default, input, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 2)
    (one,) = ledger.operators
    assert (one.name, one.phase, one.step, one.event) == ("aten.convolution.default", "forward", 1, 0)
    assert (one.inputs, one.outputs, one.dtype) == (((2, 8, 4, 4), (16, 8, 3, 3)), ((4,),), "fp32")
    assert one.attributes == {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "transposed": False, "groups": 2}
    assert ledger.events == [(0, 16)]
    del out
    assert ledger.events == [(0, 16), (0, -16)]


def test_calls_without_a_new_tensor_are_no_operators() -> None:
    torch = fake_torch()
    ledger, call = recording(torch)
    assert call(torch.ops.aten.equal.default, Tensor(4), Tensor(4)) is True  # a stand-in, which makes none
    view = call(torch.ops.aten.detach.default, Tensor(4))
    assert ledger.operators == []
    assert ledger.events == [(0, 16)]
    del view


@pytest.mark.parametrize(("phase", "in_place"), [("backward", True), ("forward", False)])
def test_gradients_are_accumulated_in_place_as_in_autograd(phase: Any, in_place: bool) -> None:
    torch = fake_torch(is_grad_enabled=lambda: False, _C=SimpleNamespace(_storage_Use_Count=lambda _: 2))
    ledger, call = recording(torch)
    ledger.begin(phase, 0)
    total = Tensor(8)
    assert (call(torch.ops.aten.add.Tensor, total, Tensor(8)) is total) is in_place
    assert ledger.operators[0].name == "aten.add.Tensor"


class Net(Module):
    """One weight and one that is not trained; its output is a batch of classes."""

    def __init__(self) -> None:
        self.weight, self.frozen = Parameter(Tensor(10, 8)), Parameter(Tensor(3), requires_grad=False)
        super().__init__(parameters={"weight": self.weight, "frozen": self.frozen})
        self.moved: list[Any] = []
        self.training: bool | None = None

    def parameters(self) -> list[Tensor]:
        return [self.weight, self.frozen]

    def buffers(self) -> list[Tensor]:
        return [Tensor(5)]

    def to(self, dtype: Any = None, memory_format: Any = None) -> None:
        self.moved.append(dtype or memory_format)

    def train(self, mode: bool) -> None:
        self.training = mode

    def zero_grad(self, set_to_none: bool) -> None:
        assert set_to_none
        self.weight.grad = None

    def __call__(self, pictures: Tensor) -> Tensor:
        return Tensor(pictures.shape[0], 10)


class Value:
    """A loss whose backward pass sets the weight's gradient."""

    def __init__(self, net: Net) -> None:
        self._net = net

    def backward(self) -> None:
        self._net.weight.grad = Tensor(10, 8, storage=Storage(320))


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    net, casts = Net(), []

    @contextmanager
    def entered(*args: Any, **keywords: Any) -> Iterator[None]:
        casts.append(keywords.get("dtype"))
        yield

    def loss(output: Tensor, labels: Tensor) -> Value:
        return Value(net)

    nn = SimpleNamespace(Module=Module, Parameter=Parameter, functional=SimpleNamespace(cross_entropy=loss))
    torch = fake_torch(
        device=entered, no_grad=nullcontext, autocast=entered, nn=nn, _subclasses=SimpleNamespace(FakeTensor=Tensor)
    )
    fake = ModuleType("torch._subclasses.fake_tensor")
    fake.FakeTensorMode = lambda allow_non_fake_inputs: nullcontext()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch._subclasses", ModuleType("torch._subclasses"))
    monkeypatch.setitem(sys.modules, "torch._subclasses.fake_tensor", fake)
    monkeypatch.setattr(run, "load_torch", lambda: torch)
    monkeypatch.setattr(run, "gpu_kernels", lambda _: nullcontext())
    net.casts = casts  # type: ignore[attr-defined]
    return net


def traced(net: Net, **options: Any) -> ModuleTrace:
    return trace(lambda: net, lambda: Tensor(2, 3, 4, 4), **options)


def born(trace: ModuleTrace, label: str) -> list[int]:
    return [size for id, size in trace.events if size > 0 and trace.labels[id] == label]


def test_training_step_has_forward_backward_and_optimizer(net: Net) -> None:
    trace = traced(net, optimizer="adamw", steps=2)
    assert net.training is True
    assert list(trace.marks) == [f"{phase} {step}" for step in (0, 1) for phase in ("forward", "backward", "optimizer")]
    assert (trace.parameters, trace.trainable) == (83, 80)
    assert born(trace, "weights") == [320, 12, 20]
    assert born(trace, "input") == [2 * 3 * 16 * 4]
    assert born(trace, "gradients") == [320, 320]  # each step its own
    assert sorted(born(trace, "optimizer")) == [4, 320, 320]  # two states and a count, made once


def test_a_forward_pass_has_no_gradients_and_no_states(net: Net) -> None:
    trace = traced(net, training=False, steps=1)
    assert net.training is False
    assert list(trace.marks) == ["forward 0"]
    assert born(trace, "gradients") == born(trace, "optimizer") == []


@pytest.mark.parametrize(
    ("precision", "channels_last", "moved", "cast"),
    [
        ("fp32", False, [], None),
        ("tf32", True, ["channels last"], None),
        ("bf16", False, [BF16], None),
        ("fp16", True, [FP16, "channels last"], None),
        ("amp-bf16", False, [], BF16),
        ("amp-fp16", False, [], FP16),
    ],
)
def test_weights_are_cast_once_or_at_every_use(
    net: Net, precision: str, channels_last: bool, moved: list[Any], cast: Any
) -> None:
    traced(net, precision=precision, channels_last=channels_last, training=False, steps=1)
    assert net.moved == moved
    assert [one for one in net.casts if one] == ([cast] if cast else [])  # type: ignore[attr-defined]
    assert FP32 not in net.casts  # type: ignore[attr-defined]


def test_custom_loss_is_used(net: Net) -> None:
    outputs: list[tuple[int, ...]] = []

    def own(output: Tensor) -> Value:
        outputs.append(output.shape)
        return Value(net)

    traced(net, loss=own, steps=1)
    assert outputs == [(2, 10)]
