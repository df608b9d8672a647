"""Four languages: chosen by flag, variable, system or browser; help, errors and answers in them; data the same in all."""

from __future__ import annotations

import re

import pytest

import whichgpu
from tests.surface.cli import call, process, terminal
from tests.surface.web import Server
from whichgpu.base.errors import UnknownName
from whichgpu.base.messages import language, languages, msg, set_current_language
from whichgpu.base.text_width import cell_width
from whichgpu.surface.cli.main import COMMANDS

FOUR = ("en", "ko", "vi", "zh")
OTHERS = FOUR[1:]
HANGUL, HAN, VIETNAMESE = re.compile("[가-힣]"), re.compile("[一-鿿]"), re.compile("[ăâđêôơưạ-ỹ]")
SCRIPT = {"ko": HANGUL, "zh": HAN, "vi": VIETNAMESE}


def test_there_are_four() -> None:
    assert languages() == FOUR


@pytest.mark.parametrize("code", OTHERS)
def test_help_of_every_command_is_in_the_selected_language(code: str) -> None:
    assert SCRIPT[code].search(call("--lang", code, "--help").out)
    for name in COMMANDS if code == "ko" else ("fit", "catalog", "doctor"):
        output = call(name, "--lang", code, "--help").out
        assert SCRIPT[code].search(output), name
        assert "Options" not in output
        assert "Usage" not in output


