"""A plan's request: files, flags and documents say the same; what is wrong is named."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace

from whichgpu.api.plan.command import relaxed_command
from whichgpu.api.plan.plan_file import from_document, parse_quotas, read_plan, requested_model
from whichgpu.api.request.plan_settings import parse_histogram, parse_hours
from whichgpu.base.errors import UsageError
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.serve_command import serve_words
from whichgpu.decide.launch.skypilot import service as skypilot_service
from whichgpu.decide.launch.targets import LaunchPlan, launch_files
from whichgpu.decide.plan.comparisons import parse_sweep
from whichgpu.decide.plan.question import echo, parse_owned, to_document

FILE = """
horizon = "12 months"
term = ["on-demand", "spot"]
headroom = 0.2
only_owned = false

[[model]]
name = "llama-3.1-8b"
rate = "20/s"
in = 1000
out = 300
tpot = "50ms"
latency = "20s"
in_histogram = { 100 = 1, 2000 = 3 }
hourly = [1, 2, 3]

[[job]]
name = "tune"
task = "finetune"
model = "llama-3.1-8b"
deadline = "24h"

[[owned]]
gpu = "V100 SXM 16GB"
gpus = 8
power_cost = "0.04usd/h"

[quota]
"H100 SXM" = 16
"""


def test_a_file_is_read_whole_and_reads_back_from_its_document(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(FILE)
    question = read_plan(path)
    assert question.horizon == 8760.0
    assert question.filters["term"] == "on-demand,spot"
    (model,) = question.models
    assert model.fields == {"rate": "20/s", "seq_in": "1000", "seq_out": "300", "tpot_max": "50ms"}
    assert (model.latency_max, model.hourly, model.in_histogram) == (20.0, (1.0, 2.0, 3.0), {100.0: 1.0, 2000.0: 3.0})
    assert question.jobs[0].deadline == 86400.0
    assert (question.owned[0].gpus, question.owned[0].power_cost) == (8, "0.04usd/h")
    assert question.quotas == {"H100 SXM": 16.0}
    again = from_document(to_document(question))
    assert (again.models, again.jobs, again.owned, again.quotas) == (
        question.models,
        question.jobs,
        question.owned,
        question.quotas,
    )
    assert (again.horizon, again.headroom, again.filters) == (question.horizon, question.headroom, question.filters)


CONFIG = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32}


@pytest.mark.parametrize("fields", [{"model": CONFIG}, {"name": json.dumps(CONFIG)}, {"name": "mine", "model": CONFIG}])
def test_a_model_may_be_its_config_as_a_table_or_as_json(fields: dict[str, object]) -> None:
    (model,) = from_document({"model": [fields]}).models
    assert model.model == CONFIG
    assert model.name == ("mine" if fields.get("name") == "mine" else "llama")
    assert from_document(to_document(from_document({"model": [fields]}))).models == (model,)


def test_an_echo_marks_its_defaults() -> None:
    echoed = echo(from_document({"headroom": 0.3}))
    assert echoed["headroom"] == 0.3
    assert "headroom" not in echoed["defaults"]
    assert {"horizon", "levels", "tolerance"} <= set(echoed["defaults"])


@pytest.mark.parametrize(
    "content",
    [
        {"horizn": "1y"},
        {"headroom": 2},
        {"levels": 0},
        {"model": [{"rate": "1/s"}]},
        {"model": [{"name": "m", "speed": 3}]},
        {"model": [{"name": "m", "gpu": "T4"}]},
        {"model": [{"name": "m"}] * 101},
        {"model": [{"name": "m", "gpus": 4}]},
        {"job": [{"name": "j", "task": "train", "model": "m", "gpu": "T4", "deadline": "1h"}]},
        {"model": "llama"},
        {"job": [{"name": "j", "task": "train"}]},
        {"owned": [{"gpu": "T4", "gpus": -1}]},
        {"quota": {"T4": "many"}},
        {"quota": {"T4": 10**400}},
        {"model": [{"name": "m", "hourly": [-1]}]},
        {"model": [{"name": "m", "in_histogram": {"0": 1}}]},
        {"only_owned": "yes"},
        {"horizon": -3},
        {"model": [{"name": "{not json"}]},
    ],
)
def test_a_wrong_key_or_value_is_refused(content: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        from_document(content)


def test_words_of_flags() -> None:
    assert parse_hours("12 months") == 8760.0
    assert parse_hours("720h") == 720.0
    assert parse_hours(100) == 100.0
    assert parse_histogram("100:1,200:3") == {100.0: 1.0, 200.0: 3.0}
    assert [(one.gpu, one.gpus) for one in parse_owned("8xV100-SXM-16GB,T4")] == [("V100-SXM-16GB", 8), ("T4", 1)]
    assert parse_quotas("H100 SXM=16,A100=4") == {"H100 SXM": 16.0, "A100": 4.0}
    for bad in ("T4=\u00b2", "T4=\u0663", "T4=" + "9" * 400, "T4=-1", "T4=1.5", "=3", "T4"):
        with pytest.raises(UsageError):
            parse_quotas(bad)
    for bad in ("100:nan", "nan:1", "inf:1", "100:1e400", "100:0", "0:1"):
        with pytest.raises(UsageError):
            requested_model({"model": "llama-3.1-8b", "in_histogram": bad}, "--in-histogram")
    assert parse_sweep("rate=1/s,2/s") == ("rate", (1.0, 2.0))
    for bad in ("speed=1", "rate=", "tpot=0ms"):
        with pytest.raises(UsageError):
            parse_sweep(bad)


def test_no_command_undoes_a_setting_of_the_plan_file(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(FILE.replace("only_owned = false", "only_owned = true"))
    question = read_plan(path)

    def command(**changes: object) -> str | None:
        return relaxed_command(replace(question, **changes), date(2026, 11, 15), None, True)

    assert command() == f"whichgpu plan {path} --as-of=2026-11-15"
    assert "--headroom=0.3" in (command(headroom=0.3) or "")
    assert "--provider=aws" in (command(filters={**question.filters, "provider": "aws"}) or "")
    assert command(headroom=None) is None
    assert command(filters={}) is None
    assert command(only_owned=False) is None
    assert command(jobs=()) is None


def test_hints_set_count_degree_and_batch_for_each_tool() -> None:
    options = LaunchOptions(
        "g", "org/model", 3, "a100-sxm-80gb", 2, 2, 64, 4096, 8192, "bf16", 0.9, "aws", "p4de", "us-east-1", True
    )
    assert "--tensor-parallel-size=2" in serve_words(options, "vllm")
    assert "--max-num-seqs=64" in serve_words(options, "vllm")
    assert {"--tp-size=2", "--max-running-requests=64"} <= set(serve_words(options, "sglang"))
    service = skypilot_service(options, "vllm")
    assert service["resources"]["accelerators"] == "A100-80GB:2"
    assert service["resources"]["use_spot"] is True
    assert service["service"]["replica_policy"]["min_replicas"] == 3
    assert "vllm.sh" in launch_files("vllm", LaunchPlan((options,), "vllm"))
    assert 'name: "g"' in launch_files("skypilot", LaunchPlan((options,), "vllm"))["g.yaml"].splitlines()
