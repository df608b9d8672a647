"""Checks emitted files with the parsers of the tools they are written for: `python emitted_check.py FOLDER`, prints JSON.

Runs in an environment of its own, with kubernetes-validate, dstack, skypilot, awscli and the types of Vertex AI; FOLDER has a
folder of files for each target. The output has, for each file, how many documents were checked and what is wrong with it.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
import types
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import yaml

# Options of sbatch, as documented by Slurm 25.05 (https://slurm.schedmd.com/sbatch.html).
SBATCH = frozenset(
    "job-name nodes ntasks ntasks-per-node cpus-per-task gpus cpus-per-gpu gpus-per-node gpus-per-task gres time mem partition "
    "constraint array output error exclusive requeue signal export".split()
)
KUBERNETES = "1.33"  # Oldest release whose schemas are used.
INSTANCE_LABEL, GKE_LABEL = "node.kubernetes.io/instance-type", "cloud.google.com/gke-accelerator"
TEXT, NUMBER = {"type": "string"}, {"type": "integer", "minimum": 1}


def exactly(**fields: Any) -> dict[str, Any]:
    """Return the schema of an object that has these fields and no others."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def custom(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a custom resource."""
    return exactly(apiVersion={"const": version}, kind={"const": kind}, metadata=exactly(name=TEXT), spec=spec)


