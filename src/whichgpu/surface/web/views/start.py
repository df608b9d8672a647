"""The start page: a box for a question in plain words, presets, and four common questions with their answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import msgspec

from whichgpu.api.context import Context
from whichgpu.api.recommend.recommend_verb import recommend
from whichgpu.base.errors import NoAnswer, UsageError, WhichGpuError
from whichgpu.base.messages import Language, msg
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.surface.candidate_cells import money_text
from whichgpu.surface.sentence_question import question_of_sentence
from whichgpu.surface.web.command_replies import catalog, client_error
from whichgpu.surface.web.failure import error_content
from whichgpu.surface.web.page import MAX_SENTENCE, SENTENCE, Page, PageContent, address, view, view_named
from whichgpu.surface.web.panels.recommendation_panel import cards, purchase_basis
from whichgpu.surface.web.reader_language import language_in, with_language
from whichgpu.surface.web.views.shared import lookup_cache
from whichgpu.workload.models import built_in_member
from whichgpu.workload.tasks import task_of_question

Question = Mapping[str, Any]
QUESTIONS: dict[str, Question] = {
    "chat": {"task": "serve", "model": "llama-3.1-70b"},
    "finetune": {"task": "finetune", "model": "llama-3.1-8b", "qlora": True},
    "train": {"task": "train", "model": "resnet50", "epochs": 90},  # As in the paper of 2015, on ImageNet.
    "home": {"task": "serve", "model": "llama-3.1-8b", "buy": True},
}
PRESETS: dict[str, Question] = {
    "me": {"task": "serve", "model": "llama-3.1-8b", "mode": "me"},
    "team": {"task": "serve", "model": "llama-3.1-8b", "mode": "team", "people": "50"},
    "service": {"task": "serve", "model": "llama-3.1-8b", "mode": "service", "rate": "10/s"},
}
EXAMPLES = (
    "which gpu to serve llama-3.1-70b for 50 people",
    "fine-tune llama-3.1-8b with qlora at home for $1000",
    "rent a gpu to train resnet50 in 24 hours",
)
PAGE_NAMES = {"offers": "prices", "estimate": "compare"}  # Pages of commands by another name.
FIGURES = 3  # Figures of an answer in a card.
COLUMNS = ("question", "gpus", "gpu", "url", "sentence")


class CommonAnswer(msgspec.Struct, frozen=True):
    """A common question and its recommendation, or the error that says why there is none; neither if not computed yet."""

    question: str
    answer: RecommendAnswer | None
    error: WhichGpuError | None = None


@view("start")
def start(page: Page) -> PageContent:
    """Return the start page; a sentence in the field `q` leads to the recommendation that it asks for."""
    today = date.today()
    answers = computed_answers(catalog(), today) if page.hurry else common_answers(catalog(), today)
    context: dict[str, Any] = {
        "cards": [_card(one, page) for one in answers],
        "presets": [(name, _url(question, page)) for name, question in PRESETS.items()],
        "examples": [(text, page.url(q=text)) for text in EXAMPLES],
        "error": None,
    }
    document: dict[str, Any] = {"answers": [_document(one, page) for one in answers]}
    if (sentence := page.state[SENTENCE]) is not None:
        question = question_of_sentence(sentence[:MAX_SENTENCE], catalog())
        if question is None:
            error = NoAnswer("unread-sentence", msg("error.unread-sentence"), msg("hint.unread-sentence"), EXAMPLES)
            return error_content("start.html", context, error, page, (SENTENCE,))
        if question.unread:
            message = msg("error.unread-quantity", words=", ".join(question.unread))
            unread = UsageError("unread-quantity", message, msg("hint.unread-quantity"))
            return error_content("start.html", context, unread, page, (SENTENCE,))
        fields = dict(question.fields)
        if "task" in fields and question.command == "recommend":
            fields["task"] = task_of_question(fields["task"], fields)
        if question.command == "estimate":  # The page of comparisons estimates one GPU too.
            fields["name"] = fields.pop("gpu")
        if "model" in fields:  # A size such as 70b means a model of that size.
            fields["model"] = built_in_member(fields["model"], catalog()) or fields["model"]
        is_mix = question.command == "recommend" and "model" not in fields
        answered = {**fields, "any_model": True} if is_mix else fields
        with_sentence = {**answered, SENTENCE: sentence[:MAX_SENTENCE]}  # The answer's page displays the sentence.
        url = _url(with_sentence, page, PAGE_NAMES.get(question.command, question.command))
        document = {"sentence": sentence, "question": fields, "ignored": question.ignored, "url": url}
        return PageContent("start.html", context, document=document, location=url)
    rows = [[row.get(name, "") for name in COLUMNS] for row in document["answers"]]
    return PageContent("start.html", context, document=document, table=(COLUMNS, rows))


_computed: dict[tuple[Catalog, date], tuple[CommonAnswer, ...]] = {}


def computed_answers(catalog: Catalog, today: date) -> tuple[CommonAnswer, ...]:
    """Return the answers to the common questions if they have been computed; otherwise the questions alone."""
    return _computed.get((catalog, today)) or tuple(CommonAnswer(name, None) for name in QUESTIONS)


def common_answers(catalog: Catalog, today: date) -> tuple[CommonAnswer, ...]:
    """Return the answers to the common questions as of today, which take a second or two to compute."""
    if (catalog, today) not in _computed:
        context = Context(catalog, today, lookups=lookup_cache())
        answers = tuple(_answer(name, question, context) for name, question in QUESTIONS.items())
        _computed.clear()
        _computed[catalog, today] = answers
    return _computed[catalog, today]


def _answer(name: str, question: Question, context: Context) -> CommonAnswer:
    try:
        return CommonAnswer(name, recommend({**question}, context))  # type: ignore[typeddict-item]
    except WhichGpuError as error:
        return CommonAnswer(name, None, error)


def _url(question: Question, page: Page, command: str = "recommend") -> str:
    """Return the URL of a command's page with the fields of a question, in the reader's language."""
    view = view_named(command)
    return with_language(address(view, {**view.defaults, **question}, always="model"), language_in(page.query))


def _card(one: CommonAnswer, page: Page) -> dict[str, Any]:
    language, best = page.language, one.answer.answer if one.answer else None
    return {
        "name": one.question,
        "url": _url(QUESTIONS[one.question], page),
        "pending": one.answer is None and one.error is None,
        "gpus": f"{best.gpus}× {best.gpu_name}" if best else "",
        "what": _what(one.answer, language) if one.answer else "",
        "where": _where(one.answer, language) if one.answer else "",
        "sentence": one.answer.sentence if one.answer else None,
        "figures": cards(one.answer, language)[1 : FIGURES + 1] if one.answer else (),
        "error": client_error(one.error, language)["message"] if one.error else "",
    }


def _what(answer: RecommendAnswer, language: Language) -> str:
    """Return the model and the precision of an answer as text."""
    return language.listed((answer.request["model"], answer.answer.precision))


def _where(answer: RecommendAnswer, language: Language) -> str:
    best = answer.answer
    if best.purchase is not None:
        return language.listed((money_text(best.purchase), purchase_basis(best, language)))
    return language.listed(tuple(filter(None, (best.provider, best.region, language.text(f"term.{best.term}")))))


def _document(one: CommonAnswer, page: Page) -> dict[str, Any]:
    row: dict[str, Any] = {"question": one.question, "url": _url(QUESTIONS[one.question], page)}
    if one.answer is None:
        return row
    best = one.answer.answer
    return row | {"gpu": best.gpu, "gpus": best.gpus, "sentence": page.language.render(one.answer.sentence)}
