"""`whichgpu explain`: files that --emit writes and files people have, read back as workloads with their GPUs and speed."""

from __future__ import annotations

from pathlib import Path

import pytest

import whichgpu
from tests.surface.cli import assert_refused, assert_refused_json, call
from tests.unit.workload.config_files.test_reader import AXOLOTL, COMPOSE

ESTIMATE = ("estimate", "serve", "llama-3.1-8b", "--gpu", "H100 SXM", "--gpus", "2", "--tp", "2")


@pytest.mark.parametrize(
    ("target", "precision"),
    [*((target, "fp8") for target in ("vllm", "sglang", "docker", "slurm", "skypilot", "kubernetes")), ("vllm", "int4")],
)
def test_what_is_emitted_is_explained_as_what_was_estimated(target: str, precision: str, tmp_path: Path) -> None:
    emitted = call(*ESTIMATE, "--precision", precision, "--batch", "8", "--emit", target, "--json").json()["emitted"]
    (name, content), *_ = emitted.items()
    (tmp_path / name).write_text(content)
    answer = call("explain", str(tmp_path / name), "--json").json()
    config = answer["config"]
    assert answer["ok"]
    assert config["fields"]["model"] == "llama-3.1-8b"
    assert config["fields"]["parallel"] == {"tp": 2}
    assert (config["fields"]["precision"], config["fields"]["gpus"], config["max_sequences"]) == (precision, 2, 8)
    assert config["context"] == 5120
    assert config["fields"]["seq_in"] + config["fields"]["seq_out"] == 5120
    assert not config["unread"]


