"""The pages' modules as one classic script: browsers load no modules from a folder on disk."""

from __future__ import annotations

import re

from whichgpu.surface.web.static_files import FOLDER

MAIN = "main.js"  # The module that a page loads.
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|const) (\w+))", re.MULTILINE)


def classic_script() -> str:
    """Return a script that does what the main module does: each module is a function's value, after those that it imports."""
    modules: dict[str, str] = {}
    _add(MAIN, modules)
    return "(() => {\nconst modules = {};\n" + "\n".join(modules.values()) + "\n})();\n"


def _add(name: str, modules: dict[str, str]) -> None:
    """Add a module to those already converted, the modules that it imports first."""
    if name in modules:
        return
    code = (FOLDER / name).read_text(encoding="utf-8")
    for _, other in _IMPORT.findall(code):
        _add(other, modules)
    exported = ", ".join(match[1] for match in _EXPORT.findall(code))
    code = _EXPORT.sub(r"\1", _IMPORT.sub(r'const \1 = modules["\2"];', code))
    modules[name] = f'modules["{name}"] = (() => {{\n{code}\nreturn {{ {exported} }};\n}})();'
