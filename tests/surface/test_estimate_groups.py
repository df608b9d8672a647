"""`estimate` of several GPUs: time with a range and a tier of its own, the layout, what messages cost, where scaling stops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.surface.cli import call


def document(*argv: str) -> Any:
    return call(*argv, "--json").json()


def test_several_gpus_have_a_time_with_a_range_and_a_tier() -> None:
    answer = document("estimate", "serve", "llama-2-70b", "--gpu", "h100-sxm", "--gpus", "8")
    time = answer["time"]
    assert 0 < time["low"] < time["value"] < time["high"]
    assert answer["tier"] == "measured"
    assert answer["bound"] in ("compute", "bandwidth", "overhead", "interconnect")
    assert answer["ttft"]["value"] > time["value"]
    group = answer["group"]
    assert group["layout"] == "tp=8"
    assert group["links"] == "nvswitch"
    assert 0 < group["communication_share"] < 1
    assert [point["gpus"] for point in group["scaling"]["points"]][:4] == [1, 2, 4, 8]


def test_one_gpu_has_no_group() -> None:
    assert "group" not in document("estimate", "serve", "llama-3.1-8b", "--gpu", "h100-sxm")


def test_notes_name_the_layout_the_links_and_the_scaling_limit() -> None:
    done = call("estimate", "train", "resnet50", "--gpu", "4xt4", "--batch", "256", "--precision", "amp-fp16")
    assert done.code == 0
    assert "On 4xt4 (4 GPUs, layout dp=4) a training step takes" in done.err
    assert "layout dp=4" in done.err
    assert "linked by PCIe" in done.err
    assert "GPUs" in done.err


def test_a_machine_brings_its_links() -> None:
    done = call("estimate", "train", "bert-large", "--gpu", "p3.16xlarge", "--batch", "64")
    assert "assumed to be linked" not in done.err
    assert document("estimate", "train", "bert-large", "--gpu", "p3.16xlarge", "--batch", "64")["group"]["links"] == "cube-mesh"


def test_link_and_network_flags_are_accepted() -> None:
    words = ("estimate", "train", "vgg16", "--gpu", "a100-sxm-40gb", "--gpus", "16", "--nodes", "2", "--batch", "512")
    fast = document(*words)
    slow = document(*words, "--network", "ethernet", "--network-gbps", "1")
    assert slow["time"]["value"] > 2 * fast["time"]["value"]
    assert slow["bound"] == "interconnect"
    assert (slow["request"]["network"], slow["request"]["network_gbps"]) == ("ethernet", 1)


def test_the_best_layout_is_chosen_and_shown() -> None:
    words = ("estimate", "train", "llama-3.1-8b", "--gpu", "a100-sxm-80gb", "--gpus", "8", "--batch", "64")
    best = document(*words, "--best-layout")
    request = best["request"]
    copies = request["parallel"]["dp"]
    assert request["micro_batch"] * request["accumulation"] * copies == 64
    assert best["fits"] in ("fits", "tight")


def test_no_layout_is_an_answer_too() -> None:
    done = call("estimate", "train", "llama-3.1-405b", "--gpu", "rtx-4090", "--gpus", "8", "--best-layout", "--json")
    assert done.code == 1
    assert done.json()["error"]["kind"] == "no-layout"


def test_the_best_layout_is_of_the_precision_the_gpu_runs() -> None:
    """A T4 has no bf16 units: the layout is searched and shown in fp16, the usual precision there."""
    best = document("estimate", "batch", "llama-2-7b", "--gpu", "t4", "--gpus", "4", "--batch", "4", "--best-layout")
    assert best["request"]["precision"] == "fp16"
    assert "precision" in best["request"]["defaults"]


def test_lines_of_a_file_may_request_several_gpus(tmp_path: Path) -> None:
    requests = [
        {"task": "train", "model": "resnet50", "gpu": gpu, "gpus": gpus, "batch": 256}
        for gpu in ("h100-sxm", "t4")
        for gpus in (1, 4)
    ]
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(request) + "\n" for request in requests))
    replies = [json.loads(line) for line in call("estimate", "--requests", str(path)).out.splitlines()]
    assert ["group" in reply for reply in replies] == [False, True, False, True]
    for request, reply in zip(requests, replies, strict=True):
        words = ("--gpu", str(request["gpu"]), "--gpus", str(request["gpus"]), "--batch", "256")
        alone = document("estimate", "train", "resnet50", *words)
        compared = "time throughput tier calibrated checked group warnings".split()
        assert {name: reply.get(name) for name in compared} == {name: alone.get(name) for name in compared}


@pytest.mark.parametrize("word", ["--interconnect", "--network"])
def test_unknown_links_are_refused_with_those_there_are(word: str) -> None:
    done = call("estimate", "train", "resnet50", "--gpu", "4xt4", word, "string-and-cups", "--json")
    assert done.code == 2
    assert done.json()["error"]["choices"]
