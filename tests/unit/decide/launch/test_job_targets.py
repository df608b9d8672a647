"""Jobs of training and of pictures: the same line in every target, on as many nodes, with what it runs."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.decide.launch.job_targets import JOB_TARGETS, LaunchJob, job_files
from whichgpu.decide.launch.models import pytorch_image
from whichgpu.decide.launch.placement import Placement
from whichgpu.decide.launch.text import yaml as written

AWS = Placement("h100-sxm", "nvidia", 1, 8, "aws", "p5.48xlarge", "us-east-1", True)
LINE = "torchrun --nnodes=1 --nproc-per-node=8 make.py"
SCRIPT = "print('a')\n\nif 1:\n    pass\n"
PICTURES = LaunchJob("pictures", AWS, LINE, "an/image", setup="pip install x", files={"make.py": SCRIPT},
               output="output", max_seconds=5000.0, header=("Estimate: 1 s.",))  # fmt: skip
TRAINING = LaunchJob("training", replace(AWS, nodes=2), "torchrun --rdzv-endpoint=$HEAD_ADDRESS:29500 train.py", "an/image",
               own_files=("train.py",))  # fmt: skip


def documents(target: str, job: LaunchJob) -> dict[str, dict[str, Any]]:
    texts = job_files(target, job).values()
    return {one["kind"]: one for text in texts for one in yaml.safe_load_all(text)}


@pytest.mark.parametrize("target", JOB_TARGETS)
@pytest.mark.parametrize("job", [PICTURES, TRAINING])
def test_every_target_runs_the_line_and_says_the_estimate(target: str, job: LaunchJob) -> None:
    texts = job_files(target, job)
    assert any(job.line in text for text in texts.values())
    assert all(f"# {line}\n" in text for text in texts.values() for line in job.header)
    for name, text in texts.items():
        if name.endswith((".sh", ".sbatch")):
            subprocess.run(["bash", "-n"], input=text, text=True, check=True)
        elif target != "cloud-cli":
            assert list(yaml.safe_load_all(text))


def test_files_of_a_job_are_in_its_launch_files_as_they_are() -> None:
    [sky] = job_files("skypilot", PICTURES).values()
    [dstack] = job_files("dstack", PICTURES).values()
    script = PICTURES.files["make.py"]
    for code in (yaml.safe_load(sky)["setup"], yaml.safe_load(dstack)["commands"][1], job_files("docker", PICTURES)["docker.sh"]):
        assert f"cat > make.py <<'END_OF_FILE'\n{script}END_OF_FILE\n" in code
    manifests = documents("kubernetes", PICTURES)
    assert manifests["ConfigMap"]["data"] == {"make.py": script}
    [start] = (text for name, text in job_files("cloud-cli", PICTURES).items() if name == "pictures-start.sh")
    assert script in start


def test_kubernetes_runs_one_pod_on_each_node_with_its_gpus_and_volumes() -> None:
    one, several = documents("kubernetes", PICTURES)["Job"], documents("kubernetes", TRAINING)
    pod = one["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert pod["nodeSelector"]["node.kubernetes.io/instance-type"] == "p5.48xlarge"
    assert "completionMode" not in one["spec"]
    spec = several["Job"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    service = several["Service"]
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    assert "HEAD_ADDRESS=training-0.training;" in spec["template"]["spec"]["containers"][0]["command"][-1]


def test_karpenter_limits_the_pool_to_the_job_s_gpus_and_needs_a_cloud_it_knows() -> None:
    assert documents("karpenter", TRAINING)["NodePool"]["spec"]["limits"] == {"nvidia.com/gpu": 16}
    with pytest.raises(UsageError):
        job_files("karpenter", replace(TRAINING, place=replace(AWS, provider="gcp")))


def test_slurm_gets_nodes_and_the_upper_end_of_the_time() -> None:
    [script] = job_files("slurm", PICTURES).values()
    assert "#SBATCH --time=01:24:00\n" in script
    assert "#SBATCH --gpus-per-node=8\n" in script
    assert script.endswith(f"\nsrun {LINE}\n")


def test_gpus_without_a_known_image_are_refused_by_containers_only() -> None:
    assert pytorch_image(Catalog().gpu_by_id["k80"]) == ""
    assert "cuda12.6" in pytorch_image(Catalog().gpu_by_id["v100-sxm-16gb"])
    assert "cuda12.8" in pytorch_image(Catalog().gpu_by_id["b200"])
    assert pytorch_image(Catalog().gpu_by_id["mi300x"]).startswith("rocm/")
    bare = replace(PICTURES, image="")
    for target in ("docker", "kubernetes", "dstack", "cloud-cli"):
        with pytest.raises(UsageError) as refused:
            job_files(target, bare)
        assert refused.value.kind == "emit-image"
    assert job_files("slurm", bare)
    assert job_files("skypilot", bare)


@pytest.mark.parametrize(
    "text", ["a\nb\n", "a\nb", "a\n\n  b\n", " a\nb\n", "a\n\n", "a\tb\nc\n", "\n", "a: b\n- c\n# d\n", "a\r\nb\n"]
)
def test_texts_of_several_lines_are_read_back(text: str) -> None:
    document = {"a": {"run": text, "list": ["x", text], "plain": [1, {"b": True}]}}
    assert yaml.safe_load(written(document)) == document


def test_gated_models_get_the_token_and_large_ones_a_disk_in_every_target() -> None:
    large = replace(TRAINING, is_gated=True, disk_gb=1100, output="output", output_gib=900)
    sky, dstack = (yaml.safe_load(next(iter(job_files(target, large).values()))) for target in ("skypilot", "dstack"))
    assert (sky["envs"], sky["resources"]["disk_size"]) == ({"HF_TOKEN": "", "BUCKET": ""}, 1100)
    assert (dstack["env"], dstack["resources"]["disk"]) == (["HF_TOKEN="], "1100GB..")
    assert dstack["resources"]["shm_size"] == "16GB"
    assert documents("kubernetes", large)["PersistentVolumeClaim"]["spec"]["resources"]["requests"] == {"storage": "900Gi"}
    assert "VolumeSize=1100" in job_files("cloud-cli", large)["cloud.sh"]
    assert "sh training-start.sh" in job_files("cloud-cli", large)["cloud.sh"]
    assert '"--key-name=${KEY_NAME:?' in job_files("cloud-cli", large)["cloud.sh"]  # Nobody can log in without a key.
    assert "aws ec2 terminate-instances" in job_files("cloud-cli", large)["cloud.sh"]
    for target in JOB_TARGETS:
        assert any("your Hugging Face token" in text for text in job_files(target, large).values()), target
    small = yaml.safe_load(next(iter(job_files("skypilot", replace(TRAINING, disk_gb=200)).values())))
    assert "envs" not in small
    assert "network_tier" not in small["resources"]  # SkyPilot sets up RDMA on other clouds.
    for target in ("skypilot", "kubernetes"):
        assert "2 nodes need RDMA" in next(iter(job_files(target, TRAINING).values()))
        assert "RDMA" not in next(iter(job_files(target, PICTURES).values()))
    assert "disk_size" not in small["resources"]


@pytest.mark.parametrize(
    ("nodes", "provider", "is_spot", "has_bucket"),
    [(1, "aws", False, False), (2, "aws", False, True), (1, "aws", True, True), (1, "runpod", False, True)],
)
def test_skypilot_ends_clusters_and_keeps_what_every_node_wrote(
    nodes: int, provider: str, is_spot: bool, has_bucket: bool
) -> None:
    place = replace(AWS, nodes=nodes, provider=provider, is_spot=is_spot)
    [text] = job_files("skypilot", replace(PICTURES, place=place)).values()
    task = yaml.safe_load(text)
    assert task["resources"]["autostop"] == {"idle_minutes": 10} | ({"down": True} if has_bucket else {})
    bucket = {"~/sky_workdir/output": {"name": "${BUCKET}", "mode": "MOUNT_CACHED"}}
    assert task.get("file_mounts") == (bucket if has_bucket else None)
    assert ("--env BUCKET=…" in text, "rsync" in text, "BUCKET" in task.get("envs", {})) == (
        has_bucket,
        not has_bucket,
        has_bucket,
    )
