"""Operator tables: the file is sound, says what torch says of the models, and is read without torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path

import pytest

from whichgpu.base.errors import DataError, UnknownName
from whichgpu.estimate.memory.traced import traced_memory
from whichgpu.workload import tables
from whichgpu.workload.shapes import TracedShape
from whichgpu.workload.tables import (
    TABLES_FILE,
    OperatorTable,
    TableOperator,
    at,
    decode_blocks,
    decode_same,
    decode_versions,
    encode_tables,
    extend_tables,
    load_table,
    table_images,
    table_names,
    table_parameters,
)
from whichgpu.workload.workload import Parallel, Workload

# Layers times width of the key biases, constants that EVA joins to the trained biases of queries and values.
KEY_BIASES = {"eva02_tiny": 12 * 192, "eva02_small": 12 * 384, "eva_giant": 40 * 1408, "eva_large": 24 * 1024}
KEY_BIASES |= {"vit_base_patch16_rope": 12 * 768, "vit_medium_patch16_rope": 12 * 512}  # built from EVA's blocks
FROZEN = ("detr_", "retinanet_resnet50", "fcos_")  # The first stages of their ResNet are not trained.
PASSES = {f"{what}/{precision}" for what in ("train", "infer") for precision in ("fp32", "amp", "bf16")}
# torchvision's own counts; the auxiliary heads of GoogLeNet and Inception are trained too.
PARAMETERS = {
    "alexnet": 61_100_840,
    "vgg16": 138_357_544,
    "resnet50": 25_557_032,
    "densenet121": 7_978_856,
    "mobilenet_v3_large": 5_483_032,
    "efficientnet_b0": 5_288_548,
    "convnext_tiny": 28_589_128,
    "swin_t": 28_288_354,
    "vit_b_16": 86_567_656,
    "inception_v3": 27_161_264,
}
# Multiply-adds of a picture in convolutions and matrix products, 10^9, as torchvision's documentation gives them; those of
# attention, which it leaves out, are not here either.
GIGA_MACS = {
    "resnet50": 4.09,
    "vgg16": 15.47,
    "mobilenet_v2": 0.30,
    "convnext_tiny": 4.46,
    "densenet121": 2.83,
    "alexnet": 0.71,
    "swin_t": 4.49,
    "mnasnet1_0": 0.31,
    "shufflenet_v2_x2_0": 0.58,
    "resnext101_64x4d": 15.46,
}


def workload(model: str = "resnet50", task: str = "train", batch: int = 64, **fields: object) -> Workload:
    return Workload(task, model, batch=batch, **{"precision": "amp-bf16", "optimizer": "sgd-momentum"} | fields)  # type: ignore[arg-type]


def allocated(**fields: object) -> float:
    request = workload(**fields)  # type: ignore[arg-type]
    return traced_memory(request, TracedShape(str(request.model), str(request.model), 0), None).allocated.value


def part(name: str, **fields: object) -> float:
    request = workload(**fields)  # type: ignore[arg-type]
    return traced_memory(request, TracedShape(str(request.model), str(request.model), 0), None).parts[name].value


def device(**fields: object) -> float:
    request = workload(**fields)  # type: ignore[arg-type]
    return traced_memory(request, TracedShape(str(request.model), str(request.model), 0), None).device.value


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file of tables in the place of ours."""
    path = tmp_path / "tables.bin"
    monkeypatch.setattr(tables, "TABLES_FILE", path)
    caches = tables._index, tables._loaded, tables.table_names
    for one in caches:
        one.cache_clear()
    yield path
    for one in caches:
        one.cache_clear()


def every_table(step: int) -> Iterator[OperatorTable]:
    return (load_table(name, image) for name in table_names()[::step] for image in table_images(name))


def test_file_is_compact() -> None:
    assert len(table_names()) >= 250
    assert TABLES_FILE.stat().st_size < 10_000_000  # of the wheel's 15 MB


def test_blocks_survive_a_round_trip() -> None:
    first = {"parameters": 3, "kinds": [["weights", 12, 0]], "passes": {}}
    blocks = {"a@224": first, "a@32": {"parameters": 3}, "b@64": {"parameters": 4}}
    content = encode_tables(blocks, {"c": "a"}, "2026-11-15", {"torch": "2"})
    assert decode_blocks(content) == blocks
    assert decode_same(content) == {"c": "a"}
    assert decode_versions(content) == {"torch": "2"}
    more = {"d@64": {**first, "parameters": 9}}
    longer = extend_tables(content, more, {"e": "d"}, "2026-11-16", {"torch": "3"})
    assert decode_blocks(longer) == {**blocks, **more}
    assert (decode_same(longer), decode_versions(longer)) == ({"c": "a", "e": "d"}, {"torch": "3"})


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_parameters_are_those_of_torchvision(name: str, count: int) -> None:
    assert load_table(name).parameters == count


