"""How a page's answer was read from a plain sentence: its fields, the words ignored, and the jobs that it leaves out."""

from __future__ import annotations

from typing import Any

from whichgpu.base.messages import Language
from whichgpu.base.names import squash
from whichgpu.surface.sentence_question import question_of_sentence
from whichgpu.surface.web.command_replies import catalog
from whichgpu.surface.web.page import MAX_SENTENCE, SENTENCE, Page, address, view_named
from whichgpu.surface.web.reader_language import language_in, with_language
from whichgpu.surface.web.views import START
from whichgpu.workload.models import built_in, built_in_member


def sentence_context(page: Page) -> dict[str, Any]:
    """Return the sentence that led to an answer, the fields read from it, the words ignored, and links for its other jobs."""
    sentence = page.state.get(SENTENCE)
    if not sentence or page.name == START:
        return {}
    question = question_of_sentence(sentence[:MAX_SENTENCE], catalog())
    if question is None:
        return {"asked_sentence": sentence}
    fields = [_field(name, value, sentence, page.language) for name, value in question.fields.items()]
    others = [(one, _url(one, page)) for one in question.others]
    return {"asked_sentence": sentence, "read_fields": tuple(fields), "ignored": question.ignored, "other_jobs": others}


def _field(name: str, value: str, sentence: str, language: Language) -> str:
    id = f"web.field-{name.replace('_', '-')}"
    label = language.text(id) if id in language else name
    if value == "true":
        return label
    return language.text("web.sentence-field", field=label, value=_model(value, sentence, language) if name == "model" else value)


def _model(name: str, sentence: str, language: Language) -> str:
    """Return the id of the model that a name or a size means, with the name that the sentence has for it if it is another."""
    id = built_in_member(name, catalog()) or name
    model = built_in(id, catalog())
    typed = squash(sentence)
    if model is None or squash(model.id) in typed:
        return id
    names = [other for other in model.names if squash(other) in typed]
    other = max(names, key=len, default=name)
    return language.text("web.sentence-model", model=model.id, name=other) if squash(other) != squash(model.id) else id


def _url(sentence: str, page: Page) -> str:
    view = view_named(START)
    return with_language(address(view, {**view.defaults, SENTENCE: sentence}), language_in(page.query))
