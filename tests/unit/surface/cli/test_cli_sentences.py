"""Plain sentences are read as the nearest command, or not at all."""

from __future__ import annotations

from shlex import split

import pytest

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.catalog.store import Catalog
from whichgpu.surface.cli.main import main
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
    assert command_of_sentence(sentence.split(), CATALOG) == (command.split(), ())


@pytest.mark.parametrize(
    ("sentence", "command"),
    [
        ("train Llama-3.1-70B on 1T tokens in 90 days", "recommend train llama-3.1-70b --tokens=1T --deadline=90d"),
        (
            "serve Llama 3.1 8B at 5 requests/s under 50 ms a token",
            "recommend serve llama-3.1-8b --tpot=50ms --rate=5/s",
        ),
        ("fine-tune an 8B with QLoRA on my RTX 3090", "recommend finetune 8b --qlora --owned=rtx-3090"),
        ("chat with deepseek v3 on H200", "recommend chat deepseek-v3 --gpu=h200"),
        ("train resnet50 for 90 epochs in a week", "recommend train resnet50 --epochs=90 --deadline=1w"),
        ("serve llama-3.1-8b for a team of 50", "recommend serve llama-3.1-8b --people=50"),
        (
            "serve llama-3.1-8b at 5 requests/s with 1000 tokens in, 300 out",
            "recommend serve llama-3.1-8b --rate=5/s --in=1000 --out=300",
        ),
        (
            "serve llama-3.1-8b at 5 rps with 2k-token prompts and TTFT 1 s",
            "recommend serve llama-3.1-8b --ttft=1s --rate=5/s --in=2000",
        ),
        ("train resnet50 on AWS or Google Cloud", "recommend train resnet50 --provider=aws,gcp"),
        ("run 1M prompts through llama-3.1-8b", "recommend batch llama-3.1-8b --samples=1M"),
        ("run 1 million requests through llama-3.1-8b", "recommend batch llama-3.1-8b --samples=1M"),
        ("generate 10,000 pictures with sdxl", "recommend images stable-diffusion-xl --samples=10000"),
        ("train gpt2 on two H100s", "recommend train gpt2 --gpu=h100 --gpus=2"),
        ("does llama 3.1 8b fit a 4090", "fit llama-3.1-8b --gpu=rtx-4090"),
        ("can a qwen 72b fit on my two RTX 3090s?", "fit qwen-72b --gpu=rtx-3090 --gpus=2"),
        ("can I fine-tune llama 3.1 8b on my RTX 3090?", "fit llama-3.1-8b --task=finetune --gpu=rtx-3090"),
        ("does a LoRA fine-tune of llama 3.1 8b fit on an RTX 4090", "fit llama-3.1-8b --task=finetune --lora --gpu=rtx-4090"),
        ("does training resnet50 at batch 256 fit a T4", "fit resnet50 --task=train --batch=256 --gpu=t4"),
        (
            "compare H100 SXM, A100 and MI300X for training resnet50",
            "compare h100-sxm,a100,mi300x --task=train --model=resnet50",
        ),
        ("RTX 4090 vs RTX 5090 for llama-3.1-8b", "compare rtx-4090,rtx-5090 --task=decode --model=llama-3.1-8b"),
        ("T4 versus L4", "compare t4,l4"),
        ("will a 70b run on two H100 SXM", "fit 70b --gpu=h100-sxm --gpus=2"),
        ("price history of H100 SXM", "offers --gpu=h100-sxm"),
        ("how much is an A100 now", "offers --gpu=a100"),
        (
            "serve llama-3.1-8b, 5 requests per second, 1000 tokens in 300 out",
            "recommend serve llama-3.1-8b --rate=5/s --in=1000 --out=300",
        ),
        (
            "I need to run Llama-3.1-8B as a service all year round: 2 req/s, prompts of 1000 tokens, answers of 300 tokens",
            "recommend serve llama-3.1-8b --rate=2/s --in=1000 --out=300 --duration=1y",
        ),
        (
            "Llama 3.1 70B serving five requests a second with 1000/300 tokens and at most 50 ms between tokens",
            "recommend serve llama-3.1-70b --tpot=50ms --rate=5/s --in=1000 --out=300",
        ),
        (
            "we get one request per second with 30k token prompts to Llama 3.1 70B, first token within 10 seconds",
            "recommend serve llama-3.1-70b --ttft=10s --rate=1/s --in=30000",
        ),
        ("what should I rent to host Mixtral-8x7B for 5 req/s?", "recommend serve mixtral-8x7b --rate=5/s"),
        ("a year of Llama-3.1-70B on AWS", "recommend serve llama-3.1-70b --duration=1y --provider=aws"),
        ("serve llama-3.1-8b to 50 concurrent users", "recommend serve llama-3.1-8b --batch=50"),
        (
            "how many GPUs to train Llama 3.1 70B on one trillion tokens in three months?",
            "recommend train llama-3.1-70b --tokens=1T --deadline=3mo",
        ),
        ("train llama 3.2 1b on 10B tokens on spot", "recommend train llama-3.2-1b --tokens=10B --term=spot"),
        ("best gpu to train resnet50 in 2017", "recommend train resnet50 --as-of=2017-07-01"),
        ("lora of llama 3.1 8b on 50M tokens", "recommend finetune llama-3.1-8b --lora --tokens=50M"),
        ("qlora at home under 1,000 USD", "recommend finetune llama-3.1-8b --qlora --buy --budget=1000usd"),
        (
            "one million prompts of 1000/200 tokens through an 8B model in 12 h",
            "recommend batch 8b --samples=1M --in=1000 --out=200 --deadline=12h",
        ),
        ("generate 10000 SDXL images at 1024², which gpu?", "recommend images stable-diffusion-xl --image=1024 --samples=10000"),
        ("which gpu to generate 5000 flux images per day", "recommend images flux.1-dev --samples=5000 --deadline=1d"),
        ("embed 100M documents of 500 tokens with bge-m3", "recommend embed bge-m3 --samples=100M --in=500"),
        ("transcribe 2,000 hours of audio with whisper large v3", "recommend batch whisper-large-v3 --samples=240000"),
        ("which gpu to chat with a 14b for 2 million won", "recommend chat 14b --buy --budget=2000000krw"),
        ("best gpu under $500 for local llms", "recommend chat llama-3.1-8b --buy --budget=500usd"),
        ("can I run a 70b in 4 bits on my two RTX 3090?", "fit 70b --precision=int4 --gpu=rtx-3090 --gpus=2"),
        ("how much VRAM do I need for llama 3.1 70b?", "fit llama-3.1-70b"),
        ("rent an H100 for a day", "offers --gpu=h100"),
    ],
)
def test_figures_and_names_are_read_into_flags(sentence: str, command: str) -> None:
    assert command_of_sentence(sentence.split(), CATALOG) == (command.split(), ())


