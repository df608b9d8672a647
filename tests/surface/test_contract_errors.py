"""Exit codes and the shape of errors: `error:` and `hint:` on stderr, or one JSON document on stdout."""

from __future__ import annotations

import pytest

from tests.surface.cli import assert_refused, assert_refused_json, call, process

BAD_USAGE = [
    ["gpus", "zzz-no-such"],
    ["gpus", ""],
    ["gpus", "h10"],
    ["gpus", "ü漢"],
    ["gpus", "--vendor", "nvida"],
    ["gpus", "--arch", "hoper"],
    ["gpus", "--supports", "bf61"],
    ["gpus", "--form-factor", "xsm"],
    ["gpus", "--sort", "memory_bandwith"],
    ["gpus", "--columns", "memory_bandwith"],
    ["gpus", "--compute-capability", "eight"],
    ["gpus", "--bogus"],
    ["gpus", "--lang", "xx"],
    ["gpus", "--min-memory"],
    ["instances", "--provider", "awz"],
    ["instances", "--gpu", "h10"],
    ["instances", "zzz.nano"],
    ["cpus", "zzz-no-such"],
    ["regions", "Zzyzx"],
    ["regions", "--provider", "awz"],
    ["compare"],
    ["compare", "zzz-no-such"],
    ["catalog"],
    ["catalog", "nope"],
    ["catalog", "check", "extra"],
    ["report-error"],
    ["report-error", "zzz-no-such"],
    ["completion"],
    ["completion", "tcsh"],
    ["nosuchcommand"],
    ["--bogus"],
]
DATES = [
    "2021-02-30",
    "2021-13",
    "16/05/2021",
    "yesterday",
    "0000-00-00",
    "99999-01-01",
    "9999-01-01",
    "",
    "2021-05-16T00:00",
    "-1",
]
SIZES = ["3parsecs", "-5GB", "nanGB", "infGB", "1e999GB", "GB", "80GB/s", "24", "", "1,5GB", "0x10GB"]
RATES = ["2TB", "2", "fast", "-2TB/s", "2TB/fortnight", "nanGB/s", ""]
NOTHING = [
    ["gpus", "--min-memory", "900TB"],
    ["gpus", "--vendor", "apple", "--supports", "nvlink"],
    ["gpus", "H100", "--as-of", "2015"],
    ["instances", "--gpu", "T4", "--min-memory", "100TB"],
    ["instances", "--provider", "colab", "--gpus", "72"],
]


@pytest.mark.parametrize("argv", BAD_USAGE, ids=" ".join)
def test_bad_usage_is_exit_2_with_error_and_hint_on_stderr_alone(argv: list[str]) -> None:
    assert_refused(call(*argv), 2)


@pytest.mark.parametrize("argv", BAD_USAGE, ids=" ".join)
def test_bad_usage_with_json_is_the_same_as_a_document(argv: list[str]) -> None:
    if argv[-1] == "--min-memory":
        argv = ["gpus", "--json", "--min-memory"]
        error = assert_refused_json(call(*argv), 2)
    else:
        error = assert_refused_json(call(*argv, "--json"), 2)
    assert error["hint"]


@pytest.mark.parametrize("argv", NOTHING, ids=" ".join)
def test_a_valid_question_without_an_answer_is_exit_1(argv: list[str]) -> None:
    assert_refused(call(*argv), 1)
    assert_refused_json(call(*argv, "--json"), 1)


@pytest.mark.parametrize(
    ("argv", "culprits"),
    [
        (["gpus", "--min-memory", "900TB"], ["memory"]),
        (["gpus", "--vendor", "apple", "--supports", "nvlink"], ["vendor", "supports"]),
        (["gpus", "H100", "--as-of", "2015"], ["as-of", "as of", "launch", "2015"]),
        (["instances", "--provider", "colab", "--gpus", "72"], ["provider", "gpus"]),
    ],
)
def test_no_answer_gives_the_reasons(argv: list[str], culprits: list[str]) -> None:
    error = assert_refused_json(call(*argv, "--json"), 1)
    words = f"{error['message']} {error['hint']}".replace("GPUs considered", "").lower()
    assert any(culprit in words for culprit in culprits), words


