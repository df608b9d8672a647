"""Plain sentences are read as the nearest command, or not at all."""

from __future__ import annotations

import pytest

from whichgpu.catalog.store import Catalog
from whichgpu.surface.cli.sentences import command_of_sentence

CATALOG = Catalog()


@pytest.mark.parametrize(
    ("sentence", "command"),
    [
        ("which gpu for stable diffusion under 800 dollars", "recommend images stable-diffusion-xl --buy --budget=800usd"),
        ("what hardware to serve llama-3.1-70b for 50 people?", "recommend serve llama-3.1-70b --people=50"),
        (
            "gpu to fine-tune llama-3.1-8b with qlora at home for $1,000",
            "recommend finetune llama-3.1-8b --qlora --buy --budget=1000usd",
        ),
        ("rent a gpu to train resnet50 in 24 hours", "recommend train resnet50 --deadline=24h"),
        ("best gpu to run llama 3.1 70b under 3k usd", "recommend chat llama-3.1-70b --buy --budget=3000usd"),
        ("which gpu for a 70b", "recommend chat 70b"),
        (
            "gpu to serve llama-3.1-8b at 5 requests/s for 2 usd per hour",
            "recommend serve llama-3.1-8b --rate=5/s --budget=2usd/h",
        ),
    ],
)
def test_a_question_about_gpus_is_a_command(sentence: str, command: str) -> None:
    assert command_of_sentence(sentence.split(), CATALOG) == command.split()


@pytest.mark.parametrize("words", ["recomend serve", "list all offers please", "how is the weather today"])
def test_other_words_are_none(words: str) -> None:
    assert command_of_sentence(words.split(), CATALOG) is None


def test_flags_are_passed_on() -> None:
    command = command_of_sentence(["which", "gpu", "for", "sdxl", "pictures", "--json"], CATALOG)
    assert command is not None
    assert command[:3] == ["recommend", "images", "stable-diffusion-xl"]
    assert command[-1] == "--json"
