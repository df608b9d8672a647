"""Texts for web clients name fields, not flags."""

from __future__ import annotations

from whichgpu.base.messages import language
from whichgpu.surface.web.field_names import with_field_names, with_labels


def test_flags_become_fields_or_the_labels_of_a_form() -> None:
    assert with_field_names("--tpot (--tpot-max) wants a time") == "tpot_max (tpot_max) wants a time"
    assert with_field_names("(default; --batch)") == "(default; batch)"
    assert with_labels("(default; --batch)", language("en")) == f"(default; {language('en').text('web.field-batch')})"
    assert with_labels("--gpu", language("ko")) == language("ko").text("web.field-gpu")


def test_commands_and_flags_of_no_field_are_unchanged() -> None:
    for text in ("whichgpu plan gpt2 --rate 5/s --in 10", "use --json", "a -- b"):
        assert with_field_names(text) == text
