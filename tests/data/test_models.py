"""The built-in models: every name people type is there, means one model, and has the parameters the real one has."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path

import msgspec
import pytest

import whichgpu
from tests.copies import copy_tables
from whichgpu.base.errors import DataError
from whichgpu.catalog.checks import check_catalog
from whichgpu.catalog.model import Model, model_key
from whichgpu.catalog.schema import schema
from whichgpu.catalog.store import Catalog
from whichgpu.workload.hf import shape_from_config
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.tables import load_table

TODAY = date.today()
Cells = dict[str, str]

# Parameters that PyTorch counted in the models it trained (H200, PyTorch 2.11, transformers 5.17, torchvision 0.26, 2026).
COUNTED = {
    "alexnet": 61_100_840,
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "convnext_tiny": 28_589_128,
    "densenet121": 7_978_856,
    "efficientnet_b0": 5_288_548,
    "gpt2": 124_439_808,
    "gpt2-large": 774_030_080,
    "gpt2-medium": 354_823_168,
    "gpt2-xl": 1_557_611_200,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "mobilenet_v3_large": 5_483_032,
    "resnet152": 60_192_808,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "swin_t": 28_288_354,
    "vgg16": 138_357_544,
    "vit_b_16": 86_567_656,
    "vit_l_16": 304_326_632,
}
# Parameters of the published configurations: built in transformers 5.22, diffusion models added up layer by layer.
PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-4-scout": 108_641_793_536,
    "llama-4-maverick": 401_583_781_376,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-235b-a22b": 235_093_634_560,
    "deepseek-v2-lite": 15_706_484_224,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-27b": 27_432_406_640,
    "phi-3-mini": 3_821_079_552,
    "gpt-oss-120b": 116_829_156_672,
    "bloom-176b": 176_247_271_424,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "whisper-large-v3": 1_543_490_560,
    "stable-diffusion-1.5": 859_520_964,
    "stable-diffusion-2.1": 865_910_724,
    "stable-diffusion-xl": 2_567_463_684,
    "flux.1-dev": 11_901_408_320,
    "flux.1-schnell": 11_891_178_560,
    "stable-diffusion-3.5-medium": 2_243_171_520,
    "stable-diffusion-3.5-large": 8_056_627_520,
    "pixart-sigma": 610_856_096,
    "sana-1.6b": 1_604_462_752,
    "qwen-image": 20_430_401_088,
    "wan2.1-1.3b": 1_418_996_800,
    "wan2.1-14b": 14_288_491_584,
    "wan2.2-a14b": 14_288_491_584,  # each of its two transformers
    "wan2.2-5b": 4_999_787_712,
    "ltx-video-2b": 1_923_385_472,
    "cogvideox-2b": 1_693_783_872,
    "cogvideox-5b": 5_570_283_072,
    "hunyuanvideo": 12_821_012_544,
}
# Spellings met in the wild, and the model each means.
TYPED = {
    "Llama 3.1 8B": "llama-3.1-8b",
    "llama3.1:8b": "llama-3.1-8b",
    "meta-llama/Meta-Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Meta-Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "llama-30b": "llama-33b",
    "deepseek-r1": "deepseek-v3",
    "deepseek-r1-distill-llama-70b": "llama-3.3-70b",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b",
    "resnet-50": "resnet50",
    "ViT-B/16": "vit_b_16",
    "efficientnet-b7": "efficientnet_b7",
    "SE-ResNeXt101-32x4d": "seresnext101_32x4d",
    "vit_base_patch16_224": "vit_base_patch16_224",
    "RegNetY 1.6GF": "regnet_y_1_6gf",
    "regnet_y_16gf": "regnet_y_16gf",
    "3D-UNet": "unet3d_kits19",
    "SDXL": "stable-diffusion-xl",
    "OPT 1.3B": "opt-1.3b",
    "OPT 13B": "opt-13b",
    "bert-base-uncased": "bert-base",
    "flan-t5-xl": "flan-t5-xl",
    "Qwen2.5-VL-7B": "qwen2.5-vl-7b",
    "Qwen/Qwen3-VL-30B-A3B-Thinking": "qwen3-vl-30b-a3b",
    "qwen3-coder": "qwen3-coder-30b-a3b",
    "Kimi K2": "kimi-k2",
    "GLM-4.6": "glm-4.5",
    "Command R+": "command-r-plus-104b",
    "all-MiniLM-L6-v2": "all-minilm-l6-v2",
    "devstral-small": "mistral-small-24b",
    "nomic-embed-text": "nomic-embed-text-v1.5",
    "dlrm": "dlrm-criteo",
}
FAMILIES = """llama llama4 mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe deepseek_v2 deepseek_v3 gemma gemma2 gemma3 gemma3_text
phi phi3 phimoe falcon gpt2 gptj gpt_neox olmoe opt bloom gpt_oss bert roberta deberta-v2 t5 whisper vit clip siglip
traced dlrm""".split()


@pytest.fixture(scope="module")
def models_by_name() -> dict[str, Model]:
    """Models by every name they answer to."""
    return {model_key(name): model for model in Catalog().models for name in model.names}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The bundled tables, free to be spoilt."""
    return copy_tables(tmp_path / "data")


