"""Tasks and their properties; a new task needs only a row in this table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

Task = Literal["train", "finetune", "serve", "batch", "prefill", "decode", "forward", "embed"]
Step = Literal["train", "prefill", "decode", "forward"]


class TaskTraits(msgspec.Struct, frozen=True):
    """Properties of a task, such as training, serving or offline inference."""

    step: Step  # kind of step whose time is estimated, unless `generating`
    finetuning: bool = False  # whether training starts from trained weights
    serving: bool = False  # whether requests arrive at a rate and have latency objectives
    offline: bool = False  # whether it is a fixed amount of inference, which can be divided over GPUs
    generating: bool = False  # whether generative models produce whole responses (prefill and decode)
    logits: Literal["all", "last", "none"] = "last"  # positions at which the output head is computed

    @property
    def training(self) -> bool:
        """Whether the task computes gradients."""
        return self.step == "train"

    @property
    def decoding(self) -> bool:
        """Whether the task lets generative models decode, one token for each sequence at a time."""
        return self.generating or self.step == "decode"

    @property
    def caching(self) -> bool:
        """Whether generative models need a KV cache for the task."""
        return self.decoding or self.step == "prefill"

    @property
    def ends(self) -> bool:
        """Whether the task is a run that ends, rather than a service or a single pass."""
        return self.training or self.offline


TASK_TRAITS: Mapping[Task, TaskTraits] = {
    "train": TaskTraits("train"),
    "finetune": TaskTraits("train", finetuning=True),
    "serve": TaskTraits("forward", serving=True, generating=True),
    "batch": TaskTraits("forward", offline=True, generating=True),
    "prefill": TaskTraits("prefill"),
    "decode": TaskTraits("decode"),
    "forward": TaskTraits("forward", logits="all"),
    "embed": TaskTraits("forward", offline=True, logits="none"),
}
TASKS: tuple[Task, ...] = tuple(TASK_TRAITS)
# Tasks for which GPUs are rented: runs that end, and services.
RUN_TASKS = tuple(task for task, traits in TASK_TRAITS.items() if traits.ends or traits.serving)
# Words for which `recommend` has a task: a chat is a service for one user, pictures are made in batches, a reranker reads pairs
# as an embedding model reads texts, and speech is transcribed as it arrives.
TASK_OF_WORD: Mapping[str, Task] = {"chat": "serve", "images": "batch", "rerank": "embed", "transcribe": "serve"}
RECOMMEND_TASKS = (*RUN_TASKS, *TASK_OF_WORD)
ARRIVALS = ("rate", "people", "ttft_max", "tpot_max")  # fields of a service, whose requests arrive over time


def task_of_question(word: str, fields: Collection[str]) -> str:
    """Return the task that `recommend` is asked for; texts to embed that arrive at a rate are a service.

    >>> task_of_question("embed", ("rate",)), task_of_question("rerank", ()), task_of_question("chat", ())
    ('serve', 'embed', 'serve')
    """
    task = TASK_OF_WORD.get(word, word)
    return "serve" if task == "embed" and set(ARRIVALS) & set(fields) else task