# Largest share of weights that a pass does not use, so that they have no gradients: encoder of a video's autoencoder, the text
# branch of Qwen-Image's last block, the embedding of Segment Anything's mask prompts, the fixed bins of YOLO's boxes.
UNUSED_SHARES = {
    **dict.fromkeys(("wan_vae", "ltx_video_vae", "cogvideox_vae", "hunyuan_video_vae"), 0.45),
    "wan22_vae": 0.2124,  # encoder and its last convolution: 149,637,088 of 704,688,668 parameters
    "qwen_image_vae": 0.03,
    "qwen_image_transformer": 0.005,
    "sam_vit": 0.002,
    "yolo": 1e-5,
}


@pytest.mark.parametrize("step", [16, pytest.param(1, marks=pytest.mark.long)])
def test_every_table_has_every_pass_and_its_gradients_are_its_parameters(step: int) -> None:
    for table in every_table(step):
        assert set(table.passes) == PASSES, table.name
        for key, run in table.passes.items():
            alive: dict[int, int] = {}
            born = 0
            for move in run.moves:
                if move % 2:
                    del alive[born - 1 - move // 2]  # a KeyError: freed twice, or never there
                else:
                    alive[born] = move // 2
                    born += 1
            left = [table.kinds[kind] for kind in alive.values() if table.kinds[kind].label == "gradients"]
            width = 2 if key.endswith("bf16") else 4
            expected = width * table.parameters if key.startswith("train") else 0
            size = sum(kind.size[0] for kind in left)
            # BEiT, EVA and Swin v2 join biases to a longer one, and their gradients stay slices of its gradient.
            sliced = 2e-4 if table.name.startswith(("beit", "swin_v2", "swinv2")) else 0
            constant = next((width * count for name, count in KEY_BIASES.items() if table.name.startswith(name)), 0)
            frozen = 0.1 if table.name.startswith(FROZEN) else 0
            frozen += next((share for name, share in UNUSED_SHARES.items() if table.name.startswith(name)), 0)
            assert expected * (1 - frozen) <= size <= expected * (1 + sliced) + constant, (table.name, key)
            rest = [table.kinds[kind] for born, kind in alive.items() if born >= run.before]
            cached = [kind for kind in rest if kind.label != "gradients"]
            # LeViT and EfficientFormer gather biases once for all forward passes, Qwen-Image stores rotary angles; nothing of
            # a batch may stay.
            stores_constants = key.startswith("infer") or table.name == "qwen_image_transformer"
            assert not cached or (stores_constants and not any(kind.size[1] for kind in cached)), (table.name, key)


def multiply_adds(operator: TableOperator, batch: int = 1) -> int:
    """Of a convolution or a matrix product, forward or backward; 0 for all else."""
    inputs, outputs = ([[at(dim, batch) for dim in shape] for shape in side] for side in (operator.inputs, operator.outputs))
    what, once = operator.name.split(".")[1], 0
    if what.startswith("convolution"):
        backward = what == "convolution_backward"
        weight = inputs[2] if backward else inputs[1]
        near = inputs[1] if backward else inputs[0]
        far = inputs[0] if backward else outputs[0]
        once = prod(near if operator.attributes["transposed"] else far) * prod(weight[1:])
        once *= sum(operator.attributes["mask"][:2]) if backward else 1
    elif what in ("mm", "bmm", "addmm", "baddbmm"):
        once = prod(outputs[0]) * inputs[-2][-1]
    return operator.count * once


@pytest.mark.parametrize(("name", "giga"), GIGA_MACS.items())
def test_forward_operators_add_up_to_the_published_multiply_adds(name: str, giga: float) -> None:
    total = sum(map(multiply_adds, load_table(name).run(training=False, precision="fp32").operators))
    assert total / 1e9 == pytest.approx(giga, rel=0.015)


@pytest.mark.parametrize("precision", ["fp32", "amp", "bf16"])
@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2", "swin_t", "convnext_tiny", "unet", "nnunet_3d", "vit_b_16"])
def test_a_backward_pass_is_two_forward_passes_less_the_gradient_of_the_picture(name: str, precision: str) -> None:
    operators = load_table(name).run(training=True, precision=precision).operators
    forward, backward = (sum(multiply_adds(one) for one in operators if one.phase == phase) for phase in ("forward", "backward"))
    [first] = [one for one in operators if one.attributes.get("mask", [True])[0] is False]
    assert backward == 2 * forward - multiply_adds(first)


def test_attention_is_one_operator_with_its_shapes_forward_and_backward() -> None:
    for name, layers, shape in (("vit_b_16", 12, (12, 197, 64)), ("vit_base_patch16_224", 12, (12, 197, 64))):
        for precision, kernel in (("fp32", "efficient"), ("bf16", "flash")):
            result = {
                (one.phase, one.count, one.name.endswith("backward.default")): one.inputs
                for one in load_table(name).run(training=True, precision=precision).operators
                if one.name.startswith(f"aten._scaled_dot_product_{kernel}_attention")
            }
            assert set(result) == {("forward", layers, False), ("backward", layers, True)}
            for inputs in result.values():
                assert [[at(dim, 5) for dim in tensor] for tensor in inputs[:3]] == [[5, *shape]] * 3


def test_nearest_traced_image_is_used() -> None:
    assert load_table("efficientnet_b4").image == 380
    assert load_table("efficientnet_b4", 256).image == 224
    assert load_table("efficientnet_b4", 400).image == 380


def test_an_unknown_table_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName) as error:
        load_table("resnet51")
    assert "resnet50" in error.value.choices


