"""Checks emitted command lines with the tools' own argument parsers: `python engine_check.py TOOL FOLDER`, prints JSON.

Runs in an environment with torch and the tool; packages that the tool imports but that parsing does not need are replaced by
empty ones (`StubFinder`). The output has, for each line, the options parsed and what is wrong with it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.abc
import importlib.machinery
import io
import json
import re
import shlex
import sys
import types
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

Parse = Callable[[list[str], Path], int]
STUBBED = ("vllm", "sglang", "torchtitan")  # Tools that import more than parsing needs.
# Packages whose presence says that a machine has other chips: these are not there.
PROBES = ("libtpu", "tpu_inference", "torch_xla", "amdsmi", "pathwaysutils")


class _StubType(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stub(name)

    def __or__(cls, other: Any) -> Any:
        return object

    __ror__ = __or__


class _Stub(metaclass=_StubType):
    """Stub of anything that a missing package defines: a class, a function or a decorator."""

    def __init__(self, *values: Any, **options: Any) -> None:
        pass

    def __call__(self, *values: Any, **options: Any) -> Any:
        return values[0] if len(values) == 1 and callable(values[0]) else _stub("result")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stub(name)

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Return the schema of any value, for fields of pydantic models."""
        return import_module("pydantic_core.core_schema").any_schema()


def _stub(name: str) -> Any:
    return _StubType(name, (_Stub,), {})


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds packages that are not installed if the tool itself imports them."""

    def __init__(self, tool: str) -> None:
        self.tool, self.missing = tool, list[str]()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        top = name.partition(".")[0]
        if top not in self.missing:
            frame = sys._getframe(1)
            while frame is not None and "importlib" in frame.f_code.co_filename:
                frame = frame.f_back  # type: ignore[assignment]
            importer = str(frame.f_globals.get("__name__", "")) if frame is not None else ""
            if name != top or top in (self.tool, *PROBES) or importer.partition(".")[0] != self.tool:
                return None
            self.missing.append(top)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        module = types.ModuleType(spec.name)
        vars(module).update(__path__=[], __getattr__=_StubType.__getattr__.__get__(_Stub))
        return module

    def exec_module(self, module: Any) -> None:
        pass


def after(words: Sequence[str], *program: str) -> list[str]:
    """Return the words after those of a program."""
    for place in range(len(words) - len(program) + 1):
        if list(words[place : place + len(program)]) == list(program):
            return list(words[place + len(program) :])
    raise ValueError(f"no {' '.join(program)} in the line")


def vllm() -> Parse:
    """Return a check with the parser of `vllm serve` on a machine without a GPU."""
    import_module("vllm.platforms")._current_platform = import_module("vllm.platforms.cpu").CpuPlatform()  # type: ignore[attr-defined]
    utilities, arguments = (import_module(f"vllm.{name}") for name in ("utils.argparse_utils", "entrypoints.common.cli_args"))
    parser = arguments.make_arg_parser(utilities.FlexibleArgumentParser())
    config = import_module("vllm.config.speculative")
    fields, methods = set(config.SpeculativeConfig.__dataclass_fields__), set(literals(config.SpeculativeMethod))

    def parse(words: list[str], path: Path) -> int:
        count = options_parsed(parser, after(words, "vllm", "serve"))
        settings = parser.parse_args(after(words, "vllm", "serve")).speculative_config or {}
        if not set(settings) <= fields or (settings and settings["method"] not in methods):
            raise ValueError(f"no setting of speculative decoding: {settings}")
        return count

    return parse


def sglang() -> Parse:
    """Return a check with the parser of SGLang's server."""
    parser = argparse.ArgumentParser()
    import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    algorithms = import_module("sglang.srt.speculative.spec_info").SpeculativeAlgorithm

    def parse(words: list[str], path: Path) -> int:
        count = options_parsed(parser, after(words, "-m", "sglang.launch_server"))
        algorithms.from_string(parser.parse_args(after(words, "-m", "sglang.launch_server")).speculative_algorithm)
        return count

    return parse


def trainer() -> Callable[[list[str]], int]:
    """Return a check of a script's arguments with transformers' own parser, which also reads the settings of FSDP."""
    module = import_module("transformers")
    parser = module.HfArgumentParser(module.TrainingArguments)

    def parse(words: list[str]) -> int:
        arguments = [*after(words, "train.py"), "--output_dir=output", "--use_cpu"]
        count = options_parsed(parser, arguments)
        (values,) = parser.parse_args_into_dataclasses([one for one in arguments if not one.startswith("--deepspeed=")])
        config = next((one.partition("=")[2] for one in arguments if one.startswith("--fsdp_config=")), "{}")
        settings: dict[str, Any] = json.loads(config)
        used = {name: (values.fsdp_plugin_args or {}).get(name) for name in settings}
        if used != settings:
            raise ValueError(f"settings of FSDP became {used}")
        return count

    return parse