def spoil(folder: Path, id: str, change: Callable[[Cells], object]) -> None:
    """Change one model's cells in a copy of the tables."""
    path = folder / "models.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    change(next(row for row in rows if row["id"] == id))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(schema()["models"]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def test_there_are_enough_models_of_every_family_and_kind(catalog: Catalog) -> None:
    assert len(catalog.models) >= 150
    assert set(FAMILIES) <= {model.config["model_type"] for model in catalog.models}
    kinds = Counter(model.kind for model in catalog.models)
    assert min(kinds["transformer"], kinds["vision"]) >= 50
    assert kinds["diffusion"] == 19
    assert kinds["recommendation"] == 1


@pytest.mark.parametrize(("name", "parameters"), [*COUNTED.items(), *PUBLISHED.items()])
def test_parameters_are_those_of_the_real_model(models_by_name: dict[str, Model], name: str, parameters: int) -> None:
    model = models_by_name[model_key(name)]
    assert (model.id, model.parameters) == (name, parameters)


@pytest.mark.parametrize(("typed", "id"), TYPED.items())
def test_spellings_people_use_find_the_model(models_by_name: dict[str, Model], typed: str, id: str) -> None:
    assert models_by_name[model_key(typed)].id == id


def test_our_own_count_of_every_config_is_the_stated_one(catalog: Catalog) -> None:
    built = [model for model in catalog.models if model.config["model_type"] != "traced"]
    counted = {model.id: count_parameters(shape_from_config(model.config, model.id)).total for model in built}
    assert counted == {model.id: model.parameters for model in built}


def test_traced_models_name_a_table_and_the_image_they_were_made_for(catalog: Catalog) -> None:
    traced = {model.id: model.config for model in catalog.models if model.config["model_type"] == "traced"}
    assert {key for config in traced.values() for key in config} == {"model_type", "table", "image", "denoiser", "pipeline"}
    shared = {"wan2.2-a14b"}  # Its two transformers have the sizes of Wan 2.1 14B's.
    assert len({config["table"] for config in traced.values()}) == len(traced) - len(shared)
    assert [traced[id]["image"] for id in ("resnet50", "inception_v3", "efficientnet_b7", "ssd300_vgg16")] == [224, 299, 600, 300]


def test_traced_models_have_the_parameters_and_the_image_of_their_table(catalog: Catalog) -> None:
    traced = [model for model in catalog.models if model.config["model_type"] == "traced"]
    tables = {model.id: load_table(model.config["table"]) for model in traced}
    auxiliary = {"googlenet": 6_379_984}  # heads that are trained, and not in the published weights
    assert {id: (table.parameters - auxiliary.get(id, 0), table.image) for id, table in tables.items()} == {
        model.id: (model.parameters, model.config["image"]) for model in traced
    }


def test_configs_survive_a_cache_round_trip(catalog: Catalog) -> None:
    models = Catalog(catalog.folder).models
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(models), type=tuple[Model, ...]) == models
    assert models == Catalog(catalog.folder).models