@pytest.mark.parametrize("content", [b"", b"WGPUTAB3", b"WGPUTAB3\x00\x00\x00\x02{}", b"nonsense" * 9])
def test_a_broken_file_is_a_data_error(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(DataError):
        load_table("resnet50")


def test_a_cut_block_is_a_data_error(file: Path) -> None:
    file.write_bytes(encode_tables({"a@224": {"parameters": 1, "kinds": [], "passes": {}}}, {}, "2026-11-15", {})[:-9])
    with pytest.raises(DataError):
        load_table("a")


def test_a_model_with_the_operators_of_another_reads_its_table(file: Path) -> None:
    file.write_bytes(encode_tables({"a@224": {"parameters": 7, "kinds": [], "passes": {}}}, {"b": "a"}, "2026-11-15", {}))
    assert table_names() == ("a", "b")
    assert (load_table("b").name, table_images("b"), table_parameters("b")) == ("b", (224,), 7)


def test_reading_imports_no_torch() -> None:
    code = (
        "import sys; from whichgpu.workload.tables import load_table; load_table('resnet50'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(TABLES_FILE.parents[3])})


@pytest.mark.parametrize("precision", ["fp32", "tf32", "amp-bf16", "bf16"])
@pytest.mark.parametrize("task", ["train", "forward"])
@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v3_large", "vit_b_16", "unet"])
def test_memory_never_falls_with_the_batch(name: str, task: str, precision: str) -> None:
    batches = (1, 2, 3, 5, 8, 11, 16, 31, 48, 64, 100, 128)
    for measure in (allocated, device):
        sizes = [measure(model=name, task=task, precision=precision, batch=batch) for batch in batches]
        assert sizes == sorted(sizes)


def test_wider_types_never_need_less() -> None:
    assert allocated(precision="bf16") < min(allocated(precision="tf32"), allocated(precision="fp32"))
    assert allocated(precision="fp16") == allocated(precision="bf16")


def test_an_optimizer_costs_its_states() -> None:
    fields = {"precision": "fp32", "batch": 32, "model": "vit_b_16"}
    plain, momentum, adam = (allocated(optimizer=name, **fields) for name in ("sgd", "sgd-momentum", "adamw"))
    copy = 4 * load_table("vit_b_16").parameters
    assert momentum - plain == pytest.approx(copy, rel=0.1)
    assert adam - momentum == pytest.approx(copy, rel=0.1)


def test_a_forward_pass_needs_less_than_a_step_and_more_than_the_weights() -> None:
    forward = allocated(task="forward", precision="bf16", batch=32)
    assert 2 * load_table("resnet50").parameters < forward < allocated(precision="bf16", batch=32)


def test_accumulation_keeps_gradients_through_the_forward_pass() -> None:
    once, twice = allocated(batch=32), allocated(batch=64, accumulation=2)
    assert twice - once == pytest.approx(4 * load_table("resnet50").parameters, rel=0.2)


def test_zero_takes_a_share_and_never_costs_more() -> None:
    fields = {"batch": 8 * 32, "optimizer": "adamw", "model": "vit_l_16"}
    sizes = [allocated(parallel=Parallel(dp=8, zero=stage), **fields) for stage in (3, 2, 1, 0)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_zero_is_counted_at_its_own_peak() -> None:
    """ViT-L in one picture: unsharded the end of backward is fullest, sharded the loss, with all activations there."""
    fields = {"batch": 8, "optimizer": "adamw", "model": "vit_l_16"}
    plain, sharded = (part("activations", parallel=Parallel(dp=8, zero=stage), **fields) for stage in (0, 2))
    assert sharded > 1.5 * plain


@pytest.mark.parametrize(
    ("fields", "id"),
    [
        ({"image": 320}, "warning.image-scaled"),
        ({"precision": "int8", "task": "forward"}, "warning.precision-not-traced"),
        ({"checkpointing": "full"}, "warning.not-in-tables"),
        ({"parallel": Parallel(tp=2)}, "warning.not-in-tables"),
    ],
)
def test_extrapolation_beyond_a_table_is_warned_about_with_no_smaller_range(fields: dict[str, object], id: str) -> None:
    estimate = traced_memory(workload(**fields), TracedShape("resnet50", "resnet50", 224), None)  # type: ignore[arg-type]
    usual = traced_memory(workload(task=str(fields.get("task", "train"))), TracedShape("resnet50", "resnet50", 224), None)
    assert [message.id for message in estimate.warnings] == [id]
    assert estimate.allocated.relative_range[1] >= usual.allocated.relative_range[1]


def test_a_larger_image_needs_more() -> None:
    assert allocated(image=448) == pytest.approx(4 * allocated(image=224), rel=0.15)