def accelerate() -> Parse:
    """Return a check with the parser of `accelerate launch`, the reader of its config file and that of the script."""
    parser, script = import_module("accelerate.commands.launch").launch_command_parser(), trainer()
    read = import_module("accelerate.commands.config.config_args").load_config_from_file

    def parse(words: list[str], path: Path) -> int:
        count = options_parsed(parser, after(words, "accelerate", "launch")) + script(words)
        read(str(path.with_suffix(".yaml")))  # Unknown keys and values are an error there.
        return count

    return parse


def torchrun() -> Parse:
    """Return a check with the parsers of torchrun and of the script that it starts."""
    parser, script = import_module("torch.distributed.run").get_args_parser(), trainer()
    return lambda words, path: options_parsed(parser, after(words, "torchrun")) + script(words)


def deepspeed() -> Parse:
    """Return a check of the arguments of the script that deepspeed starts, or torchrun on several nodes."""
    parser, script = import_module("torch.distributed.run").get_args_parser(), trainer()

    def parse(words: list[str], path: Path) -> int:
        if words[0] == "torchrun":
            return options_parsed(parser, after(words, "torchrun")) + script(words)
        launcher = words[: words.index("train.py")]
        if len(launcher) != 2 or not re.fullmatch(r"--num_gpus=\d+", launcher[1]):  # More needs a hostfile.
            raise ValueError(f"no launcher of one node: {launcher}")
        return script(words)

    return parse


def torchtitan() -> Parse:
    """Return a check with torchtitan's config manager."""
    manager = import_module("torchtitan.config").ConfigManager()

    def parse(words: list[str], path: Path) -> int:
        arguments = after(words, "-m", "torchtitan.train")
        config = manager.parse_args(arguments)
        options = dict(word[2:].split("=", 1) for word in arguments if word.startswith("--") and "=" in word)
        for name, value in options.items():
            section, dot, key = name.partition(".")
            if dot and str(getattr(getattr(config, section), key)) != value:
                raise ValueError(f"{name} became {getattr(getattr(config, section), key)!r}")
        return len(options)

    return parse


def literals(kind: Any) -> list[str]:
    """Return the texts of a literal type, also of those nested in it."""
    return [text for one in get_args(kind) for text in ([one] if isinstance(one, str) else literals(one))]


def options_parsed(parser: argparse.ArgumentParser, words: list[str]) -> int:
    """Return how many options a parser reads; abbreviations, unknown options and values of a wrong type are an error."""
    parser.allow_abbrev = False
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        try:
            parser.parse_args(words)
        except SystemExit:
            raise ValueError(errors.getvalue().strip().splitlines()[-1]) from None
    return sum(word.startswith("-") for word in words)


TOOLS: dict[str, Callable[[], Parse]] = {
    "vllm": vllm,
    "sglang": sglang,
    "accelerate": accelerate,
    "torchrun": torchrun,
    "deepspeed": deepspeed,
    "torchtitan": torchtitan,
}


def main() -> None:
    """Check the last command of each script of a tool and print the results."""
    tool, folder = sys.argv[1], Path(sys.argv[2])
    finder = StubFinder(tool)
    if tool in STUBBED:
        sys.meta_path.append(finder)
    with contextlib.redirect_stdout(sys.stderr):
        parse = TOOLS[tool]()
    results: dict[str, dict[str, Any]] = {}
    for path in sorted((folder / tool).glob("*.sh")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
            if not line.strip() or line.startswith("#"):
                continue
            words = shlex.split(re.sub(r"\$NODE_RANK", "1", re.sub(r"\$NODE_OPTIONS", "", line)))
            name = f"{path.relative_to(folder)}:{number}"
            with contextlib.redirect_stdout(sys.stderr):
                try:
                    results[name] = {"checked": parse(words, path), "problem": None}
                except BaseException as problem:
                    results[name] = {"checked": 0, "problem": f"{type(problem).__name__}: {problem}"[:600]}
    print(json.dumps({"results": results, "missing": finder.missing}))


if __name__ == "__main__":
    main()
