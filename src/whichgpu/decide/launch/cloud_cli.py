"""Lines for the command-line tools of clouds (aws, gcloud, az) that create the machines of an offer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.decide.launch.names import gpu_name
from whichgpu.decide.launch.placement import Placement

# Releases whose documented options are written.
TOOLS = {"aws": "AWS CLI 2 (ec2 run-instances)", "gcp": "Google Cloud CLI 540 (compute instances create)",
         "azure": "Azure CLI 2.80 (vm create)"}  # fmt: skip
# Commands that delete machines, and what opens ports of them, by provider.
ENDS = {"aws": "aws ec2 terminate-instances --region=… --instance-ids=…", "gcp": "gcloud compute instances delete …",
        "azure": "az vm delete --resource-group=… --name=…"}  # fmt: skip
FIREWALLS = {"aws": "the security group", "gcp": "a firewall rule", "azure": "the network security group"}
# Images with driver, docker and NVIDIA's container toolkit; a variable of the script chooses another.
AWS_IMAGE = "resolve:ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
AWS_ARM = ("g5g.", "p6e-")  # Machines with ARM processors.
GCP_IMAGE_FAMILY, GCP_IMAGE_PROJECT = "common-cu128-ubuntu-2204-nvidia-570", "deeplearning-platform-release"
AZURE_IMAGE = "microsoft-dsvm:ubuntu-hpc:2204:latest"
DISK_GB = 500  # Disk of a machine: container images and weights (assumed).
N1_VCPUS_PER_GPU = 8  # vCPUs of an N1 machine for each of its GPUs (assumed; N1 has no fixed number).
_N1 = re.compile(r"n1\+(\d+)x\w+")  # The catalog's name of an N1 machine with GPUs attached.
_SPECIAL = re.compile(r"[^\w .:/-]")  # Characters that may have a meaning in double quotes or braces of a shell.
_NO_GPUS = re.compile(r"ct\d|tpu|v\d+-")  # Machines of Google with TPUs.


class Variable(msgspec.Struct, frozen=True):
    """An option whose value is a variable of the script, with a default (`-`) or what to say if it is not set (`?`)."""

    option: str
    name: str
    operator: str
    text: str

    def quoted(self) -> str:
        """Return the option as one word for a shell; its text keeps only characters without a meaning in double quotes."""
        return f'"{self.option}=${{{self.name}:{self.operator}{_SPECIAL.sub("", self.text)}}}"'


class Machines(msgspec.Struct, frozen=True):
    """Equal machines of one offer, and the file that they run when they start, if there is one."""

    name: str
    provider: str
    instance: str
    region: str
    gpu: str
    count: int
    is_spot: bool
    start_file: str = ""
    disk_gb: int = DISK_GB
    needs_login: bool = False  # whether the user logs in, which the machines of AWS allow only with a key


def check_provider(provider: str, instance: str) -> None:
    """Raise an error if the machine is of no cloud whose command line is known."""
    if provider not in LINES or not instance or _NO_GPUS.match(instance):
        raise UsageError("emit-provider", msg("error.emit-cloud", target="cloud-cli"), msg("hint.emit-cloud"))


def end_note(provider: str) -> str:
    """Return how to end the machines of a job when it is done."""
    return f"The machines cost money until you delete them; fetch the results, then: {ENDS[provider]}"


def port_note(provider: str, port: int) -> str:
    """Return where to open the port of a service."""
    return f"Port {port} is closed to others by default: open it for your clients in {FIREWALLS[provider]}."


def create_line(machines: Machines) -> str:
    """Return the shell line that creates the machines with the command line of their cloud."""
    return LINES[machines.provider](machines)


def _aws(one: Machines) -> str:
    image = AWS_IMAGE.replace("x86_64", "arm64") if one.instance.startswith(AWS_ARM) else AWS_IMAGE
    words: list[str | Variable] = [
        *("aws", "ec2", "run-instances", f"--region={one.region}", f"--instance-type={one.instance}", f"--count={one.count}"),
        Variable("--image-id", "IMAGE", "-", image),
        f"--block-device-mappings=DeviceName=/dev/sda1,Ebs={{VolumeSize={one.disk_gb},VolumeType=gp3}}",
        f"--tag-specifications=ResourceType=instance,Tags=[{{Key=Name,Value={one.name}}}]",
    ]
    words += [Variable("--key-name", "KEY_NAME", "?", "the name of your key pair")] if one.needs_login else []
    words += ["--instance-market-options=MarketType=spot"] if one.is_spot else []
    words += [f"--user-data=file://{one.start_file}"] if one.start_file else []
    return _line(words)


def _gcloud(one: Machines) -> str:
    names = [one.name] if one.count == 1 else [f"{one.name}-{index}" for index in range(1, one.count + 1)]
    words: list[str | Variable] = [
        *("gcloud", "compute", "instances", "create", *names),
        Variable("--zone", "ZONE", "?", f"a zone of {one.region or 'your region'}"),
        *_gcp_machine(one),
        "--maintenance-policy=TERMINATE",  # Machines with GPUs cannot be moved while they run.
        Variable("--image-family", "IMAGE_FAMILY", "-", GCP_IMAGE_FAMILY),
        Variable("--image-project", "IMAGE_PROJECT", "-", GCP_IMAGE_PROJECT),
        f"--boot-disk-size={one.disk_gb}GB",
    ]
    words += ["--provisioning-model=SPOT", "--instance-termination-action=STOP"] if one.is_spot else []
    words += [f"--metadata-from-file=startup-script={one.start_file}"] if one.start_file else []
    return _line(words)


def _gcp_machine(one: Machines) -> list[str]:
    """Return the machine type; GPUs are attached to N1 machines, all others contain theirs."""
    attached = _N1.fullmatch(one.instance)
    if attached is None:
        return [f"--machine-type={one.instance}"]
    count = int(attached[1])
    place = Placement(one.gpu, "nvidia", 1, count, one.provider, one.instance, one.region, one.is_spot)
    accelerator = f"--accelerator=type={gpu_name('gke', place)},count={count}"  # GKE's labels have Compute Engine's names.
    return [f"--machine-type=n1-standard-{N1_VCPUS_PER_GPU * count}", accelerator]


def _az(one: Machines) -> str:
    words: list[str | Variable] = [
        *("az", "vm", "create", Variable("--resource-group", "RESOURCE_GROUP", "?", "a resource group"), f"--name={one.name}"),
        *(f"--location={one.region}", f"--size={one.instance}", Variable("--image", "IMAGE", "-", AZURE_IMAGE)),
        *(f"--os-disk-size-gb={one.disk_gb}", "--generate-ssh-keys"),
    ]
    words += [f"--count={one.count}"] if one.count > 1 else []
    words += ["--priority=Spot", "--eviction-policy=Deallocate"] if one.is_spot else []
    words += [f"--custom-data={one.start_file}"] if one.start_file else []
    return _line(words)


LINES: Mapping[str, Callable[[Machines], str]] = {"aws": _aws, "gcp": _gcloud, "azure": _az}


def _line(words: Sequence[str | Variable]) -> str:
    """Return words as one shell line."""
    return " ".join(word.quoted() if isinstance(word, Variable) else shlex.quote(word) for word in words)