# Fields that are written of custom resources, as their definitions have them: Karpenter 1 (karpenter.sh_nodepools.yaml),
# LeaderWorkerSet 0.7 (leaderworkerset.x-k8s.io_leaderworkersets.yaml).
NODE_POOL = custom(
    "karpenter.sh/v1",
    "NodePool",
    exactly(
        template=exactly(
            spec=exactly(
                nodeClassRef=exactly(
                    group={"enum": ["karpenter.k8s.aws", "karpenter.azure.com"]},
                    kind={"enum": ["EC2NodeClass", "AKSNodeClass"]},
                    name=TEXT,
                ),
                requirements={
                    "type": "array",
                    "items": exactly(
                        key={"enum": [INSTANCE_LABEL, "karpenter.sh/capacity-type", "topology.kubernetes.io/region"]},
                        operator={"enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]},
                        values={"type": "array", "items": TEXT},
                    ),
                },
                taints={
                    "type": "array",
                    "items": exactly(key=TEXT, value=TEXT, effect={"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}),
                },
            )
        ),
        limits={"type": "object", "additionalProperties": NUMBER, "propertyNames": {"enum": ["nvidia.com/gpu", "amd.com/gpu"]}},
    ),
)
WORKER_SET = custom(
    "leaderworkerset.x-k8s.io/v1",
    "LeaderWorkerSet",
    exactly(replicas=NUMBER, leaderWorkerTemplate=exactly(size=NUMBER, workerTemplate={"type": "object"})),
)
CUSTOM = {"NodePool": NODE_POOL, "LeaderWorkerSet": WORKER_SET}


def kubernetes(text: str) -> int:
    """Check manifests against the schemas of Kubernetes and of custom resources; return how many there are."""
    documents = list(yaml.safe_load_all(text))
    for document in documents:
        if schema := CUSTOM.get(document["kind"]):
            import_module("jsonschema").validate(document, schema)
        if document["kind"] == "NodePool":
            check_machines(pool_labels(document))
            continue
        if document["kind"] == "LeaderWorkerSet":
            document = deployment(document["spec"]["leaderWorkerTemplate"]["workerTemplate"])
        import_module("kubernetes_validate").validate(document, KUBERNETES, strict=True)
        if document["kind"] in ("Deployment", "Job"):
            check_machines(document["spec"]["template"]["spec"].get("nodeSelector", {}))
    return len(documents)


def deployment(template: dict[str, Any]) -> dict[str, Any]:
    """Return a Deployment with a pod template, by whose schema the template is checked."""
    spec = {"selector": {"matchLabels": template["metadata"]["labels"]}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": spec}


def pool_labels(pool: dict[str, Any]) -> dict[str, str]:
    """Return the labels that a node pool requires, with the only value of each."""
    return {one["key"]: one["values"][0] for one in pool["spec"]["template"]["spec"]["requirements"]}


def check_machines(labels: dict[str, str]) -> None:
    """Raise ValueError for an instance type that EC2 does not have or an accelerator that Google does not have."""
    machine, accelerator = labels.get(INSTANCE_LABEL, ""), labels.get(GKE_LABEL)
    if "." in machine and machine not in ec2_instance_types():  # Names of EC2 have a dot, those of Google and Azure none.
        raise ValueError(f"no instance type of EC2: {machine}")
    if accelerator is not None and accelerator not in google_accelerators():
        raise ValueError(f"no accelerator of Google Cloud: {accelerator}")


@cache
def ec2_instance_types() -> frozenset[str]:
    """Return the instance types in the model of EC2's interface that the AWS CLI contains."""
    session = import_module("awscli.botocore.session").Session()
    return frozenset(session.get_service_model("ec2").shape_for("InstanceType").enum)


@cache
def google_accelerators() -> frozenset[str]:
    """Return the accelerator types of Vertex AI, which has the names of Compute Engine and GKE in capitals."""
    package = importlib.metadata.distribution("google-cloud-aiplatform")
    path = Path(str(package.locate_file("google/cloud/aiplatform_v1/types/accelerator_type.py")))
    names = [node.id for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Name)]
    return frozenset(name.lower().replace("_", "-") for name in names if name.startswith("NVIDIA_"))


def dstack(text: str) -> int:
    """Parse configurations with dstack's own models; return how many."""
    models = import_module("dstack._internal.core.models.configurations")

    documents = [one for one in yaml.safe_load_all(text) if one]
    for document in documents:
        gpu = models.parse_apply_configuration(document).resources.gpu
        accelerators = import_module("gpuhunt._internal.constraints").find_accelerators(names=gpu.name)
        if not any(gpu.memory is None or gpu.memory.min == one.memory for one in accelerators):
            raise ValueError(f"no GPU of gpuhunt: {gpu.name} {gpu.memory}")
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


def cloud_cli(text: str) -> int:
    """Parse lines of the AWS CLI with its own parser and the model of EC2's interface; return how many lines there are."""
    lines = [line for line in text.splitlines() if line.startswith(("aws ", "gcloud ", "az "))]
    for line in lines:
        words = [re.sub(r"\$\{\w+:[-?](.*?)\}", r"\1", word) for word in shlex.split(line)]
        if words[0] == "aws":
            run_instances([word for word in words[1:] if not word.startswith("--user-data=")])
        for word in words:
            if accelerator := re.match(r"--accelerator=type=([\w-]+),count=\d+$", word):
                check_machines({GKE_LABEL: accelerator[1]})
    shell(text)
    return len(lines)


def run_instances(words: list[str]) -> None:
    """Raise ValueError if the AWS CLI would not send these words to EC2 as they are."""
    driver, problems = import_module("awscli.clidriver"), list[str]()

    def check(caller: Any, service: str, operation: str, parameters: dict[str, Any], _: Any) -> int:
        shape = caller._session.get_service_model(service).operation_model(operation).input_shape
        report = import_module("awscli.botocore.validate").ParamValidator().validate(parameters, shape)
        if report.has_errors():
            problems.append(report.generate_report())
        check_machines({INSTANCE_LABEL: parameters["InstanceType"]})
        return 0

    driver.CLIOperationCaller.invoke = check
    os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_EC2_METADATA_DISABLED="true")
    code = driver.create_clidriver().main(words)
    if code or problems:
        raise ValueError(f"the AWS CLI ends with {code}: {problems}")


def shell(text: str) -> int:
    """Check the syntax of a shell script."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr[:300])
    return 1


def plain_yaml(text: str) -> int:
    """Check that a file is YAML; return how many documents it has."""
    return len(list(yaml.safe_load_all(text)))


CHECKS = {
    "kubernetes": kubernetes,
    "karpenter": kubernetes,
    "dstack": dstack,
    "skypilot": skypilot,
    "slurm": slurm,
    "cloud-cli": cloud_cli,
}


def main() -> None:
    """Check every file and print the results."""
    folder = Path(sys.argv[1])
    results: dict[str, dict[str, Any]] = {}
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        target = path.relative_to(folder).parts[0]
        text = path.read_text(encoding="utf-8")
        check = CHECKS.get(target, plain_yaml)
        if path.suffix == ".sh" and not path.name.endswith("-cloud.sh"):
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
