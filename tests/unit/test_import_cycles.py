"""No module imports itself by way of others: not at start, not inside a function, not for type checkers."""

from __future__ import annotations

import grimp


def cycles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected modules (Tarjan's algorithm), those of one module left out."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for imported in sorted(imports[module]):
            if imported not in order:
                visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in stack:
                lowest[module] = min(lowest[module], order[imported])
        if lowest[module] == order[module]:
            place = stack.index(module)
            group, stack[place:] = stack[place:], []
            if len(group) > 1:
                groups.append(sorted(group))

    for module in sorted(imports):
        if module not in order:
            visit(module)
    return groups


def test_cycles_are_detected() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_no_import_cycles() -> None:
    graph = grimp.build_graph("whichgpu", cache_dir=None)
    assert not cycles({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})


def test_no_folder_has_more_than_twenty_modules() -> None:
    graph = grimp.build_graph("whichgpu", cache_dir=None)
    packages = {module.rpartition(".")[0] for module in graph.modules} - {""}
    sizes = {package: sum(not graph.find_children(child) for child in graph.find_children(package)) for package in packages}
    assert {package: size for package, size in sizes.items() if size > 20} == {}
