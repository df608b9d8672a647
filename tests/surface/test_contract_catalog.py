"""`catalog status`, `catalog check`, `report-error`, and data folders that are missing, broken or the user's own."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.copies import copy_tables
from tests.surface.cli import assert_refused, assert_refused_json, call, process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tables that tests may modify."""
    return copy_tables(tmp_path / "tables")


def table(folder: Path, name: str = "gpus") -> Path:
    return folder / f"{name}.csv"


def reading(folder: Path, name: str) -> list[list[str]]:
    with table(folder, name).open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def writing(folder: Path, name: str, lines: list[list[str]]) -> None:
    with table(folder, name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)


def put(folder: Path, column: str, value: str, key: str = "h100-sxm") -> None:
    lines = reading(folder, "gpus")
    place = lines[0].index(column)
    for line in lines[1:]:
        if line[0] == key:
            line[place] = value
    writing(folder, "gpus", lines)


def drop_column(folder: Path) -> None:
    lines = reading(folder, "gpus")
    place = lines[0].index("memory_bandwidth_gbs")
    writing(folder, "gpus", [line[:place] + line[place + 1 :] for line in lines])


def append(text: bytes) -> Callable[[Path], None]:
    def fault(folder: Path) -> None:
        with table(folder).open("ab") as file:
            file.write(text)

    return fault


def empty(folder: Path) -> None:
    table(folder).write_bytes(b"")


def folder_in_its_place(folder: Path) -> None:
    table(folder).unlink()
    table(folder).mkdir()