def test_text_names_needs_verdicts_and_speed(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    reply = call("explain", str(tmp_path / "compose.yaml"), "--gpu", "H100 SXM", "--gpu", "T4")
    assert reply.code == 0, reply.err
    assert reply.err.startswith("compose.yaml (docker-compose): task serve, engine vllm, model llama-3.1-8b")
    assert [(row[0], row[3]) for row in reply.tsv()[1:]] == [("H100 SXM", "fits"), ("T4", "no")]
    assert "1 request at a time: " in reply.err
    assert "requests at once: " in reply.err


@pytest.mark.long
def test_a_training_config_runs_on_as_many_gpus_as_requested(tmp_path: Path) -> None:
    (tmp_path / "qlora.yml").write_text(AXOLOTL)
    one = call("explain", str(tmp_path / "qlora.yml"), "--gpu", "A100-SXM-80GB", "--json").json()
    four = call("explain", str(tmp_path / "qlora.yml"), "--gpu", "A100-SXM-80GB", "--gpus", "4", "--json").json()
    assert (one["config"]["fields"]["batch"], four["config"]["fields"]["batch"]) == (8, 32)
    assert four["config"]["fields"]["parallel"] == {"dp": 4}
    assert four["estimates"][0]["throughput"]["value"] > 2 * one["estimates"][0]["throughput"]["value"]
    assert call("explain", str(tmp_path / "qlora.yml"), "--gpu", "T4").code == 1


def test_sharding_of_a_file_is_over_the_gpus_that_are_stated() -> None:
    text = "python t.py --model_name_or_path llama-3.1-8b --per_device_train_batch_size 1 --bf16 --deepspeed ds_z3_config.json"
    one, four = (whichgpu.explain(text=text, gpu="H100 SXM", gpus=gpus) for gpus in (None, 4))
    assert four.config.fields["parallel"] == {"zero": 3, "dp": 4}
    assert (one.fit.gpus[0].fits, four.fit.gpus[0].fits) == ("no", "fits")
    assert "shards over GPUs (ZeRO 3)" in str(one.fit.warnings[-1])
    assert not [warning for warning in four.fit.warnings if "ZeRO" in str(warning)]


def test_models_that_are_not_built_in_are_named_by_the_user(tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text("vllm serve me/mine --max-model-len 4096")
    assert assert_refused_json(call("explain", str(path), "--json"), 2)["kind"] == "unknown-model"
    assert call("explain", str(path), "--model", "llama-3.1-8b", "--gpu", "L4").code in (0, 1)
    path.write_text("vllm serve")
    assert assert_refused_json(call("explain", str(path), "--json"), 2)["kind"] == "missing-model"


def test_missing_files_and_a_missing_parser_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_refused(call("explain", str(tmp_path / "none.sh")), 2)
    assert_refused(call("explain", str(tmp_path)), 2)
    (tmp_path / "a.yaml").write_text(AXOLOTL)
    monkeypatch.setattr("whichgpu.workload.config_files.reader.find_spec", lambda _: None)
    assert 'pip install "whichgpu[yaml]"' in call("explain", str(tmp_path / "a.yaml")).err


@pytest.mark.parametrize(
    ("words", "code", "verdicts"),
    [
        (("--gpu", "H100 SXM"), 0, [("fits", None)]),
        (("--gpu", "H100 SXM", "--gpu", "T4"), 1, [("fits", None), ("no", None)]),
        (("--gpu", "H100 SXM", "--budget", "100usd/h"), 0, [("fits", True)]),
        (("--gpu", "H100 SXM", "--budget", "0.01usd/h"), 1, [("fits", False)]),
    ],
)
def test_check_is_a_test_for_ci(
    words: tuple[str, ...], code: int, verdicts: list[tuple[str, bool | None]], tmp_path: Path
) -> None:
    (tmp_path / "serve.sh").write_text("vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192\n")
    reply = call("check", str(tmp_path / "serve.sh"), *words, "--as-of", "2026-10-01", "--json")
    answer = reply.json()
    assert (reply.code, answer["ok"], answer["passed"]) == (code, code == 0, code == 0)
    assert [(row["fits"], row["is_within_budget"]) for row in answer["gpus"]] == verdicts
    text = call("check", str(tmp_path / "serve.sh"), *words, "--as-of", "2026-10-01")
    assert text.err.startswith("serve.sh: " + ("passed." if code == 0 else "failed."))
    for row in answer["gpus"]:
        assert bool(row["price_observed_at"]) == ("--budget" in words)
        assert (row["price_observed_at"] or "") in text.out
    assert text.code == code


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("serve.sh", "vllm serve llama-3.1-8b --max-model-len=-5 --tensor-parallel-size=0", "--tensor-parallel-size 0 (1 ..."),
        ("serve.sh", "vllm serve llama-3.1-8b --gpu-memory-utilization=nan", "--gpu-memory-utilization nan (0 < x <= 1)"),
        ("qlora.yaml", "base_model: llama-3.1-8b\nmicro_batch_size: -5\nsequence_len: 0", "micro_batch_size -5 (1 ..."),
    ],
)
def test_a_file_with_impossible_numbers_passes_no_check(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    for words in (("explain", str(tmp_path / name)), ("check", str(tmp_path / name), "--gpu", "H200 SXM")):
        assert assert_refused_json(call(*words, "--json"), 2)["kind"] == "bad-workload-value"
        assert message in call(*words).err


def test_layers_that_a_line_leaves_in_host_memory_are_not_on_the_gpu() -> None:
    line = "llama-server -m Qwen3-32B-Q4_K_M.gguf -c 2048 -ngl {}"
    offloaded, whole = (call("explain", line.format(layers), "--gpu", "RTX 3060 12GB", "--json").json() for layers in (37, 99))
    assert offloaded["config"]["fields"]["offload"] == {"layers": 28}
    assert [one["fit"]["gpus"][0]["fits"] for one in (offloaded, whole)] == ["fits", "no"]


def test_a_file_without_checkpointing_is_not_given_it(tmp_path: Path) -> None:
    text = "base_model: llama-3.1-8b\nsequence_len: 8192\nadapter: lora\nlora_r: 16\ngradient_checkpointing: false\n"
    (tmp_path / "lora.yaml").write_text(text)
    answer = call("explain", str(tmp_path / "lora.yaml"), "--gpu", "H100 SXM", "--json").json()
    fields = answer["config"]["fields"]
    assert (fields["checkpointing"], fields["micro_batch"], fields["batch"]) == ("none", 1, 1)
    assert [row["checkpointing"] for row in answer["fit"]["gpus"]] == ["none"]
    assert answer["fit"]["needed"]["value"] > 60 * 1024**3


@pytest.mark.parametrize(
    ("context", "code", "line"),
    [
        (30_000, 0, "warning: L4: the estimate, 20.76 GiB of 21.07 GiB, fits"),
        (34_000, 1, "L4: the estimate is 21.2"),
    ],
)
def test_a_tight_fit_passes_with_a_warning_and_an_estimate_above_the_memory_fails(context: int, code: int, line: str) -> None:
    reply = call("check", f"vllm serve meta-llama/Llama-3.1-8B --max-model-len {context}", "--gpu", "L4")
    assert reply.code == code
    assert line in reply.err
    assert "tight" in reply.out


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192 --gpu-memory-utilization 0.3",
        "sglang serve --model-path meta-llama/Llama-3.1-8B --context-length 8192 --mem-fraction-static 0.3",
    ],
)
def test_the_share_of_memory_in_a_line_limits_its_server(line: str) -> None:
    answer = whichgpu.check(text=line, gpu="L4")
    assert not answer.passed
    assert answer.gpus[0].usable < 8 * 1024**3


