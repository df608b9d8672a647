"""Defaults: flag before variable before config file before built in; invalid settings are reported, not ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surface.cli import Reply, assert_refused, assert_refused_json, call


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own config file, in a folder of its own; not yet written."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config-home"))
    folder = tmp_path / "config-home" / "whichgpu"
    folder.mkdir(parents=True)
    return folder / "config.toml"


def vendors(*argv: str) -> set[str]:
    reply = call("gpus", "--csv", "--columns", "vendor", *argv)
    assert reply.code == 0, reply.err
    return {row[0] for row in reply.csv()[1:]}


def form(reply: Reply) -> str:
    """Which form an answer has."""
    assert reply.code == 0, reply.err
    first = reply.out.splitlines()[0]
    return {"{": "json", "|": "markdown"}.get(first[0], "csv" if first.count(",") > 5 else "tsv")


def test_config_file_from_a_flag_sets_a_command_s_default(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[gpus]\nvendor = "amd"\n')
    assert vendors("--config", str(path)) == {"amd"}
    assert len(vendors()) > 3


def test_the_users_own_config_file_is_found(config: Path) -> None:
    config.write_text('[gpus]\nvendor = "amd"\n')
    assert vendors() == {"amd"}


def test_a_config_file_named_by_variable_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[gpus]\nvendor = "intel"\n')
    monkeypatch.setenv("WHICHGPU_CONFIG", str(path))
    assert vendors() == {"intel"}


def test_a_default_of_one_command_does_not_touch_another(config: Path) -> None:
    config.write_text('[instances]\nprovider = "gcp"\n')
    assert len(vendors()) > 3
    assert {row["provider"] for row in call("instances", "--json").json()["instances"]} == {"gcp"}


def test_flag_beats_variable_beats_config_beats_default_for_a_filter(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('[gpus]\nvendor = "amd"\n')
    monkeypatch.setenv("WHICHGPU_GPUS_VENDOR", "intel")
    assert vendors("--vendor", "apple") == {"apple"}
    assert vendors() == {"intel"}
    monkeypatch.delenv("WHICHGPU_GPUS_VENDOR")
    assert vendors() == {"amd"}
    config.unlink()
    assert len(vendors()) > 3


def test_flag_beats_variable_beats_config_beats_default_for_the_form(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('format = "json"\n')
    monkeypatch.setenv("WHICHGPU_FORMAT", "csv")
    assert form(call("gpus", "A100", "--markdown")) == "markdown"
    assert form(call("gpus", "A100")) == "csv"
    monkeypatch.delenv("WHICHGPU_FORMAT")
    assert form(call("gpus", "A100")) == "json"
    config.unlink()
    assert form(call("gpus", "A100")) == "tsv"


def test_flag_beats_variable_beats_config_for_the_date(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('as_of = "2015"\n')
    assert call("gpus", "V100").code == 1
    monkeypatch.setenv("WHICHGPU_AS_OF", "2018-12")
    assert call("gpus", "V100").code == 0
    assert call("gpus", "A100").code == 1
    assert call("gpus", "A100", "--as-of", "2023").code == 0


@pytest.mark.parametrize("value", ["json", "csv", "markdown", "tsv"])
def test_the_variable_for_the_form_knows_every_form(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHICHGPU_FORMAT", value)
    assert form(call("gpus", "A100")) == value


def test_an_unknown_form_in_a_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHICHGPU_FORMAT", "xml")
    assert_refused(call("gpus", "A100"), 2)


def test_with_json_as_the_default_form_errors_are_json_too(config: Path) -> None:
    config.write_text('format = "json"\n')
    assert_refused_json(call("gpus", "zzz-no-such"), 2)


@pytest.mark.parametrize("key", ["min-memory", "min_memory"])
def test_a_setting_is_named_as_its_flag(config: Path, key: str) -> None:
    config.write_text(f'[gpus]\n{key} = "200GB"\n')
    gpu_ids = {row["id"] for row in call("gpus", "--json").json().get("gpus", [])}
    assert "mi325x" in gpu_ids
    assert "h100-sxm" not in gpu_ids


def test_a_date_may_be_written_as_a_toml_date(config: Path) -> None:
    config.write_text("as_of = 2021-05-16\n")
    assert call("gpus", "H100").code == 1
    assert call("gpus", "A100").code == 0


def test_a_list_may_be_written_as_a_toml_array(config: Path) -> None:
    config.write_text('columns = ["name", "vendor"]\n')
    assert call("gpus", "A100").tsv()[0] == ["name", "vendor"]
    config.write_text('[gpus]\nsupports = ["nvlink", "fp64"]\n')
    assert "a100-sxm-80gb" in call("gpus", "--json").out


@pytest.mark.parametrize(
    "text",
    [
        b"[gpus\n",
        b'format = "xml"\n',
        b"bogus = 1\n",
        b'[gpus]\nvendr = "amd"\n',
        b"[gpus]\nvendor = 3\n",
        b'[gpus]\nvendor = "nvida"\n',
        b'as_of = "2021-02-30"\n',
        b'gpus = "x"\n',
        b"\xff\xfe\x00",
        b'[catalog]\nbogus = "1"\n',
        b'[nosuchcommand]\nx = "1"\n',
    ],
)
def test_a_bad_config_file_is_refused(config: Path, text: bytes) -> None:
    config.write_bytes(text)
    assert_refused(call("gpus"), 2)
    if b"xml" not in text:
        assert_refused_json(call("gpus", "--json"), 2)


def test_an_unknown_setting_names_the_file_and_suggests_the_near_one(config: Path) -> None:
    config.write_text('[gpus]\nvendr = "amd"\n')
    reply = call("gpus")
    assert str(config) in reply.err
    assert "vendor" in reply.err


def test_suggested_settings_are_ones_that_work(config: Path) -> None:
    config.write_text('[gpus]\nmin_memry = "200GB"\n')
    choices = assert_refused_json(call("gpus", "--json"), 2)["choices"]
    assert "min_memory" in choices or "min-memory" in choices
    assert "names" not in choices


@pytest.mark.parametrize("where", ["missing.toml", "."])
def test_a_config_file_that_cannot_be_read_is_refused(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / where)
    assert_refused(call("gpus", "--config", path), 2)
    monkeypatch.setenv("WHICHGPU_CONFIG", path)
    assert_refused(call("gpus"), 2)


def test_no_config_file_at_all_is_fine(config: Path) -> None:
    assert not config.exists()
    assert call("gpus", "T4").code == 0


def test_help_and_version_work_in_spite_of_a_broken_config(config: Path) -> None:
    config.write_text("[gpus\n")
    assert call("--help").code == 0
    assert call("--version").code == 0


@pytest.mark.parametrize(
    ("variable", "value"),
    [("WHICHGPU_AS_OF", "never"), ("WHICHGPU_COLUMNS", "zzzzqqqq"), ("WHICHGPU_LANG", "xx"), ("WHICHGPU_GPUS_VENDOR", "nvida")],
)
def test_a_bad_variable_is_refused(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    assert_refused(call("gpus", "T4"), 2)