def test_a_layer_count_is_in_every_transformer_config(catalog: Catalog) -> None:
    keys = {"num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "hybrid_override_pattern"}
    for model in catalog.models:
        if model.kind == "transformer":
            inner = model.config.get("text_config") or model.config.get("llm_config") or model.config
            assert keys & inner.keys(), model.id


PLANTED: list[tuple[str, str, Callable[[Cells], object], str]] = [
    ("a config that is no JSON", "gpt2", lambda row: row.update(config='{"model_type":"gpt2",'), "bad-config"),
    ("a config that is a list", "gpt2", lambda row: row.update(config="[1]"), "bad-config"),
    ("a config without model_type", "gpt2", lambda row: row.update(config='{"n_embd":768}'), "bad-config"),
    ("a config on two lines", "gpt2", lambda row: row.update(config=row["config"].replace(",", ",\n", 1)), "bad-config"),
    ("a table without image", "vgg16", lambda row: row.update(config='{"model_type":"traced","table":"vgg16"}'), "bad-table"),
    ("millions for units", "gpt2", lambda row: row.update(parameters="124"), "implausible"),
    ("a digit lost", "llama-2-7b", lambda row: row.update(parameters="673841561"), "name-size"),
    ("fewer than its embedding", "bert-base", lambda row: row.update(parameters="10951429"), "too-few-parameters"),
    ("an alias of another", "opt-13b", lambda row: row.update(aliases="OPT 1.3B"), "shared-name"),
    ("a release to come", "gpt2", lambda row: row.update(released="2099-01-01"), "future-date"),
    ("no licence", "gpt2", lambda row: row.update(license=""), "required"),
]


@pytest.mark.parametrize(("id", "change", "check"), [case[1:] for case in PLANTED], ids=[case[0] for case in PLANTED])
@pytest.mark.sweep(3)
def test_injected_error_is_found(copy: Path, id: str, change: Callable[[Cells], object], check: str) -> None:
    spoil(copy, id, change)
    findings = {(finding.table, finding.key, finding.check) for finding in check_catalog(copy, TODAY).findings}
    assert ("models", id, check) in findings


def test_a_config_that_cannot_be_read_is_a_data_error_naming_the_model(copy: Path) -> None:
    spoil(copy, "gpt2", lambda row: row.update(config="{" + json.dumps("model_type")))
    with pytest.raises(DataError, match="gpt2") as caught:
        _ = Catalog(copy).models
    assert caught.value.kind == "bad-data"


# Parameters of the safetensors files on Hugging Face, as its pages state them (llmfit's list, 2026), without buffers.
STATED = {
    "qwen2.5-vl-3b": 3_754_622_976,
    "qwen2.5-vl-72b": 73_410_777_344,
    "qwen2-vl-7b": 8_291_375_616,
    "qwen3-vl-8b": 8_767_123_696,
    "qwen3-vl-235b-a22b": 235_670_022_896,
    "qwen3-coder-480b-a35b": 480_154_875_392,
    "command-r-plus-104b": 103_810_674_688,
    "command-a-111b": 111_057_580_032,
    "mistral-small-3.1-24b": 24_011_361_280,
    "nemotron-nano-9b-v2": 8_888_227_328,
    "nemotron-3-nano-30b-a3b": 31_577_937_344,
    "granite-4.0-h-tiny": 6_939_037_248,
    "falcon-h1-34b": 33_642_516_224,
    "lfm2-2.6b": 2_569_272_320,
    "hunyuan-a13b": 80_393_183_232,
    "seed-oss-36b": 36_151_104_512,
    "llava-v1.6-mistral-7b": 7_566_747_648,
    "internvl3-8b": 7_944_373_760,
    "llama-3.2-11b-vision": 10_670_220_835,
    "nomic-embed-text-v1.5": 136_731_648,
    "falcon-mamba-7b": 7_272_665_088,
}


@pytest.mark.parametrize(("name", "parameters"), STATED.items())
def test_parameters_are_those_stated_on_hugging_face(catalog: Catalog, name: str, parameters: int) -> None:
    model = next(model for model in catalog.models if model.id == name)
    assert count_parameters(shape_from_config(model.config, name)).total == model.parameters == parameters


def test_repositories_are_of_known_models_and_no_model_has_them_as_its_own(catalog: Catalog) -> None:
    own = {alias for model in catalog.models for alias in model.aliases}
    assert {row.model for row in catalog.repositories} <= {model.id for model in catalog.models}
    assert sum(len(row.repositories) for row in catalog.repositories) > 6_000
    assert not own & {name for row in catalog.repositories for name in row.repositories}


FROZEN = 53_120  # scales and offsets of a ResNet-50's batch normalisations, which torchvision's detectors freeze and do not count
AUXILIARY = 2_365_205  # head on the third stage that torchvision's segmenters have in their weights, and which is not run here
MASK_POSITIONS = 2 * 128  # random matrix of Segment Anything's positions, a constant
# Parameters as published: Ultralytics' model files, torchvision's table of weights, the repositories of DETR, SAM and SegFormer.
DETECTORS = {
    "yolov5n": 1_872_157,
    "yolov5s": 7_235_389,
    "yolov5m": 21_190_557,
    "yolov5l": 46_563_709,
    "yolov5x": 86_749_405,
    "yolov8n": 3_157_200,
    "yolov8s": 11_166_560,
    "yolov8m": 25_902_640,
    "yolov8l": 43_691_520,
    "yolov8x": 68_229_648,
    "yolo11n": 2_624_080,
    "yolo11s": 9_458_752,
    "yolo11m": 20_114_688,
    "yolo11l": 25_372_160,
    "yolo11x": 56_966_176,
    "fasterrcnn_resnet50_fpn": 41_755_286 + FROZEN,
    "retinanet_resnet50_fpn": 34_014_999 + FROZEN,
    "fcos_resnet50_fpn": 32_269_600 + FROZEN,
    "ssdlite320_mobilenet_v3_large": 3_440_060,
    "fcn_resnet50": 35_322_218 - AUXILIARY,
    "deeplabv3_resnet50": 42_004_074 - AUXILIARY,
    "lraspp_mobilenet_v3_large": 3_221_538,
    "detr_resnet50": 41_524_768,
    "sam_vit_b": 93_735_472 + MASK_POSITIONS,
    "sam_vit_l": 312_342_832 + MASK_POSITIONS,
    "sam_vit_h": 641_090_608 + MASK_POSITIONS,
    "segformer_b0": 3_752_694,
    "r3d_18": 33_371_472,
    "mc3_18": 11_695_440,
}


@pytest.mark.parametrize(("name", "parameters"), DETECTORS.items())
def test_detectors_and_segmenters_have_their_published_parameters(name: str, parameters: int) -> None:
    assert load_table(name).parameters == parameters


@pytest.mark.parametrize("name", ["yolov8m", "yolo11x", "faster-rcnn", "detr", "segment-anything", "deeplabv3", "segformer"])
def test_detectors_and_segmenters_are_estimated_by_name(name: str) -> None:
    answer = whichgpu.estimate("train", name, gpu="RTX 4090", batch=8)
    assert answer.time is not None
    assert answer.memory.value > 2**30