@pytest.mark.parametrize(
    ("options", "gpu", "reason", "warnings"),
    [
        ("", "L4", "check.short", ["explain.own-context"]),  # vLLM takes the model's own context.
        ("--max-model-len 500000", "MI325X", "check.refuses", []),
        ("--max-model-len 500000 --rope-scaling '{\"factor\": 4}'", "MI325X", None, ["explain.unread"]),
        ("--max-model-len 2048 --dtype bfloat16", "V100-SXM2-32GB", "check.no-bfloat16", []),
        ("--max-model-len -1 --odd x", "L4", None, ["explain.unread"]),  # vLLM chooses a length that fits.
        ("--max-model-len 30000", "L4", None, ["check.tight"]),
    ],
)
def test_check_fails_where_the_engine_would_not_start(options: str, gpu: str, reason: str | None, warnings: list[str]) -> None:
    answer = whichgpu.check(text=f"vllm serve meta-llama/Llama-3.1-8B {options}", gpu=gpu)
    assert [one.id for one in answer.reasons] == ([reason] if reason else [])
    assert answer.passed == (reason is None)
    assert [one.id for one in answer.warnings] == warnings
    (row,) = answer.gpus
    assert row.needed_range is not None
    assert row.needed_range.low < row.needed < row.needed_range.high


def test_a_file_passes_only_if_each_of_its_servers_fits() -> None:
    small, large = (f"vllm serve llama-3.1-{size} --max-model-len 8192" for size in ("8b", "70b"))
    answer = whichgpu.check(text=f"{small}\n{large}", gpu="H100 SXM")
    assert not answer.passed
    assert [str(reason) for reason in answer.reasons] == [
        "vllm llama-3.1-70b: H100 SXM: the estimate is 137.1 GiB, with 73.94 GiB usable."
    ]
    assert whichgpu.check(text=f"{small}\n{small}", gpu="H100 SXM").passed
    warnings = whichgpu.explain(text=f"{small}\n{large}", gpu="H100 SXM").fit.warnings
    assert "The file starts others too, which are not counted here: vllm llama-3.1-70b." in map(str, warnings)


def test_experts_stay_sharded_under_attention_data_parallel() -> None:
    line = "python -m sglang.launch_server --model-path {} --tp 8 --dp 8 --enable-dp-attention --context-length 8192"
    answer = whichgpu.check(text=line.format("deepseek-ai/DeepSeek-V3"), gpu="H200 SXM")
    assert answer.passed
    assert 80 < answer.gpus[0].needed / 2**30 < 110  # 671B parameters in FP8 on 8 GPUs, with attention on each
    dense = whichgpu.check(text=line.format("meta-llama/Llama-3.1-8B"), gpu="H200 SXM")
    assert "Not read: --enable-dp-attention." in map(str, dense.warnings)


def test_check_needs_a_gpu_and_a_price_per_hour(tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text("vllm serve meta-llama/Llama-3.1-8B\n")
    assert_refused(call("check", str(tmp_path / "serve.sh")), 2)
    assert_refused(call("check", str(tmp_path / "serve.sh"), "--gpu", "L4", "--budget", "5usd"), 2)
    assert_refused(call("check", str(tmp_path / "none.sh"), "--gpu", "L4"), 2)
