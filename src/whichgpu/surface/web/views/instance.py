"""The page of one instance: its GPUs, host and links, what its name says, and its prices by region and term."""

from __future__ import annotations

from typing import Any

from whichgpu.api.facts.catalog import select_instances
from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import Names
from whichgpu.catalog.find import exact_instances
from whichgpu.catalog.host import Instance
from whichgpu.catalog.names.instances import explain_name
from whichgpu.surface.commands.hosts import machine_sentence, name_part
from whichgpu.surface.web.command_replies import catalog
from whichgpu.surface.web.page import Page, PageContent, view
from whichgpu.surface.web.panels.subjects import HIDDEN_FACTS, facts, instance_url, offer_rows
from whichgpu.surface.web.views.shared import context_of, page_words

MAX_OFFERS = 200  # Offers of an instance on its page.


@view(
    "instance",
    extra={"instance": Field(Names("instances", many=False)), "provider": Field(Names("providers", many=False))},
    defaults={"instance": "p5.48xlarge"},
    subject="instance",
)
def instance(page: Page) -> PageContent:
    """Return the page of one instance; providers may have instances of the same name, of which `provider` selects one."""
    language = page.language
    row, others = _instance_of(page.state["instance"], page.state["provider"])
    parts = explain_name(catalog(), row)
    request = {"instance": [row.instance], "provider": [row.provider], "sort": "price", "limit": MAX_OFFERS}
    offered, matching = offer_rows(request, context_of(page), language)
    context: dict[str, Any] = {
        **page_words(language),
        "row": row,
        "sentence": machine_sentence(row),
        "facts": facts(row, language, (*HIDDEN_FACTS, "instance", "provider", "gpu_name")),
        "parts": [(part.part, name_part(language, part)[1]) for part in parts],
        "offers": offered,
        "matching": matching,
        "others": [(one.provider, one.instance) for one in others],
        "sources": catalog().cited_sources(row.sources, *(part.sources for part in parts)),
        "instance_link": instance_url,
    }
    return PageContent("instance.html", context, ("instances", {"names": [row.instance], "provider": row.provider}))


def _instance_of(name: str, provider: str | None) -> tuple[Instance, list[Instance]]:
    """Return the instance of a name at a provider (the first if none is given), and the others of that name."""
    rows = [row for row in exact_instances(catalog().instances, name) if provider in (None, row.provider)]
    if not rows:
        rows = list(select_instances([name], catalog=catalog()).instances)
    others = [row for row in exact_instances(catalog().instances, rows[0].instance) if row.provider != rows[0].provider]
    return rows[0], others