@pytest.mark.parametrize(
    ("sentence", "unread", "command"),
    [
        ("serve llama-3.1-8b under 800", "800", "serve llama-3.1-8b"),
        ("serve llama-3.1-8b at 5 requests/s with 99% uptime", "99% uptime", "serve llama-3.1-8b --rate=5/s"),
        ("serve llama-3.1-8b to 50 concurrent robots", "50 concurrent robots", "serve llama-3.1-8b"),
        ("serve llama-3.1-8b in 90 days", "90 days", "serve llama-3.1-8b"),
        ("train resnet50 in 3 quarters", "3 quarters", "train resnet50"),
        ("train resnet50 before the next month", "month", "train resnet50"),
        ("train resnet50 on 8 H100 and 4 A100", "8 h100 and 4 a100", "train resnet50"),
        ("chat with llama 9.9 8b", "9.9", "chat 8b"),
        ("which gpu for a mistral 8b", "8b", "chat mistral-7b"),
        ("train resnet50 for 90 epochs and 20 epochs", "20 epochs", "train resnet50 --epochs=90"),
    ],
)
def test_a_quantity_no_rule_reads_is_an_error_with_the_command_so_far(sentence: str, unread: str, command: str) -> None:
    with pytest.raises(UsageError) as caught:
        command_of_sentence(sentence.split(), CATALOG)
    assert caught.value.exit_code == 2
    assert caught.value.message == msg("error.unread-quantity", words=unread)
    assert caught.value.hint == msg("hint.read-so-far", command=f"whichgpu recommend {command}")


def test_words_without_a_quantity_are_ignored_and_named() -> None:
    reading = command_of_sentence("train resnet50 quickly and comfortably in Seoul".split(), CATALOG)
    assert reading == (["recommend", "train", "resnet50", "--region=seoul"], ("quickly", "comfortably"))


