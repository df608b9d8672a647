"""Engines and what precisions cost: every engine of a request is in the table, runs where it can, and says where from."""

from __future__ import annotations

import csv
from datetime import date
from pathlib import Path

import pytest

from tests.copies import copy_tables
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import english
from whichgpu.catalog.accuracy import accuracy_note
from whichgpu.catalog.checks import check_catalog
from whichgpu.catalog.engines.engine import Engine, engine_support, may_run_on, supports_task
from whichgpu.catalog.engines.registry import engine_entries, engine_ids
from whichgpu.catalog.schema import schema
from whichgpu.catalog.store import Catalog
from whichgpu.workload.engine_support import check_engine
from whichgpu.workload.kinds import Word
from whichgpu.workload.models import find_model
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.tasks import Task
from whichgpu.workload.workload import KINDS, Workload

UNITS = {"MiB", "GiB", "byte", "share", "flag", "token", "row", "sequence", "s", "call/layer", "call/attention", "GPU:share",
         "GiB:token", "GiB:sequence", "step"}  # fmt: skip
TASKS = {"train", "prefill", "decode", "forward", "serve", "batch"}


@pytest.fixture(scope="module")
def engines(catalog: Catalog) -> dict[str, Engine]:
    return {engine.id: engine for engine in catalog.engines}


def test_the_table_holds_the_engines_a_request_can_name_and_no_others(engines: dict[str, Engine]) -> None:
    assert tuple(engines) == engine_ids()


def test_every_row_is_complete(engines: dict[str, Engine], catalog: Catalog) -> None:
    precision = KINDS["precision"]
    assert isinstance(precision, Word)
    for engine in engines.values():
        assert engine.what
        assert engine.maker
        assert set(engine.tasks) <= TASKS
        assert set(engine.precisions) <= set(precision.choices), engine.id
        assert all(id in catalog.sources for id in engine.sources)


# yes: documented of the present release; earlier: of an older one; unsure: undocumented; no: impossible
RUNS = {
    ("vllm", "h200-sxm"): "yes",
    ("vllm", "t4"): "yes",
    ("vllm", "v100-sxm-16gb"): "earlier",  # compute capability 7.0 up to 2025
    ("vllm", "gtx-1080-ti"): "no",
    ("vllm", "mi300x"): "yes",
    ("vllm", "rx-7900-xtx"): "yes",
    ("vllm", "rx-6800"): "unsure",
    ("sglang", "mi300x"): "yes",
    ("sglang", "rx-7900-xtx"): "unsure",
    ("tensorrt-llm", "a100-sxm-80gb"): "yes",
    ("tensorrt-llm", "v100-sxm-16gb"): "earlier",
    ("tensorrt-llm", "mi300x"): "no",
    ("tensorrt", "mi300x"): "no",
    ("tensorrt", "t4"): "yes",
    ("tensorrt", "v100-sxm-16gb"): "earlier",
    ("tensorrt", "k80"): "earlier",
    ("llama.cpp", "gtx-1080-ti"): "yes",
    ("llama.cpp", "mi300x"): "yes",
    ("llama.cpp", "rx-5700-xt"): "unsure",  # Vulkan
    ("llama.cpp", "apple-m2"): "yes",
    ("llama.cpp", "arc-a770-16gb"): "yes",
    ("llama.cpp", "tpu-v4"): "no",
    ("pytorch", "h100-sxm"): "yes",
    ("pytorch", "k80"): "earlier",
    ("pytorch", "m2050"): "no",
    ("pytorch-compile", "gtx-1080-ti"): "no",
    ("pytorch-compile", "mi300x"): "yes",
    ("cuda-graphs", "apple-m2"): "no",
    ("ngc", "mi300x"): "no",
    ("mxnet", "v100-sxm-16gb"): "yes",
    ("mxnet", "mi300x"): "no",
    ("tensorflow", "tpu-v4"): "unsure",
}


@pytest.mark.parametrize(("pair", "expected"), RUNS.items(), ids=lambda value: "-on-".join(value) if len(value) == 2 else value)
def test_gpus_supported_by_engines(pair: tuple[str, str], expected: str, engines: dict[str, Engine], catalog: Catalog) -> None:
    engine, gpu = engines[pair[0]], catalog.gpu_by_id[pair[1]]
    assert engine_support(engine, gpu) == expected
    assert may_run_on(engine, gpu) is (expected != "no")