@pytest.mark.parametrize("flag", ["--as-of", "--catalog-as-known"])
@pytest.mark.parametrize("text", DATES)
def test_an_absurd_date_is_refused(flag: str, text: str) -> None:
    reply = call("gpus", "T4", f"{flag}={text}")
    assert_refused(reply, 2)
    assert text in reply.err


@pytest.mark.parametrize("text", SIZES)
def test_an_absurd_size_is_refused(text: str) -> None:
    assert_refused(call("gpus", f"--min-memory={text}"), 2)


@pytest.mark.parametrize("text", RATES)
def test_an_absurd_bandwidth_is_refused(text: str) -> None:
    assert_refused(call("gpus", f"--min-bandwidth={text}"), 2)


@pytest.mark.parametrize("text", ["", "8", "x", "8.0-", "9.0..8.0", "+", "8.0++", "-8.0"])
def test_an_absurd_compute_capability_is_refused(text: str) -> None:
    assert_refused(call("gpus", f"--compute-capability={text}"), 2)


@pytest.mark.parametrize(
    ("argv", "right"),
    [
        (["gpus", "h10"], "H100"),
        (["gpus", "A1000 SXM"], "A100 SXM 80GB"),
        (["gpus", "RTX 4900"], "RTX 4090"),
        (["gpus", "--vendor", "nvida"], "nvidia"),
        (["gpus", "--arch", "hoper"], "Hopper"),
        (["gpus", "--supports", "bf61"], "bf16"),
        (["gpus", "--form-factor", "xsm"], "sxm"),
        (["gpus", "--sort", "memory_bandwith"], "memory_bandwidth"),
        (["gpus", "--columns", "memory_bandwith"], "memory_bandwidth"),
        (["gpus", "--vender", "amd"], "--vendor"),
        (["instances", "--provider", "awz"], "aws"),
        (["gpu"], "gpus"),
        (["catalog", "chek"], "check"),
        (["report-error", "h100-smx"], "h100-sxm"),
        (["report-error", "h100"], "h100-sxm"),
        (["completion", "bsh"], "bash"),
    ],
)
def test_a_wrong_name_suggests_the_near_one(argv: list[str], right: str) -> None:
    error = assert_refused_json(call(*argv, "--json"), 2)
    assert right in error["choices"]
    assert right in error["hint"]
    assert right in call(*argv).err


@pytest.mark.parametrize(
    "argv", [["gpus", "--sort", "zzzzqqqq"], ["gpus", "--columns", "zzzzqqqq"], ["gpus", "--zzzzqqqq"]], ids=" ".join
)
def test_a_hint_does_not_pass_a_stray_resemblance_off_as_the_only_choice(argv: list[str]) -> None:
    error = assert_refused_json(call(*argv, "--json"), 2)
    if error["hint"].startswith("choose one of"):
        assert len(error["choices"]) > 3


def test_unknown_column_prints_nothing_before_its_error() -> None:
    assert call("gpus", "--columns", "zzzzqqqq").err.startswith("error: ")


def test_the_hint_of_a_missing_value_names_the_command_at_hand() -> None:
    assert "gpus --help" in call("gpus", "--min-memory").err


def test_a_real_process_carries_the_exit_codes() -> None:
    assert process("gpus", "T4").code == 0
    assert_refused(process("gpus", "--min-memory", "900TB"), 1)
    assert_refused(process("gpus", "zzz-no-such"), 2)
    assert_refused(process("gpus", "--catalog", "/no/such/folder"), 3)


def test_json_before_or_after_the_names_is_all_the_same() -> None:
    assert call("gpus", "--json", "T4").out == call("gpus", "T4", "--json").out
