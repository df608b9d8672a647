"""The example notebooks run from their first cell to their last, and what is stored in them is what a run gives."""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import notebooks
import pytest

MAX_NOTEBOOK_BYTES = 128 << 10
Cells = list[dict[str, Any]]


def cells_of(path: Path) -> Cells:
    document: Cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return document


def run(source: str, names: dict[str, Any]) -> tuple[Any, str]:
    """The value of a cell's last expression, and what it printed."""
    tree = ast.parse(source)
    end = tree.body[-1]
    last = end.value if isinstance(end, ast.Expr) else None
    body = ast.Module(tree.body[:-1] if last else tree.body, [])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(body, "cell", "exec"), names)
        value = eval(compile(ast.Expression(last), "cell", "eval"), names) if last else None
    return value, printed.getvalue()


@pytest.mark.long
@pytest.mark.parametrize("path", notebooks.notebooks(), ids=lambda path: path.stem)
def test_every_cell_runs_with_its_stored_output(path: Path) -> None:
    """In this process, for speed; figures may differ by what was calibrated since, kinds of output may not."""
    names: dict[str, Any] = {}
    for cell in cells_of(path):
        if cell["cell_type"] != "code":
            continue
        value, printed = run("".join(cell["source"]), names)
        stored = [output["output_type"] for output in cell["outputs"]]
        assert stored == ["stream"] * bool(printed) + ["execute_result"] * (value is not None), cell["id"]
        kinds = {kind for output in cell["outputs"] for kind in output.get("data", {})}
        assert ("text/html" in kinds) == hasattr(value, "_repr_html_")
        assert ("image/svg+xml" in kinds) == hasattr(value, "_repr_mimebundle_")


@pytest.mark.parametrize("path", notebooks.notebooks(), ids=lambda path: path.stem)
def test_prose_comes_first_and_prices_have_a_day(path: Path) -> None:
    cells = cells_of(path)
    assert cells[0]["cell_type"] == "markdown"
    assert cells[0]["source"][0].startswith("# ")
    assert "DAY = " in "".join(next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
    assert path.stat().st_size < MAX_NOTEBOOK_BYTES


@pytest.mark.skipif(not notebooks.FOLDER.is_dir(), reason="the documents are not part of this copy")
def test_there_are_two() -> None:
    assert len(notebooks.notebooks()) == 2


@pytest.mark.long
@pytest.mark.parametrize("path", notebooks.notebooks(), ids=lambda path: path.stem)
def test_stored_outputs_are_those_of_a_real_run(path: Path) -> None:
    """If not: `.venv/bin/python tools/notebooks.py`, and review the changes."""
    pytest.importorskip("nbclient", reason="needs the development environment")
    ran = [cell.get("outputs") for cell in notebooks.executed(path).cells]
    stored = [cell.get("outputs") for cell in cells_of(path)]
    assert json.loads(json.dumps(ran)) == [_joined(outputs) for outputs in stored]


def _joined(outputs: list[dict[str, Any]] | None) -> Any:
    """Texts of several lines are stored as lists of them."""
    if outputs is None:
        return None
    texts = []
    for output in outputs:
        data = {kind: "".join(text) if isinstance(text, list) else text for kind, text in output.get("data", {}).items()}
        text = {"text": "".join(output["text"])} if "text" in output else {}
        texts.append({**output, **({"data": data} if "data" in output else {}), **text})
    return texts
