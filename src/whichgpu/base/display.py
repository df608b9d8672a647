"""Methods of every answer for Python users: document, rows, table and chart.

The surface package renders answers but must not be imported from here; `whichgpu/__init__.py` registers it once.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `import whichgpu` loads this module, and importing `typing` would slow it.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class AnswerRenderer(Protocol):
        """Interface of the module that renders answers (`surface.python.answer_display`); `lang` is a language's code."""

        def json_text(self, answer: object, lang: str | None) -> str: ...
        def records(self, answer: object) -> list[dict[str, Any]]: ...
        def chart(self, answer: object, lang: str | None) -> dict[str, Any]: ...
        def html(self, answer: object) -> str: ...
        def text(self, answer: object) -> str: ...
        def headline(self, answer: object, lang: str | None) -> str: ...
        def bundle(self, spec: dict[str, Any]) -> dict[str, Any]: ...
        def save(self, spec: dict[str, Any], path: str) -> None: ...


_loaders: list[Callable[[], AnswerRenderer]] = []


def set_renderer(load: Callable[[], AnswerRenderer]) -> None:
    """Register the function that loads the renderer of answers (tables, charts) when one is first displayed."""
    _loaders[:] = [load]


def _renderer() -> AnswerRenderer:
    return _loaders[0]()


def _package(name: str) -> Any:
    """Return a package that is no dependency; raise `UsageError` if it is not installed."""
    from importlib import import_module

    from whichgpu.base.errors import UsageError
    from whichgpu.base.messages import msg

    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        message = msg("error.needs-extra", name=name)
        raise UsageError("needs-extra", message, msg("hint.needs-package", name=name)) from missing


class Chart(dict):  # type: ignore[type-arg]
    """A chart as a Vega-Lite spec. Notebooks that know Vega-Lite draw it, others display an SVG if vl-convert is installed."""

    def save(self, path: str) -> None:
        """Write the chart as .svg, .png or .html, by the path's suffix. Needs vl-convert, the extra `plot`."""
        _renderer().save(dict(self), path)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return _renderer().bundle(dict(self))

    def __repr__(self) -> str:
        return str(self._repr_mimebundle_()["text/plain"])


class Displayable:
    """Base class of every answer, with methods that render it as JSON, rows, a chart or a sentence."""

    __slots__ = ()

    def to_dict(self, lang: str | None = None) -> dict[str, Any]:
        """Return the document that the command line prints with --json, as dicts and lists."""
        import json

        return dict(json.loads(self.to_json(lang)))

    def to_json(self, lang: str | None = None) -> str:
        """Return the document that the command line prints with --json, as text."""
        return _renderer().json_text(self, lang)

    def to_records(self) -> list[dict[str, Any]]:
        """Return the answer's rows as flat dicts with equal keys and money as numbers, ready for a data frame."""
        return _renderer().records(self)

    def to_pandas(self) -> Any:
        """Return the rows of `to_records` as a pandas DataFrame; needs pandas."""
        return _package("pandas").DataFrame(self.to_records())

    def to_polars(self) -> Any:
        """Return the rows of `to_records` as a polars DataFrame; needs polars."""
        return _package("polars").DataFrame(self.to_records(), infer_schema_length=None)

    def chart(self, lang: str | None = None) -> Chart:
        """Return the answer's chart as a Vega-Lite spec: a dict that a notebook draws."""
        return Chart(_renderer().chart(self, lang))

    def headline(self, lang: str | None = None) -> str:
        """Return the answer's main result in one sentence."""
        return _renderer().headline(self, lang)

    def _repr_html_(self) -> str:
        return _renderer().html(self)

    def __repr__(self) -> str:
        return _renderer().text(self)