@pytest.mark.parametrize("gpu", [gpu.id for gpu in Catalog().gpus])
def test_every_gpu_has_an_engine_that_may_run_on_it(gpu: str, engines: dict[str, Engine], catalog: Catalog) -> None:
    """Fermi, old Kepler, Radeon RX 5700 and the first Inferentia have llama.cpp, MXNet or an old release at best."""
    assert any(may_run_on(engine, catalog.gpu_by_id[gpu]) for engine in engines.values())


def test_features_of_engines(engines: dict[str, Engine]) -> None:
    assert not supports_task(engines["vllm"], "train")
    assert not supports_task(engines["tensorrt"], "finetune")
    assert supports_task(engines["pytorch"], "finetune")
    assert supports_task(engines["vllm"], "serve")
    assert not supports_task(engines["vllm"], "forward", text=False)
    assert supports_task(engines["tensorrt"], "forward", text=False)


def checked(catalog: Catalog, task: Task, model: str, engine: str | None, gpu: str | None) -> list[str]:
    shape = find_model(model, catalog)
    workload = fill_defaults(Workload(task, model, engine=engine), shape)
    device = catalog.gpu_by_id[gpu] if gpu else None
    messages = check_engine(workload, shape, device, catalog.engines, {"engine"} if engine else ())
    return [english().render(message) for message in messages]


@pytest.mark.parametrize(
    ("task", "model", "engine", "gpu"),
    [
        ("train", "llama-3.1-8b", "vllm", "h200-sxm"),
        ("finetune", "llama-3.1-8b", "tensorrt-llm", None),
        ("serve", "llama-3.1-8b", "tensorrt-llm", "mi300x"),
        ("forward", "resnet50", "tensorrt", "mi300x"),
        ("forward", "resnet50", "vllm", "h200-sxm"),
        ("train", "resnet50", "mxnet", "mi300x"),
        ("decode", "llama-3.1-8b", "vllm", "gtx-1080-ti"),
    ],
)
def test_the_impossible_is_refused_with_engines_that_can(
    task: Task, model: str, engine: str, gpu: str | None, catalog: Catalog
) -> None:
    with pytest.raises(UsageError) as caught:
        checked(catalog, task, model, engine, gpu)
    assert caught.value.kind == "engine-impossible"
    assert caught.value.hint is not None
    assert caught.value.choices
    assert engine not in caught.value.choices
    for other in caught.value.choices:
        checked(catalog, task, model, other, gpu)


def test_the_doubtful_is_a_warning(catalog: Catalog) -> None:
    assert "earlier" in checked(catalog, "serve", "llama-3.1-8b", "vllm", "v100-sxm-16gb")[0]
    assert "no source says" in checked(catalog, "serve", "llama-3.1-8b", "sglang", "rx-7900-xtx")[0]
    assert checked(catalog, "serve", "llama-3.1-8b", "vllm", "h200-sxm") == []


def test_a_default_engine_is_never_refused(catalog: Catalog) -> None:
    for gpu in catalog.gpus:
        for task in ("train", "serve", "decode"):
            checked(catalog, task, "llama-3.2-1b", None, gpu.id)
    assert "default" in checked(catalog, "decode", "llama-3.2-1b", None, "apple-m2")[0]


def test_the_cost_of_int8_bert_is_known_with_its_source(catalog: Catalog) -> None:
    """The slides of 2019 that a post quotes: 6.43% of F1 lost, 0.67% with GELU clipped; MLPerf's own int8 model loses 0.89%."""
    note = accuracy_note(catalog.accuracy, catalog.models, "bert-large", "int8")
    assert note is not None
    assert {"nvidia-gtc2019-s9659", "mlperf-inference-bert"} <= set(note.sources)
    assert all(id in catalog.sources for id in note.sources)
    text = english().render(note.message)
    assert "6.43%" in text
    assert "0.67%" in text
    assert "90.874 to 90.067" in text
    assert 90.067 >= 0.99 * 90.874  # MLPerf's requirement


