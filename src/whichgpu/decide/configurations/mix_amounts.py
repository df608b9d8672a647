"""The reference mix that represents a task if no model is named: its indices and its amount of work."""

from __future__ import annotations

from datetime import date

from whichgpu.price.terms import MONTH_HOURS

UNIT = "x V100"
TRANSFORMER_YEAR = 2018  # of BERT and GPT; before, training mostly meant image models (assumed)
LLM_YEAR = 2023  # before, inference mostly meant vision (assumed)
AMOUNT = MONTH_HOURS * 3600.0  # the work of one V100 in a month


def indices(task: str, day: date) -> tuple[str, ...]:
    """Return the indices of the mix that represent a task on a day."""
    if task == "train":
        return ("cnn-training", "transformer-training") if day.year >= TRANSFORMER_YEAR else ("cnn-training",)
    if task == "finetune":
        return ("transformer-training",)
    return ("llm-inference",) if day.year >= LLM_YEAR else ("vision-inference",)