@pytest.mark.parametrize(
    ("sentence", "command"),
    [
        ("is a 4090 enough for qwen2.5 32b", "fit qwen2.5-32b --gpu=rtx-4090"),
        ("can I run llama 3.3 70b on a mac studio", "fit llama-3.3-70b '--gpu=mac studio'"),
        ("h100 or a100 for fine tuning llama 8b", "compare h100,a100 --task=finetune --model=llama-8b"),
        ("which is better for llm inference, l40s or a100", "compare l40s,a100"),
        ("what can I run on a 3060 12gb", "models --fits=rtx-3060-12gb"),
        ("what does an h200 cost per hour", "offers --gpu=h200"),
        ("how fast is llama 3.1 8b on an rtx 4090", "estimate decode llama-3.1-8b --gpu=rtx-4090"),
        ("speed of mixtral on 2 a100", "compare a100 --task=decode --model=mixtral-8x7b --gpus=2"),
        ("mac or pc for running local llms under 3000 dollars", "recommend chat llama-3.1-8b --buy --budget=3000usd"),
        ("which gpu under 1.500 € for flux", "recommend images flux.1-dev --buy --budget=1500eur"),
        ("train yolo on 100k images", "recommend train yolo11n --samples=100k"),
        ("serve llama 3 70b at 60 requests per minute in germany", "recommend serve llama-3-70b --rate=1/s --region=germany"),
        ("host qwen3 32b for 20 developers, at least 25 tokens per second", "recommend serve qwen3-32b --tpot=40ms --people=20"),
        ("transcribe 10 hours of phone calls with whisper", "recommend batch whisper-large-v3 --samples=1200"),
        ("gpu for wan 2.1", "recommend images wan2.1-14b"),
        ("is a t4 good for inference of bert", "recommend embed bert-base --gpu=t4"),
        ("rent a gpu for a weekend to finetune mistral 7b", "recommend finetune mistral-7b --deadline=2d"),
        ("graphics card for ollama", "recommend chat llama-3.1-8b --buy"),
        ("deep learning workstation, 5000 usd", "recommend train --buy --budget=5000usd"),
    ],
)
def test_other_wordings_of_newcomers(sentence: str, command: str) -> None:
    assert command_of_sentence(sentence.split(), CATALOG) == (split(command), ())


def test_memory_that_no_flag_takes_is_named_beside_the_memory_needed() -> None:
    reading = command_of_sentence("is 17gb of vram enough for qlora of a 13b".split(), CATALOG)
    assert reading == (["fit", "13b", "--task=finetune", "--qlora"], ("17gb of vram",))


def test_a_size_of_memory_means_the_usual_gpus_that_have_it() -> None:
    reading = command_of_sentence("is 16gb of vram enough for qlora of a 13b".split(), CATALOG)
    assert reading == (["fit", "13b", "--task=finetune", "--qlora", "--gpu=rtx-4060-ti-16gb,rtx-5080,t4"], ())
    reading = command_of_sentence("can I fine-tune llama 3.1 8b on a 24 GB card".split(), CATALOG)
    assert reading == (["fit", "llama-3.1-8b", "--task=finetune", "--gpu=rtx-4090,rtx-3090,l4"], ())


def test_a_fleet_or_a_log_of_requests_is_planned() -> None:
    reading = command_of_sentence("plan a fleet for my request log".split(), CATALOG)
    assert reading == (["plan", "llama-3.1-8b"], ())
    reading = command_of_sentence("fleet of gpus for llama 3.1 70b at 20 requests/s".split(), CATALOG)
    assert reading == (["plan", "llama-3.1-70b", "--rate=20/s"], ())


def test_a_mistyped_command_is_shown_as_it_should_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("recomend serve lama-3.1-8b --rate 2/s".split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "whichgpu recommend serve llama-3.1-8b --rate 2/s" in err


def test_the_command_line_answers_no_sentence_it_read_in_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("train resnet50 in 3 quarters".split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "error: not understood: 3 quarters"
    assert "whichgpu recommend train resnet50" in err


def test_the_command_line_names_the_words_it_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("does a llama 3.1 8b comfortably fit a 4090".split()) == 0
    assert capsys.readouterr().err.splitlines()[:2] == [
        "Read as: whichgpu fit llama-3.1-8b --gpu=rtx-4090",
        "Ignored: comfortably",
    ]


@pytest.mark.parametrize(
    "words", ["recomend serve", "list all offers please", "how is the weather today", "estimte decode llama-3.1-8b"]
)
def test_other_words_are_none(words: str) -> None:
    assert command_of_sentence(words.split(), CATALOG) is None


def test_flags_are_passed_on() -> None:
    reading = command_of_sentence(["which", "gpu", "for", "sdxl", "pictures", "--gpu", "RTX 4090", "--json"], CATALOG)
    assert reading is not None
    command, _ = reading
    assert command[:3] == ["recommend", "images", "stable-diffusion-xl"]
    assert command[-3:] == ["--gpu", "RTX 4090", "--json"]