def test_accuracy_by_any_model_alias_and_none_if_unpublished(catalog: Catalog) -> None:
    accuracies, models = catalog.accuracy, catalog.models
    by_id, by_alias = (accuracy_note(accuracies, models, name, "int4") for name in ("llama-3.1-8b", "Llama 3.1 8B"))
    assert by_id is not None
    assert by_alias is not None
    assert by_id.sources == by_alias.sources
    assert accuracy_note(accuracies, models, "llama-3.1-8b", "bf16") is None
    assert accuracy_note(accuracies, models, "gpt2", "int8") is None
    assert accuracy_note(accuracies, models, "nonesuch", "int8") is None


@pytest.mark.parametrize(
    ("table", "key", "column", "value", "check"),
    [
        ("accuracy", "resnet50-int8-post", "loss_percent", "2.9", "loss-arithmetic"),
        ("accuracy", "resnet50-int8-post", "models", "resnet-fifty", "unknown-model"),
        ("accuracy", "bert-int8-post-2019", "loss_percent", "643", "implausible"),
        ("reference_mix", "sdxl-step", "request", "{}", "bad-request"),
    ],
)
def test_injected_error_is_found(table: str, key: str, column: str, value: str, check: str, tmp_path: Path) -> None:
    folder = copy_tables(tmp_path / "data")
    path = folder / f"{table}.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    next(row for row in rows if row["id"] == key)[column] = value
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(schema()[table]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    findings = {(finding.table, finding.key, finding.check) for finding in check_catalog(folder, date.today()).findings}
    assert (table, key, check) in findings


@pytest.mark.parametrize(
    ("field", "value", "source", "check"),
    [
        ("tasks", "serve;cook", "", "unknown-word"),
        ("interfaces", "cuda;punchcards", "", "unknown-word"),
        ("amd_targets", "gfx1", "", "unknown-word"),
        ("min_capability_ever", "8.0", "", "capability-order"),
        ("sources", "hearsay", "", "unknown-source"),
        ("memory.share", "most of it", "https://example.org", "bad-record"),
        ("memory.share", "0.9", "hearsay", "unknown-source"),
        ("memory.speed", "1", "https://example.org", "bad-record"),
        ("limits.like", "nonesuch", "", "bad-record"),
        ("flavour", "sweet", "", "bad-record"),
    ],
)
@pytest.mark.sweep(3)
def test_error_injected_into_a_record_is_found(field: str, value: str, source: str, check: str, tmp_path: Path) -> None:
    folder = copy_tables(tmp_path / "data")
    path = folder / "engines" / "vllm.csv"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith(f"{field},")]
    path.write_text("\n".join([*lines, f"{field},,{value},,{source},"]) + "\n", encoding="utf-8")
    findings = {(finding.table, finding.key, finding.check) for finding in check_catalog(folder, date.today()).findings}
    assert ("engines", "vllm", check) in findings


def test_values_that_decide_memory_or_limits_have_a_unit() -> None:
    for engine, lines in engine_entries().items():
        for line in lines:
            section, _, name = line.field.partition(".")
            if section in ("memory", "limits", "host") and name not in ("like", "reservation", "large_gpu_except"):
                assert line.unit in UNITS, (engine, line.field)


def test_reference_mix_is_valid_for_every_gpu(catalog: Catalog) -> None:
    for item in catalog.reference_mix:
        shape = find_model(item.request["model"], catalog)
        for precision in item.precisions:
            workload = fill_defaults(from_object({**item.request, "precision": precision}).workload, shape)
            assert workload.precision == precision
            assert workload.batch == item.request["batch"]


def test_weights_of_an_index_that_do_not_add_up_are_found(tmp_path: Path) -> None:
    folder = copy_tables(tmp_path / "data")
    path = folder / "reference_mix.csv"
    path.write_text(
        path.read_text(encoding="utf-8").replace("resnet50-train,cnn-training,0.5", "resnet50-train,cnn-training,0.6")
    )
    findings = {(finding.table, finding.key, finding.check) for finding in check_catalog(folder, date.today()).findings}
    assert ("reference_mix", "cnn-training", "weights") in findings
