"""The page of all built-in models: the table of sizes, with a filter by name, a GPU they must fit, and any sort order."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from whichgpu.api.facts import models as verbs
from whichgpu.api.request.catalog import ModelsRequest
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import msg
from whichgpu.surface.cells import cell_text, flat_rows, heading
from whichgpu.surface.commands.models import SPEED_COLUMNS, fitting_headline
from whichgpu.surface.web.failure import error_content
from whichgpu.surface.web.page import Page, PageContent, view
from whichgpu.surface.web.views.forms import Form
from whichgpu.surface.web.views.shared import context_of, page_words, sort_order

COLUMNS = ("name", "publisher", "kind", "parameters", "active_parameters", "layers", "max_context", "license", "released")
FITTING_COLUMNS = ("name", "publisher", "parameters", "precision", "needed", *SPEED_COLUMNS, "released")
NUMERIC = ("parameters", "active_parameters", "layers", "max_context", "needed", *SPEED_COLUMNS[:3])


@view("models", ModelsRequest)
def models(page: Page) -> PageContent:
    """Return the page of all built-in models, or of those that fit a GPU."""
    state, language = page.state, page.language
    request = page.request(ModelsRequest)
    command = "models", request
    form = Form(page)
    name = replace(form.field("name"), label=language.text("web.field-model-names"))
    context: dict[str, Any] = {
        "form": {"name": name, "fits": form.field("fits", completions="gpus")},
        **page_words(language), "rows": None, "error": None,
    }  # fmt: skip
    try:
        page.check()
        answer = verbs.models(page.request(ModelsRequest), context_of(page))  # type: ignore[arg-type]
    except WhichGpuError as error:
        return error_content("models.html", context, error, page, command=command)
    names = FITTING_COLUMNS if state["fits"] else COLUMNS
    cells = flat_rows(answer.models)
    context |= {
        "rows": [
            (model.id, [cell_text(name, row.get(name), language) for name in names])
            for model, row in zip(answer.models, cells, strict=True)
        ],
        "headline": fitting_headline(answer) if state["fits"] else msg("models.count", n=len(answer.models)),
        "heads": [(name, heading(name, language), sort_order(state["sort"], name), name in NUMERIC) for name in names],
    }
    return PageContent("models.html", context, command)
