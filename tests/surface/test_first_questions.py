"""What a newcomer types first: short names, options given twice, missing options, and answers within a terminal's width."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from tests.surface.cli import assert_refused, call, terminal
from whichgpu.catalog.store import Catalog

WIDTH = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "llama-3.1-8b", "--gpu", "RTX 4090,RTX 4000 Ada"),
        ("offers", "--gpu", "H100", "--limit", "2", "--as-of", "2026-10-01"),
        ("compare", "T4", "--model", "llama-3.1-8b"),
    ],
    ids=lambda words: words[0],
)
def test_lines_on_a_terminal_are_whole_words_within_its_width(words: tuple[str, ...]) -> None:
    lines = terminal(*words, env=WIDTH).out.splitlines()
    assert [line for line in lines if len(line) > 80 and "://" not in line] == []
    piped = call(*words).err.splitlines()
    text = " ".join(" ".join(line.removesuffix("\\") for line in lines).split())
    assert piped[0] in text
    assert any(len(line) > 80 for line in piped)


def test_compare_leads_with_the_gpus_that_hold_the_model() -> None:
    request = ("compare", "T4", "H200 SXM", "--task", "decode", "--model", "llama-3.1-70b", "--precision", "fp8")
    reply = call(*request)
    first, second = reply.err.splitlines()[:2]
    assert "H200 SXM 1x." in first
    assert second.startswith("Too little memory: T4 (needs ")
    assert reply.tsv()[0][1:] == ["H200 SXM", "T4"]
    speeds = call(*request, "--json").json()["speed"]
    assert [speed["name"] for speed in speeds] == ["H200 SXM", "T4"]
    assert speeds[0]["relative"] == 1
    assert 0 < speeds[1]["relative"] < 1
    alone = call("compare", "T4", *request[3:])
    assert alone.err.startswith("None of them holds it: T4 (needs ")


def test_adapters_mean_finetuning_unless_an_engine_is_to_serve_them() -> None:
    request = ("fit", "llama-3.2-1b", "--gpu", "RTX 4090")
    assert " (finetune, " in call(*request, "--qlora").err
    assert " (finetune, " in call(*request, "--lora-rank", "8").err
    assert " (serve, " in call(*request, "--lora-rank", "8", "--engine", "vllm").err


def test_smallest_gpu_of_the_sentence_is_the_first_of_the_table() -> None:
    reply = call("fit", "llama-3.1-8b", "--as-of", "2026-10-01")
    assert reply.err.splitlines()[0].endswith(f"the smallest of which is {reply.tsv()[1][0]}.")


def test_an_estimate_without_a_gpu_says_what_gives_a_time() -> None:
    assert "--gpu h100-sxm" in call("estimate", "serve", "llama-3.2-1b").err
    assert "no --gpu" not in call("estimate", "serve", "llama-3.2-1b", "--gpu", "T4").err


def test_words_of_one_name_are_one_search() -> None:
    ids = [row["id"] for row in call("models", "qwen", "3", "--json").json()["models"]]
    assert "qwen3-8b" in ids
    assert all(id.startswith("qwen3") for id in ids)
    assert [row["id"] for row in call("models", "gpt2", "llama-3.1-8b", "--json").json()["models"]] == ["gpt2", "llama-3.1-8b"]
    either = {row["id"] for row in call("models", "gpt2", "mixtral", "--json").json()["models"]}
    assert {"gpt2", "mixtral-8x7b"} <= either


def test_name_of_a_gguf_file_that_is_not_here_means_the_built_in_model() -> None:
    request = call("fit", "llama-2-13b-chat.Q5_K_M.gguf", "--gpu", "RTX 4090", "--json").json()["request"]
    assert (request["precision"], request["engine"]) == ("q5_k_m", "llama.cpp")
    assert_refused(call("fit", "./llama-2-13b-chat.Q5_K_M.gguf"), 2)
    assert_refused(call("fit", "my-own-model.Q5_K_M.gguf"), 2)


def test_an_option_given_twice_is_refused_and_a_list_is_joined() -> None:
    reply = call("plan", "llama-3.1-8b", "gpt2", "--rate", "5/s", "--rate", "3/s")
    assert_refused(reply, 2)
    assert "[[model]]" in reply.err
    assert_refused(call("estimate", "decode", "gpt2", "--gpu", "T4", "--batch", "1", "--batch", "2"), 2)
    joined = call("offers", "--gpu", "T4", "--gpu", "L4", "--limit", "1", "--as-of", "2026-10-01")
    assert joined.err == call("offers", "--gpu", "T4,L4", "--limit", "1", "--as-of", "2026-10-01").err


def test_empty_names_and_absurd_rates_are_refused_by_name() -> None:
    assert "error: NAME cannot be ''" in call("gpus", "").err
    assert "at most 1,000,000/s" in call("plan", "llama-3.1-8b", "--rate", "1e9/s").err


def test_a_launch_target_of_another_task_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (
        "whichgpu.api.workloads.estimate.estimate_workload",
        "whichgpu.api.recommend.recommend.recommend_spelled",
        "whichgpu.api.plan.plan.plan",
    ):
        monkeypatch.setattr(place, lambda *_, **__: pytest.fail("the work was done first"))
    for words in ("estimate serve gpt2 --gpu T4", "recommend serve gpt2 --rate 1", "plan gpt2 --rate 1"):
        for target in ("torchrun", "nonsense"):
            assert_refused(call(*words.split(), "--emit", target), 2)


def test_several_launch_files_are_one_script_that_writes_them(tmp_path: Path) -> None:
    request = ("estimate", "train", "resnet50", "--gpu", "T4", "--batch", "64", "--emit", "deepspeed")
    files = call(*request, "--json").json()["emitted"]
    subprocess.run(["sh"], input=call(*request).out, encoding="utf-8", cwd=tmp_path, check=True)
    assert len(files) > 1
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_a_packed_trace_is_read(tmp_path: Path) -> None:
    lines = b"time,prompt,output\n0,100,20\n1,100,20\n2,120,30\n"
    plain, packed, cut = (tmp_path / name for name in ("a.csv", "a.csv.gz", "cut.csv.gz"))
    plain.write_bytes(lines)
    packed.write_bytes(gzip.compress(lines))
    cut.write_bytes(gzip.compress(lines)[:-12])
    request = ("estimate", "serve", "gpt2", "--gpu", "T4", "--trace")
    assert call(*request, str(packed)).out == call(*request, str(plain)).out
    assert_refused(call(*request, str(cut)), 2)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("offers h100 sxm", "whichgpu offers --gpu 'h100 sxm'"),
        ("price h100", "whichgpu offers --gpu h100"),
        ("fit llama 3.1 70b", "llama-3.1-70b"),
        ("fit --gpu T4", "whichgpu models --fits"),
        ("estimate gpt2 --gpu T4", "whichgpu estimate serve gpt2"),
        ("buy llama-3.1-8b", "whichgpu recommend chat llama-3.1-8b --buy"),
        ("compare T4 gpt2", "--model gpt2"),
    ],
)
def test_near_misses_are_answered_with_the_command_that_works(words: str, hint: str) -> None:
    reply = call(*words.split())
    assert_refused(reply, 2)
    assert hint in reply.err.splitlines()[-1]


def test_estimates_take_the_words_for_tasks_that_recommendations_do() -> None:
    request = ("gpt2", "--gpu", "T4", "--out", "20")
    assert call("estimate", "chat", *request).out == call("estimate", "serve", *request).out


def test_a_model_given_by_its_config_is_launched_from_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my models"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps(next(model.config for model in Catalog().models if model.id == "llama-3.2-1b"))
    )
    reply = call("estimate", "serve", str(folder / "config.json"), "--gpu", "L4", "--emit", "vllm")
    assert reply.out.splitlines()[-1].startswith(f"vllm serve '{folder}' --")


def test_a_command_line_is_explained_as_it_is() -> None:
    line = "vllm serve openai-community/gpt2 --max-model-len 512"
    assert call("explain", line, "--gpu", "T4").out == call("explain", "--text", line, "--gpu", "T4").out
