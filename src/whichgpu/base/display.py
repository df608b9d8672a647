"""What every answer can do for those who ask from Python: be read as a document, as rows, as a table, as a chart.

How an answer looks is the surface's affair, which is above all rooms that make answers: the package says once who shows them.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `import whichgpu` loads this, and need not wait for typing
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class AnswerRenderer(Protocol):
        """Who turns answers into what people and programs read; `lang` is a language's code."""

        def json_text(self, answer: object, lang: str | None) -> str:
            """The document `--json` prints."""

        def records(self, answer: object) -> list[dict[str, Any]]:
            """The rows `--csv` prints, money as numbers."""

        def chart(self, answer: object, lang: str | None) -> dict[str, Any]:
            """The Vega-Lite spec of the picture `--plot` draws."""

        def html(self, answer: object) -> str:
            """The sentence, the table and all that is said under it."""

        def text(self, answer: object) -> str:
            """The sentence and the table."""

        def headline(self, answer: object, lang: str | None) -> str:
            """The sentence alone."""

        def bundle(self, spec: dict[str, Any]) -> dict[str, Any]:
            """A chart as what a notebook can draw, by type."""

        def save(self, spec: dict[str, Any], path: str) -> None:
            """A chart as a file."""


_loaders: list[Callable[[], AnswerRenderer]] = []


def set_renderer(load: Callable[[], AnswerRenderer]) -> None:
    """Who shows answers, loaded when the first one is shown."""
    _loaders[:] = [load]


def _shower() -> AnswerRenderer:
    return _loaders[0]()


class Chart(dict):  # type: ignore[type-arg]  # checkers see one of any values
    """A Vega-Lite spec. Notebooks that know Vega-Lite draw it, others show an SVG where vl-convert is installed."""

    def save(self, path: str) -> None:
        """Write it as the ending says: .svg, .png or .html. Needs vl-convert, the extra `plot`."""
        _shower().save(dict(self), path)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return _shower().bundle(dict(self))

    def __repr__(self) -> str:
        return str(self._repr_mimebundle_()["text/plain"])


class Displayable:
    """An answer that shows itself."""

    __slots__ = ()

    def to_dict(self, lang: str | None = None) -> dict[str, Any]:
        """The document the command line prints with --json, as dicts and lists."""
        import json

        read: dict[str, Any] = json.loads(self.to_json(lang))
        return read

    def to_json(self, lang: str | None = None) -> str:
        """The document the command line prints with --json."""
        return _shower().json_text(self, lang)

    def to_records(self) -> list[dict[str, Any]]:
        """Its rows as flat dicts, one set of keys, money as numbers: what any data frame is made from."""
        return _shower().records(self)

    def chart(self, lang: str | None = None) -> Chart:
        """Its picture as a Vega-Lite spec: a dict that a notebook draws."""
        return Chart(_shower().chart(self, lang))

    def headline(self, lang: str | None = None) -> str:
        """The answer in a sentence."""
        return _shower().headline(self, lang)

    def _repr_html_(self) -> str:
        return _shower().html(self)

    def __repr__(self) -> str:
        return _shower().text(self)
