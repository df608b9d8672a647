"""Lines that create machines use options that each cloud's tool documents, for the machine and count of the offer."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.decide.launch.test_launch_targets import HINT, first_document
from whichgpu.base.errors import UsageError
from whichgpu.decide.launch.targets import LaunchPlan, launch_files

# Options as documented: aws ec2 run-instances, gcloud compute instances create, az vm create.
DOCUMENTED = {
    "aws": "region instance-type count image-id block-device-mappings tag-specifications instance-market-options user-data",
    "gcloud": "zone machine-type accelerator maintenance-policy image-family image-project boot-disk-size provisioning-model "
    "instance-termination-action metadata-from-file",
    "az": "resource-group name location size image os-disk-size-gb generate-ssh-keys count priority eviction-policy custom-data",
}
OFFERS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "several replicas on a machine": (
        {"provider": "aws", "instance": "p5.48xlarge", "region": "us-east-1", "machines": 1, "spot": True},
        ("--instance-type=p5.48xlarge", "--count=1", "--instance-market-options=MarketType=spot"),
    ),
    "machines of AWS": (
        {"provider": "aws", "instance": "g6.12xlarge", "region": "us-east-1", "machines": 2},
        ("--region=us-east-1", "--instance-type=g6.12xlarge", "--count=2"),
    ),
    "three machines": ({"machines": 3}, ("chat-l4-1", "chat-l4-2", "chat-l4-3", "--machine-type=g2-standard-24")),
    "GPUs attached": (
        {"instance": "n1+4xt4", "gpu": "t4", "machines": 2, "spot": True},
        ("--machine-type=n1-standard-32", "--accelerator=type=nvidia-tesla-t4,count=4", "--provisioning-model=SPOT"),
    ),
    "Azure": (
        {"provider": "azure", "instance": "Standard_NC40ads_H100_v5", "region": "eastus", "machines": 3, "spot": True},
        ("--size=Standard_NC40ads_H100_v5", "--count=3", "--priority=Spot", "--location=eastus"),
    ),
}


@pytest.mark.parametrize(("changes", "words"), OFFERS.values(), ids=OFFERS)
def test_machines_of_the_offer_are_created_with_documented_options(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    files = launch_files("cloud-cli", LaunchPlan((replace(HINT, **changes),), "vllm", ("head",)))
    line = files["cloud.sh"].splitlines()[-1]
    tool, *_ = split = shlex.split(line)
    options = {word[2:].partition("=")[0] for word in split if word.startswith("--")}
    assert options <= set(DOCUMENTED[tool].split())
    assert set(words) <= set(split)
    assert "# Port 8000 is closed to others by default" in files["cloud.sh"]
    assert any("chat-l4-start.sh" in word for word in split)
    start = [one for one in files["chat-l4-start.sh"].splitlines() if one.startswith("docker run")]
    assert len(start) == -(-3 // changes.get("machines", 3))
    assert all(f'--gpus="device={2 * n},{2 * n + 1}"' in shlex.split(one) for n, one in enumerate(start))
    assert len({re.findall(r"--publish=(\d+):8000", one)[0] for one in start}) == len(start)
    for content in files.values():
        subprocess.run(["sh", "-n"], input=content, text=True, check=True)


@pytest.mark.parametrize("changes", [{"provider": "lambda"}, {"instance": ""}, {"instance": "ct5lp-hightpu-4t"}])
def test_other_machines_are_an_error(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="creates machines of AWS"):
        launch_files("cloud-cli", LaunchPlan((replace(HINT, **changes),), "vllm"))


def test_gpus_of_amd_get_their_own_devices_image_and_resource() -> None:
    offer = replace(HINT, vendor="amd", gpu="mi300x", provider="azure", instance="Standard_ND96isr_MI300X_v5", machines=1)
    plan = LaunchPlan((offer,), "vllm")
    start = launch_files("cloud-cli", plan)["chat-l4-start.sh"].splitlines()[-1]
    assert "--device=/dev/kfd" in start
    assert "--env=HIP_VISIBLE_DEVICES=4,5" in start
    assert "--gpus" not in start
    pod = first_document(launch_files("kubernetes", plan)["chat-l4.yaml"])["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"amd.com/gpu": 2}
    assert pod["containers"][0]["image"] == "vllm/vllm-openai-rocm"
    assert pod["tolerations"][0]["key"] == "amd.com/gpu"
    with pytest.raises(UsageError, match="no image of tensorrt-llm"):
        launch_files("docker", replace(plan, engine="tensorrt-llm"))


def test_attached_gpus_are_no_instance_type_of_kubernetes() -> None:
    offer = replace(HINT, instance="n1+4xt4", gpu="t4")
    pod = first_document(launch_files("kubernetes", LaunchPlan((offer,), "vllm"))["chat-l4.yaml"])["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}
