"""Checks emitted files with the parsers of the tools they are written for: `python emitted_check.py FOLDER`, prints JSON.

Runs in an environment of its own, with kubernetes-validate, dstack and skypilot; FOLDER has a folder of files for each target.
The output has, for each file, how many documents were checked and what is wrong with it.
"""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import subprocess
import sys
import types
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import yaml

# Options of sbatch, as documented by Slurm 25.05 (https://slurm.schedmd.com/sbatch.html).
SBATCH = frozenset(
    "job-name nodes ntasks ntasks-per-node cpus-per-task gpus gpus-per-node gpus-per-task gres time mem partition constraint "
    "array output error exclusive requeue signal export".split()
)
KUBERNETES = "1.33"  # Oldest release whose schemas are used.
# Custom resources with the path of their pod template, which is checked as that of a Deployment; None has no pods.
CUSTOM = {
    "LeaderWorkerSet": ("spec", "leaderWorkerTemplate", "workerTemplate"),
    "NodePool": None,
    "EC2NodeClass": None,
    "AKSNodeClass": None,
}


def kubernetes(text: str) -> int:
    """Check manifests against the schemas of Kubernetes; return how many have one."""
    validator = import_module("kubernetes_validate")

    count = 0
    for document in yaml.safe_load_all(text):
        kind = document["kind"]
        if kind in CUSTOM:
            path = CUSTOM[kind]
            if set(document) != {"apiVersion", "kind", "metadata", "spec"}:
                raise ValueError(f"{kind} has {sorted(document)}")
            if path is None:
                continue
            template = document
            for key in path:
                template = template[key]
            labels = {"app": "x"}
            template = {"metadata": {"labels": labels}, "spec": template["spec"]}
            document = {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "x"},
                "spec": {"selector": {"matchLabels": labels}, "template": template},
            }
        validator.validate(document, KUBERNETES, strict=True)
        count += 1
    return count


def dstack(text: str) -> int:
    """Parse configurations with dstack's own models; return how many."""
    models = import_module("dstack._internal.core.models.configurations")

    documents = [one for one in yaml.safe_load_all(text) if one]
    for document in documents:
        models.parse_apply_configuration(document)
    return len(documents)


def skypilot(text: str) -> int:
    """Check tasks against SkyPilot's schemas; return how many."""
    import jsonschema

    schemas = sky_schemas()
    documents = [one for one in yaml.safe_load_all(text) if one]
    for document in documents:
        jsonschema.validate(document, schemas.get_task_schema())
        jsonschema.validate(document["resources"], schemas.get_resources_schema())
        cloud = document["resources"].get("cloud")
        if cloud is not None and cloud not in sys.modules["sky.skylet.constants"].ALL_CLOUDS:
            raise ValueError(f"no cloud {cloud!r}")
        if "service" in document:
            jsonschema.validate(document["service"], schemas.get_service_schema())
    return len(documents)


def sky_schemas() -> Any:
    """SkyPilot's own schemas, imported without its package of a hundred dependencies."""
    if "sky" not in sys.modules:
        distribution = importlib.metadata.distribution("skypilot")
        sky = types.ModuleType("sky")
        vars(sky).update(__path__=[str(distribution.locate_file("sky"))], __version__=distribution.version)
        sys.modules["sky"] = sky
        for name in (
            "skylet.autostop_lib",
            "utils.volume",
            "data.storage",
            "serve.load_balancing_policies",
            "serve.spot_placer",
            "setup_files",
            "setup_files.dependencies",
            "data",
            "serve",
            "server",
            "server.plugins",
        ):
            sys.modules[f"sky.{name}"] = MagicMock()
    return import_module("sky.utils.schemas")


def slurm(text: str) -> int:
    """Check the directives of a batch script; return how many there are."""
    lines = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]
    for line in lines:
        for word in shlex.split(line):
            name, equals, value = word.removeprefix("--").partition("=")
            if not word.startswith("--") or name not in SBATCH or (equals and not value):
                raise ValueError(f"no option of sbatch: {word}")
    shell(text)
    return len(lines)


def shell(text: str) -> int:
    """Check the syntax of a shell script."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr[:300])
    return 1


def plain_yaml(text: str) -> int:
    """Check that a file is YAML; return how many documents it has."""
    return len(list(yaml.safe_load_all(text)))


CHECKS = {"kubernetes": kubernetes, "karpenter": kubernetes, "dstack": dstack, "skypilot": skypilot, "slurm": slurm}


def main() -> None:
    """Check every file and print the results."""
    folder = Path(sys.argv[1])
    results: dict[str, dict[str, Any]] = {}
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        target = path.relative_to(folder).parts[0]
        text = path.read_text(encoding="utf-8")
        check = CHECKS.get(target, plain_yaml)
        if path.suffix == ".sh" and check is not slurm:
            check = shell
        if path.suffix not in (".sh", ".yaml", ".yml") and target not in CHECKS:
            continue
        try:
            results[str(path.relative_to(folder))] = {"checked": check(text), "problem": None}
        except Exception as problem:
            results[str(path.relative_to(folder))] = {"checked": 0, "problem": f"{type(problem).__name__}: {problem}"[:600]}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