@pytest.mark.parametrize("code", ["ko", "zh"])
def test_help_in_wide_characters_stays_within_the_terminal(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in COMMANDS:
        output = call(name, "--lang", code, "--help").out
        examples = output.find("\n  whichgpu ", output.find("--help") + 1)
        lines = output[: examples if examples > 0 else None].splitlines()
        assert [line for line in lines if cell_width(line) > 80 and "whichgpu" not in line] == [], name


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"LANGUAGE": "", "LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANGUAGE": "", "LC_ALL": "vi_VN.UTF-8", "LANG": "ko_KR.UTF-8"}, "vi"),
        ({"LANGUAGE": "", "LC_ALL": "C", "LANG": "ko_KR.UTF-8"}, "en"),
        ({"LANGUAGE": "", "LC_MESSAGES": "zh_TW", "LANG": "ko_KR.UTF-8"}, "zh"),
        ({"LANGUAGE": "tlh:zh_CN:ko"}, "zh"),
        ({"LANGUAGE": "tlh"}, "en"),
        ({"WHICHGPU_LANG": "zh-CN", "LANG": "ko_KR.UTF-8"}, "zh"),
    ],
)
def test_system_locale_is_the_default_language(settings: dict[str, str], code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert call("gpus", "H101x").err.startswith(language(code).text("word.error"))


@pytest.mark.parametrize("argv", [("--lang", "xx", "gpus"), ("gpus", "--lang", "korean"), ("gpus", "--lang=fr_FR.UTF-8")])
def test_a_language_there_is_not_is_refused_naming_those_there_are(argv: tuple[str, ...]) -> None:
    reply = call(*argv, "--json") if argv[0] != "--lang" else call(*argv[:3], "--json")
    assert reply.code == 2
    error = reply.json()["error"]
    assert (error["kind"], tuple(error["choices"])) == ("unknown-language", FOUR)


def test_process_prints_in_the_language_of_its_locale() -> None:
    reply = process("gpus", "T4", LANGUAGE="", LC_ALL="ko_KR.UTF-8")
    assert reply.code == 0
    assert HANGUL.search(reply.err)


@pytest.mark.parametrize("code", OTHERS)
def test_data_are_the_same_in_every_language(code: str) -> None:
    for form in ("--json", "--csv"):
        assert call("gpus", "--vendor", "nvidia", form, "--lang", code).out == call("gpus", "--vendor", "nvidia", form).out
    ours, theirs = (call("gpus", "A100", "--lang", one).tsv() for one in (code, "en"))
    assert ours[1:] == theirs[1:]  # the headings are words
    assert ours[0] != theirs[0]


@pytest.mark.parametrize("code", OTHERS)
@pytest.mark.sweep(3)
def test_an_answer_has_the_same_figures_and_kinds(code: str) -> None:
    argv = ("fit", "llama-3.1-8b", "--gpu", "T4,A100-SXM-80GB", "--json")
    ours, theirs = (call(*argv, "--lang", one).json() for one in (code, "en"))
    assert ours["needed"] == theirs["needed"]
    assert ours.keys() == theirs.keys()
    error = call("fit", "no-such-model", "--json", "--lang", code).json()["error"]
    assert error["kind"] == call("fit", "no-such-model", "--json").json()["error"]["kind"]
    assert SCRIPT[code].search(error["message"] + error["hint"])


def test_vietnamese_sentences_have_vietnamese_numbers_and_pipes_do_not() -> None:
    reply = call("fit", "llama-3.1-8b", "--gpu", "A100-SXM-80GB", "--lang", "vi")
    assert re.search(r"\d,\d+ GiB", reply.err)
    assert not re.search(r"\d\.\d+ GiB", reply.err)
    assert re.search(r"\d\.\d+ GiB", reply.out)
    assert not re.search(r"\d,\d+ GiB", reply.out)
    markdown = call("gpus", "--vendor", "nvidia", "--markdown", "--lang", "vi").out
    assert re.search(r"\d\.\d{3} GB/s", markdown)
    assert "| 8.0 |" in call("gpus", "A100", "--columns", "compute_capability", "--markdown", "--lang", "vi").out


POINT = re.compile(r"(?<![\w.-])\d+\.\d+(?![\w.-])")  # no version, name or file


def test_plans_offers_and_reasons_have_vietnamese_numbers_throughout() -> None:
    argvs = (
        ("plan", "llama-3.1-8b", "--rate", "5/s", "--tpot", "50ms", "--no-simulate", "--provider", "runpod,vast"),
        ("offers", "--gpu", "H100", "--currency", "KRW", "--limit", "3"),
        ("recommend", "train", "--provider", "aws"),
    )
    for words in argvs:
        text = call(*words, "--as-of", "2026-08-22", "--lang", "vi").err
        lines = [line for line in text.splitlines() if "http" not in line and "whichgpu" not in line]
        assert any(re.search(r"\d,\d", line) for line in lines), text
        pointed = [line for line in lines for number in POINT.findall(line) if not re.fullmatch(r"\d{1,3}\.\d{3}", number)]
        assert pointed == []


@pytest.mark.parametrize("code", FOUR)
def test_one_gpu_that_is_too_small_is_reported_in_the_singular(code: str) -> None:
    reply = call("fit", "llama-3.1-8b", "--gpu", "T4", "--lang", code)
    assert reply.code == 1
    first = reply.err.splitlines()[0]
    assert "T4" in first
    assert not re.search(r"(?<![\w.+])1 ?(?:개|款|GPU)", first)
    assert "3" in call("fit", "llama-3.1-70b", "--gpu", "H100", "--lang", code).err.splitlines()[0]


def test_city_names_are_translated_for_people_and_not_in_json() -> None:
    reply = call("regions", "서울", "--lang", "ko")
    assert "서울" in reply.out
    assert {row["city"] for row in call("regions", "首尔", "--json", "--lang", "zh").json()["regions"]} == {"Seoul"}
    assert "Hà Nội" in call("offers", "--gpu", "T4", "--near", "Hanoi", "--limit", "1", "--lang", "vi").err
    assert call("regions", "어디에도 없는 곳", "--lang", "ko").code == 2


def test_cells_with_words_in_them_keep_their_numbers_in_a_pipe() -> None:
    argv = ("compare", "T4", "A100-SXM-80GB", "--task", "decode", "--model", "llama-3.1-8b", "--lang", "vi")
    piped, table = call(*argv).out, call(*argv, "--markdown").out
    assert re.search(r"\d\.\d+ ms \(\d+\.\d+ ms đến", piped)
    assert re.search(r"\d,\d+ ms \(\d+,\d+ ms đến", table)
    assert "output tokens/s (" in piped
    assert "token đầu ra/s (" in table


def test_commands_to_paste_are_not_translated() -> None:
    vietnamese = language("vi")
    assert vietnamese.render(msg("relax.deadline", value="1.5h")) == "--deadline 1.5h"
    command = "whichgpu recommend train resnet50 --deadline=1.5h --budget '2.5 usd'"
    assert command in vietnamese.render(msg("recommend.reproduce", command=command))
    assert "1.5 GB" in vietnamese.render(msg("error.bad-rate", text="1.5 GB"))  # user input


def test_columns_of_wide_characters_are_aligned() -> None:
    code, columns = "zh", ("--columns", "name,memory_bytes,architecture")
    text = re.sub("\033\\[[0-9;]*m", "", terminal("gpus", "A100", *columns, env={"LANGUAGE": code, "COLUMNS": "100"}).out)
    lines = [line for line in text.splitlines() if "Ampere" in line]
    assert len(lines) >= 2
    assert len({cell_width(line[: line.index("Ampere")]) for line in lines}) == 1
    head = next(
        line for line in text.splitlines() if SCRIPT[code].search(line) and language(code).text("field.architecture") in line
    )
    place = cell_width(head[: head.index(language(code).text("field.architecture"))])
    assert place == cell_width(lines[0][: lines[0].index("Ampere")])


def test_columns_are_found_by_their_headings_in_both_languages() -> None:
    heading = language("ko").text("field.memory_bandwidth")
    assert call("gpus", "T4", "--columns", f"name,{heading}", "--csv", "--lang", "ko").csv()[0] == ["name", "memory_bandwidth"]
    english = language("en").text("field.memory_bandwidth")
    assert call("gpus", "T4", "--columns", english, "--csv", "--lang", "ko").csv()[0] == ["memory_bandwidth"]
    assert call("gpus", "T4", "--columns", "없는열", "--lang", "ko").code == 2


def test_python_users_choose_a_language_for_messages_and_errors() -> None:
    try:
        whichgpu.set_language("ko_KR.UTF-8")
        assert HANGUL.search(str(msg("word.error")))
        assert HANGUL.search(whichgpu.gpus("T4").headline())
        with pytest.raises(UnknownName) as caught:
            whichgpu.set_language("tlh")
        assert HANGUL.search(str(caught.value))
        assert caught.value.choices == FOUR
    finally:
        set_current_language("en")
    assert str(msg("word.error")) == "error"


# Pages and REST


@pytest.mark.parametrize("code", FOUR)
def test_page_language_follows_the_address_and_persists(server: Server, code: str) -> None:
    reply = server.get(f"/gpus?lang={code}&vendor=nvidia")
    text = reply.text
    assert f'<html lang="{code}" ' in text
    assert reply.headers["content-language"] == code
    own = re.findall(r'(?:href|action)="(/[^"]*)"', re.sub(r"<link [^>]*>", "", text))
    links = [one for one in own if not one.startswith(("/static", "/assets"))]
    assert len(links) > 20
    assert [one for one in links if f"lang={code}" not in one and one != "/gpus"] == []
    assert text.count(f'<input type="hidden" name="lang" value="{code}">') == 2  # of the filters and of the basket


def test_the_chooser_leads_to_the_same_state_in_every_language(server: Server) -> None:
    text = server.get("/gpus?vendor=nvidia").text
    chooser = re.search(r'<div class="languages".*?</div>', text, re.DOTALL)
    assert chooser is not None
    for code, name in zip(FOUR, ("English", "한국어", "Tiếng Việt", "中文"), strict=True):
        assert re.search(rf'<a href="\?vendor=nvidia&amp;lang={code}" lang="{code}"[^>]*>{name}</a>', chooser[0])


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("ko-KR,ko;q=0.9,en;q=0.8", "ko"),
        ("fr,zh-TW;q=0.5,en;q=0.4", "zh"),
        ("en;q=0.1,vi", "vi"),
        ("ko;q=0,en", "en"),
        ("x" * 900, "en"),
    ],
)
def test_browser_language_is_used_without_one_in_the_address(server: Server, header: str, code: str) -> None:
    reply = server.get("/gpus", accept_language=header)
    assert f'<html lang="{code}" ' in reply.text
    assert "Accept-Language" in reply.headers["vary"]
    assert "lang=" not in re.findall(r'<form class="filters[^>]*>.*?</form>', reply.text, re.DOTALL)[0]


