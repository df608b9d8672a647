"""`fit`, `estimate` of one workload and `models`, as a user meets them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.surface.cli import Reply, assert_refused, assert_refused_json, call, process, terminal
from whichgpu.api.facts.catalog import select_gpus
from whichgpu.api.workloads.estimate import estimate
from whichgpu.api.workloads.fit import fit_model
from whichgpu.base.errors import UsageError
from whichgpu.workload.workload import FIELDS

MODEL = "llama-3.1-8b"


def document(*argv: str, code: int = 0) -> dict[str, Any]:
    reply = call(*argv, "--json")
    assert reply.code == code, reply
    document = reply.json()
    assert isinstance(document, dict)
    return document


def test_fit_answers_in_the_contracts_fields() -> None:
    answer = document("fit", MODEL, "--gpu", "H100 SXM", "--gpu", "T4")
    assert {"request", "memory", "memory_device", "memory_parts", "gpus", "warnings", "basis", "sources"} <= set(answer)
    assert answer["ok"] is True
    assert set(FIELDS) | {"defaults"} == set(answer["request"])
    for figure in (answer["memory"], answer["memory_device"], *answer["memory_parts"].values()):
        assert set(figure) == {"value", "low", "high", "unit", "basis", "sources"}
        assert figure["low"] <= figure["value"] <= figure["high"]
        assert figure["unit"] == "byte"
    assert [row["gpu"] for row in answer["gpus"]] == ["h100-sxm", "t4"]
    assert [row["fits"] for row in answer["gpus"]] == ["fits", "no"]
    for row in answer["gpus"]:
        assert {"gpu", "fits", "headroom", "largest_batch", "largest_context", "remedies"} <= set(row)
        assert (row["headroom"] >= 0) == (row["fits"] == "fits")
    assert answer["gpus"][0]["largest_batch"] > 100
    assert answer["gpus"][0]["remedies"] == []
    ids = [remedy["id"] for remedy in answer["gpus"][1]["remedies"]]
    assert ids.index("quantise") < ids.index("more-gpus") < ids.index("next-gpu")
    assert all({"what", "change", "saves", "fits", "together"} <= set(remedy) for remedy in answer["gpus"][1]["remedies"])


def test_parts_add_up() -> None:
    answer = document("fit", MODEL, "--task", "train", "--batch", "8", "--gpu", "H200 SXM")
    total = sum(part["value"] for part in answer["memory_parts"].values())
    assert total == pytest.approx(answer["memory_device"]["value"], abs=len(answer["memory_parts"]))


def test_without_a_gpu_all_are_listed_and_the_smallest_named() -> None:
    reply = call("fit", MODEL)
    assert reply.code == 0
    assert len(reply.tsv()) == len(select_gpus().gpus) + 1
    assert "the smallest of which is" in reply.err.splitlines()[0]
    assert "KV cache" in reply.err
    assert "Assumptions: precision bf16" in reply.err


def test_many_gpus_and_one_agree_on_the_verdict() -> None:
    everything = {row["gpu"]: row for row in document("fit", MODEL)["gpus"]}
    for name in ("l4", "a100-sxm-80gb", "v100-sxm-16gb", "rtx-3090"):
        alone = call("fit", MODEL, "--gpu", name, "--json").json()["gpus"][0]
        assert alone["fits"] == everything[name]["fits"]
        assert alone["largest_batch"] == pytest.approx(everything[name]["largest_batch"], rel=0.1, abs=1)


def test_a_family_means_all_its_variants_and_commas_part_names() -> None:
    rows = document("fit", MODEL, "--gpu", "H100,T4")["gpus"]
    assert {"H100 PCIe", "H100 SXM", "H100 NVL", "T4"} == {row["gpu_name"] for row in rows}


def test_no_fit_exits_1_with_the_table_and_remedies() -> None:
    reply = call("fit", "llama-3.1-70b", "--gpu", "T4")
    assert reply.code == 1
    assert reply.err.startswith("error: ")
    assert "hint: " in reply.err
    assert reply.tsv()[1][0] == "T4"
    answer = document("fit", "llama-3.1-70b", "--gpu", "T4", code=1)
    assert answer["ok"] is False
    assert set(answer["error"]) == {"kind", "message", "hint", "choices"}
    assert answer["gpus"][0]["fits"] == "no"


def test_a_count_in_the_gpus_name_is_a_count_of_gpus() -> None:
    request = document("fit", "llama-3.1-70b", "--gpu", "8xA100-SXM-80GB")["request"]
    assert request["gpus"] == 8
    assert request["parallel"]["tp"] == 8
    assert document("estimate", "serve", MODEL, "--gpu", "p4d.24xlarge")["request"]["gpus"] == 8


def test_degrees_of_the_layout_have_flags_of_their_own() -> None:
    request = document("estimate", "train", MODEL, "--tp", "2", "--zero", "1", "--dp", "2", "--sp")["request"]
    assert request["gpus"] == 4
    assert request["parallel"] == {"dp": 2, "tp": 2, "pp": 1, "ep": 1, "cp": 1, "sp": True, "zero": 1}


def test_a_larger_batch_or_context_never_needs_less() -> None:
    sizes = [document("fit", MODEL, "--gpu", "H200 SXM", "--batch", str(batch))["memory"]["value"] for batch in (1, 2, 8, 64)]
    assert sizes == sorted(sizes)


def test_a_gtx_970_is_warned_about() -> None:
    reply = call("fit", "mlp:9000x4000x4000x32", "--task", "train", "--gpu", "GTX 970")
    assert reply.code == 0
    assert "3.5 GiB" in reply.err


def test_formula_of_2015_compared_with_the_estimate() -> None:
    argv = ("fit", "mlp:9000x4000x4000x32", "--task", "train", "--batch", "128", "--gpu", "T4", "--method", "blog-2015")
    answer = document(*argv)
    assert answer["memory"]["value"] / 2**30 == pytest.approx(0.607, abs=0.001)
    assert answer["basis"] == "published"
    assert any("whichgpu estimates" in warning for warning in answer["warnings"])


def test_estimate_answers_one_device() -> None:
    answer = document("estimate", "decode", MODEL, "--gpu", "H200 SXM", "--batch", "4", "--in", "4096")
    assert answer["ok"] is True
    assert answer["id"] is None
    assert answer["fits"] == "fits"
    assert answer["time"]["unit"] == "s"
    assert answer["request"]["seq_in"] == 4096
    without = document("estimate", "decode", MODEL)
    assert not {"fits", "time"} & set(without)
    assert document("estimate", "serve", "llama-3.1-70b", "--gpu", "T4")["fits"] == "no"


def test_estimate_requires_one_gpu() -> None:
    error = assert_refused_json(call("estimate", "serve", MODEL, "--gpu", "H100", "--json"), 2)
    assert {"H100 SXM", "H100 PCIe"} <= set(error["choices"])


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("fit",), "MODEL"),
        (("fit", "llama-9.9-8b"), "llama"),
        (("fit", MODEL, "--gpu", "H101"), "H10"),
        (("fit", MODEL, "--task", "dream"), "task"),
        (("fit", MODEL, "--batch", "-3"), "batch"),
        (("fit", MODEL, "--batch", "1" + "0" * 30), "batch"),
        (("fit", MODEL, "--precision", "bf17"), "bf16"),
        (("fit", MODEL, "--ttft", "50"), "50ms"),
        (("fit", MODEL, "--optimizer", "lion"), "adamw"),
        (("fit", MODEL, "--parallel", "tp=0"), "tp=2"),
        (("fit", MODEL, "--gpus", "6", "--tp", "4"), "gpus"),
        (("fit", MODEL, "--task", "train", "--precision", "int4"), "bf16"),
        (("fit", MODEL, "--plot", "parts.gif"), ".svg"),
        (("estimate",), "TASK"),
        (("estimate", "serve"), "MODEL"),
        (("estimate", "serve", MODEL, "--requests", "x.jsonl"), "--requests"),
        (("models", "nonesuch-model"), "models"),
    ],
)
def test_invalid_input_is_refused_with_a_hint(argv: tuple[str, ...], word: str) -> None:
    reply = call(*argv)
    assert_refused(reply, 2)
    assert word in reply.err


def test_a_plot_without_the_extra_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    error = assert_refused_json(call("fit", MODEL, "--plot", str(tmp_path / "x.svg"), "--json"), 2)
    assert error["kind"] == "needs-extra"
    assert "pip install" in error["hint"]


def test_plot_is_written_in_addition_to_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Converter:
        @staticmethod
        def vegalite_to_svg(spec: object) -> str:
            return f"<svg>{json.dumps(spec)}</svg>"

    monkeypatch.setitem(sys.modules, "vl_convert", Converter)
    path = tmp_path / "x.svg"
    reply = call("fit", MODEL, "--gpu", "T4,L4", "--plot", str(path))
    assert reply.code == 0
    assert path.read_text().startswith("<svg>")


def test_csv_and_markdown() -> None:
    header, *rows = call("fit", MODEL, "--gpu", "T4,L4", "--csv").csv()
    assert header[:2] == ["gpu", "gpu_name"]
    assert int(rows[1][header.index("usable")]) > 2**34
    reply = call("fit", MODEL, "--gpu", "L4", "--markdown")
    assert sum(line.startswith("| --- |") for line in reply.out.splitlines()) == 2
    header, *rows = call("estimate", "serve", MODEL, "--csv").csv()
    assert header == ["part", "value", "low", "high", "unit"]
    assert rows[0][0] == "weights"
    assert rows[0][4] == "byte"


def test_on_a_terminal_all_tables_are_shown() -> None:
    reply = terminal("fit", MODEL, "--gpu", "T4", "--gpu", "L4", env={"COLUMNS": "120"})
    assert reply.code == 0
    for word in ("fits L4", "KV cache", "largest batch", "What would make it fit on T4", "quantise the weights to int8"):
        assert word in reply.out


def test_settings_come_from_a_config_file_too(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[fit]\ngpu = "L4"\nbatch = 2\nprecision = "fp16"\nqlora = false\n')
    request = document("fit", MODEL, "--config", str(path))["request"]
    assert (request["gpu"], request["batch"], request["precision"]) == ("L4", 2, "fp16")


def test_the_python_verb_answers_as_the_command_does() -> None:
    answer = fit_model(MODEL, "L4", batch=2)
    assert answer.gpus[0].gpu == "l4"
    assert answer.memory_device.value == document("fit", MODEL, "--gpu", "L4", "--batch", "2")["memory_device"]["value"]
    assert estimate("train", MODEL, batch=1).fits is None
    with pytest.raises(UsageError):
        fit_model(MODEL, bach=2)


def test_an_as_of_date_leaves_out_later_gpus() -> None:
    names = {row["gpu"] for row in document("fit", "gpt2", "--as-of", "2017")["gpus"]}
    assert "p100-sxm-16gb" in names
    assert "a100-sxm-80gb" not in names


def test_models_are_listed_with_parameters_layers_and_licence() -> None:
    models = document("models")["models"]
    assert len(models) >= 100
    row = next(row for row in models if row["id"] == MODEL)
    assert row["parameters"] == 8_030_261_248
    assert (row["layers"], row["kv_heads"], row["max_context"]) == (32, 8, 131072)
    assert row["license"]
    mixture = document("models", "mixtral-8x7b")["models"][0]
    assert mixture["active_parameters"] < mixture["parameters"]
    reply = call("models", "llama", "--sort", "-parameters")
    assert reply.code == 0
    assert len(reply.tsv()) > 8


def test_fit_loads_no_torch_and_no_pictures() -> None:
    script = (
        "import sys; from whichgpu.surface.cli.main import main; code = main(['fit', 'llama-3.1-8b', '--gpu', 'L4', '--json']);"
        "print(sorted(set(sys.modules) & {'torch', 'numpy', 'vl_convert', 'rich', 'pandas'}), file=sys.stderr); sys.exit(code)"
    )
    import subprocess

    from tests.surface.cli import environment

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", env=environment(), check=False)
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"


def test_help_lists_every_flag() -> None:
    reply: Reply = process("fit", "--help")
    assert reply.code == 0
    for name in FIELDS:
        if name != "model":
            assert f"--{name.replace('_', '-')}" in reply.out
    assert "option." not in reply.out


def test_over_several_gpus_the_need_is_of_each() -> None:
    reply = call("fit", "llama-3.1-70b", "--gpus", "4", "--gpu", "H100 SXM")
    assert "on each of 4 GPUs: fits H100 SXM" in reply.err
    assert "on each of" not in call("fit", "llama-3.1-8b", "--gpu", "H100 SXM").err


def test_an_option_of_another_task_or_model_is_named_and_not_counted() -> None:
    reply = call("fit", "resnet50", "--in", "300", "--qlora", "--gpu", "T4")
    assert "note: --qlora: no effect on the task serve" in reply.err
    assert "note: --seq-in: no effect on resnet50" in reply.err
    assert "300 tokens" not in reply.err