FAULTS: dict[str, Callable[[Path], None]] = {
    "unbalanced quote": append(b'"never closed,a,b\n'),
    "wrong cell count": append(b"a,b,c\n"),
    "NUL byte": lambda folder: put(folder, "chip", "GH\x00100"),
    "control character": lambda folder: put(folder, "chip", "GH\x08100"),
    "not UTF-8": append(b"\xff\xfe\xfa\n"),
    "missing column": drop_column,
    "empty file": empty,
    "header doubled": lambda folder: writing(folder, "gpus", [[*line[:-1], line[-2]] for line in reading(folder, "gpus")]),
    "missing table": lambda folder: table(folder).unlink(),
    "table is a folder": folder_in_its_place,
    "words for a number": lambda folder: put(folder, "memory_mib", "lots"),
    "not a number": lambda folder: put(folder, "memory_bandwidth_gbs", "nan"),
    "absurd date": lambda folder: put(folder, "launch_date", "2022-02-30"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_table_is_a_data_error_that_names_the_file(folder: Path, fault: str) -> None:
    FAULTS[fault](folder)
    reply = call("gpus", "--catalog", str(folder))
    assert_refused(reply, 3)
    assert "gpus.csv" in reply.err
    assert "gpus.csv" in assert_refused_json(call("gpus", "--catalog", str(folder), "--json"), 3)["message"]


@pytest.mark.parametrize("fault", FAULTS)
def test_catalog_check_fails_on_a_broken_table_without_a_traceback(folder: Path, fault: str) -> None:
    FAULTS[fault](folder)
    reply = call("catalog", "check", "--catalog", str(folder))
    assert reply.code == 3
    assert "gpus" in reply.err + reply.out
    assert "Traceback" not in reply.err


def test_the_hint_of_catalog_check_does_not_send_the_user_to_catalog_check(folder: Path) -> None:
    append(b"a,b,c\n")(folder)
    assert "catalog check" not in call("catalog", "check", "--catalog", str(folder)).err


def test_catalog_check_reports_two_broken_tables_at_once(folder: Path) -> None:
    append(b"a,b,c\n")(folder)
    table(folder, "regions").write_bytes(b"")
    reply = call("catalog", "check", "--catalog", str(folder))
    words = reply.err + reply.out
    assert "gpus" in words
    assert "regions" in words


def test_invalid_utf8_is_reported_with_its_position(folder: Path) -> None:
    size = table(folder).stat().st_size
    append(b"\xff\n")(folder)
    err = call("gpus", "--catalog", str(folder)).err
    line = table(folder).read_bytes().count(b"\n")
    assert str(size) in err or f"line {line}" in err


@pytest.mark.parametrize(
    "command", [["gpus"], ["instances"], ["cpus"], ["regions"], ["compare", "T4"], ["catalog", "status"], ["catalog", "check"]]
)
def test_missing_folder_or_a_file_in_its_place_is_a_data_error(command: list[str], tmp_path: Path) -> None:
    missing, file = tmp_path / "missing", tmp_path / "file"
    file.write_text("no folder")
    for path in (missing, file):
        reply = call(*command, "--catalog", str(path))
        assert_refused(reply, 3)
        assert str(path) in reply.err


def test_an_empty_folder_is_a_data_error(tmp_path: Path) -> None:
    assert_refused(call("gpus", "--catalog", str(tmp_path)), 3)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_table_is_a_data_error(folder: Path) -> None:
    table(folder).chmod(0)
    assert_refused(call("gpus", "--catalog", str(folder)), 3)


def test_the_variable_names_a_catalog_and_the_flag_beats_it(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHICHGPU_CATALOG", str(tmp_path / "missing"))
    assert_refused(call("gpus", "T4"), 3)
    assert call("gpus", "T4", "--catalog", str(folder)).code == 0


def test_catalog_folder_of_the_user_is_used(folder: Path) -> None:
    put(folder, "tdp_watts", "701")
    assert call("gpus", "H100 SXM", "--catalog", str(folder), "--json").json()["gpus"][0]["tdp_watts"] == 701
    assert call("gpus", "H100 SXM", "--json").json()["gpus"][0]["tdp_watts"] == 700


def test_changed_table_is_used_by_the_next_call(folder: Path) -> None:
    argv = ["gpus", "H100 SXM", "--catalog", str(folder), "--json"]
    assert process(*argv).json()["gpus"][0]["tdp_watts"] == 700
    put(folder, "tdp_watts", "702")
    assert process(*argv).json()["gpus"][0]["tdp_watts"] == 702


def test_a_broken_real_process_prints_no_traceback(folder: Path) -> None:
    append(b'"never closed')(folder)
    assert_refused(process("gpus", "--catalog", str(folder)), 3)
    assert_refused(process("gpus", WHICHGPU_CATALOG=str(folder)), 3)


# status and check


def test_status_counts_the_rows_that_the_commands_show() -> None:
    status = call("catalog", "status", "--json").json()
    counted = {entry["table"]: entry["rows"] for entry in status["tables"]}
    for name in ("gpus", "instances", "cpus", "regions"):
        assert counted[name] == len(call(name, "--json").json()[name])


def test_status_shows_the_age_of_each_table() -> None:
    tables = {entry["table"]: entry for entry in call("catalog", "status", "--json").json()["tables"]}
    assert tables["gpus"]["recorded"] >= "2026-11-15"
    assert tables["gpus"]["checked_oldest"] <= tables["gpus"]["checked_newest"]


def test_status_of_a_changed_catalog_has_another_digest_and_folder(folder: Path) -> None:
    put(folder, "tdp_watts", "701")
    ours, theirs = (
        call("catalog", "status", "--json").json(),
        call("catalog", "status", "--catalog", str(folder), "--json").json(),
    )
    assert ours["digest"] != theirs["digest"]
    assert theirs["folder"] == str(folder)


def test_the_bundled_catalog_passes_its_check() -> None:
    reply = call("catalog", "check", "--json")
    assert reply.json()["findings"] == []
    assert reply.code == 0
    assert call("catalog", "check").code == 0


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("memory_mib", "80"),
        ("memory_mib", str(8 * 81920)),
        ("fp16_tflops", "1978.9"),
        ("launch_date", "2099-01-01"),
        ("sources", ""),
        ("rates", "no-such-rates"),
    ],
)
def test_check_finds_an_injected_error_and_names_its_row(folder: Path, column: str, value: str) -> None:
    before = {(finding["key"], finding["column"], finding["check"]) for finding in findings(folder)}
    put(folder, column, value)
    after = {(finding["key"], finding["column"], finding["check"]) for finding in findings(folder)}
    assert any(key == "h100-sxm" for key, _, _ in after - before)
    assert call("catalog", "check", "--catalog", str(folder)).code == 3


def findings(folder: Path) -> list[dict[str, str]]:
    reply = call("catalog", "check", "--catalog", str(folder), "--json")
    entries = reply.json()["findings"]
    assert isinstance(entries, list)
    return entries


def test_check_finds_a_duplicate_key_and_an_unknown_gpu_in_an_instance(folder: Path) -> None:
    lines = reading(folder, "gpus")
    writing(folder, "gpus", [*lines, next(line for line in lines if line[0] == "t4")])
    machines = reading(folder, "instances")
    machines[1][machines[0].index("gpu")] = "no-such-gpu"
    writing(folder, "instances", machines)
    reply = call("catalog", "check", "--catalog", str(folder))
    assert reply.code == 3
    assert any(line.startswith("gpus\tt4\t") for line in reply.out.splitlines())
    assert "no-such-gpu" in reply.out


@pytest.mark.parametrize("form", ["--csv", "--markdown", "--tsv", "--json"])
def test_check_answers_in_every_form(folder: Path, form: str) -> None:
    put(folder, "launch_date", "2099-01-01")
    reply = call("catalog", "check", "--catalog", str(folder), form)
    assert reply.code == 3
    assert "h100-sxm" in reply.out


# report-error


def test_report_error_prefills_row_sources_and_version() -> None:
    reply = call("report-error", "a100-sxm-80gb")
    version = call("--version").out.split()[-1]
    assert reply.code == 0
    for expected in ("a100-sxm-80gb", "2039000000000", "nvidia-a100-datasheet", version):
        assert expected in reply.out


def test_report_error_json_holds_the_row_as_gpus_shows_it() -> None:
    document = call("report-error", "t4", "--json").json()
    assert (document["kind"], document["id"]) == ("gpu", "t4")
    assert document["row"] == call("gpus", "t4", "--json").json()["gpus"][0]


@pytest.mark.parametrize("name", ["p3dn.24xlarge", "aws/p3dn.24xlarge"])
def test_report_error_of_an_instance_is_about_the_instance_not_its_gpu(name: str) -> None:
    document = call("report-error", name, "--json").json()
    assert document["kind"] == "instance"
    assert document["row"]["instance"] == "p3dn.24xlarge"


def test_report_error_knows_regions_and_cpus() -> None:
    assert "koreacentral" in call("report-error", "koreacentral").out
    assert "xeon-e5-2686-v4" in call("report-error", "xeon-e5-2686-v4").out


def test_report_error_of_an_ambiguous_name_gives_the_choices() -> None:
    assert set(assert_refused_json(call("report-error", "h100", "--json"), 2)["choices"]) == {"h100-pcie", "h100-sxm", "h100-nvl"}


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("status",), "--catalog-as-known"),
        (("check",), "leave --as-of out"),
        (("diff", "2026-01-01", "2026-02-01"), "catalog diff 2025-01-01 2025-06-01"),
        (("watch", "--below", "1usd"), "offers --as-of"),
        (("import", "list.csv"), "--date"),
    ],
)
def test_inapplicable_day_is_refused_with_a_hint(words: tuple[str, ...], instead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error = assert_refused_json(call("catalog", *words, "--as-of", "2024-01-01", "--json"), 2)
    assert error["kind"] == "no-as-of"
    assert instead in error["hint"]
    monkeypatch.setenv("WHICHGPU_AS_OF", "2024-01-01")  # set for all commands, it does not apply to this one
    assert "--as-of" not in call("catalog", *words).err