def test_errors_of_the_api_are_in_the_readers_language_and_their_kinds_are_not(server: Server) -> None:
    messages = {}
    for code in FOUR:
        reply = server.get("/api/v1/gpus?name=H101x", accept_language=code)
        assert reply.headers["content-language"] == code
        messages[code] = reply.error
    assert len({error["message"] for error in messages.values()}) == 4
    assert len({(error["kind"], tuple(error["choices"])) for error in messages.values()}) == 1
    lost = server.get("/api/v1/no-such", accept_language="ko")
    assert HANGUL.search(lost.error["message"])
    assert lost.headers["content-language"] == "ko"


def test_each_language_has_tags_of_its_own(server: Server) -> None:
    tags = {server.get("/api/v1/gpus?name=T4", accept_language=code).headers["etag"] for code in FOUR}
    assert len(tags) == 4


def test_a_language_there_is_not_is_refused_by_pages_and_api(server: Server) -> None:
    page, rest = server.get("/gpus?lang=tlh"), server.get("/api/v1/gpus?lang=tlh")
    assert (page.status, rest.status) == (400, 400)
    assert rest.error["kind"] == "unknown-language"
    assert tuple(rest.error["choices"]) == FOUR


def test_the_next_page_of_rows_keeps_the_language(server: Server) -> None:
    document = server.get("/api/v1/gpus?limit=2&lang=ko").json()
    assert "lang=ko" in document["next"]


def test_form_input_is_shown_unchanged(server: Server) -> None:
    text = server.get("/gpus?lang=vi&min_memory=1.5 GB".replace(" ", "%20")).text
    assert 'value="1.5 GB"' in text
