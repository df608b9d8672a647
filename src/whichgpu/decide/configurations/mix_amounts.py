"""The reference mix that stands for a task where no model is named: which indices, and how much is done."""

from __future__ import annotations

from datetime import date

from whichgpu.price.terms import MONTH_HOURS

UNIT = "x V100"
TRANSFORMER_YEAR = 2018  # of BERT and GPT; before it, training mostly meant images
LLM_YEAR = 2023  # before it, inference mostly meant looking at images
AMOUNT = MONTH_HOURS * 3600.0  # what one V100 does in a month


def indices(task: str, day: date) -> tuple[str, ...]:
    """The indices of the mix that stand for a task."""
    if task == "train":
        return ("cnn-training", "transformer-training") if day.year >= TRANSFORMER_YEAR else ("cnn-training",)
    if task == "finetune":
        return ("transformer-training",)
    return ("llm-inference",) if day.year >= LLM_YEAR else ("vision-inference",)
