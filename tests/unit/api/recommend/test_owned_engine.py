"""GPUs of one's own that the usual engine does not run on."""

from __future__ import annotations

from datetime import date
from typing import Any

from whichgpu.api.context import Context
from whichgpu.api.recommend.recommend_verb import recommend
from whichgpu.catalog.store import Catalog


def test_a_pascal_card_chats_under_llama_cpp_in_the_better_of_two_precisions_that_cost_the_same(catalog: Catalog) -> None:
    fields: Any = {"task": "chat", "model": "llama-3.1-8b", "owned": "GTX 1080 Ti", "gpu": "GTX 1080 Ti,L4"}
    answer = recommend(fields, Context(catalog, date(2026, 8, 1)))
    assert (answer.answer.term, answer.request["engine"], answer.answer.precision) == ("owned", "llama.cpp", "q8_0")
    assert answer.assumptions[0].id == "assumed.engine-of-owned"
