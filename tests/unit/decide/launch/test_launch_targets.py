"""What a fleet is started with: each tool's own words, and nothing said that is not known."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.decide.launch.models import earlier_releases, known_releases, repository_of
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.serve_command import serve_words
from whichgpu.decide.launch.skypilot import service as skypilot_service
from whichgpu.decide.launch.targets import LaunchPlan, launch_files

HINT = LaunchOptions(
    group="chat-l4", model="meta-llama/Llama-3.1-8B", copies=3, gpu="l4", gpus_per_copy=2, tensor_parallel_size=2,
    max_num_seqs=64, max_model_len=4096, max_num_batched_tokens=8192, dtype="bf16", memory_share=0.9, provider="gcp",
    instance="g2-standard-24", region="us-central1", spot=False,
)  # fmt: skip
BARE = replace(HINT, max_num_batched_tokens=None, memory_share=None, dtype="int4")


def first_document(text: str) -> Any:
    """Return the replicas of a manifest, which come before the service in front of them."""
    return next(iter(yaml.safe_load_all(text)))


def test_vllm_and_sglang_get_equivalent_flags() -> None:
    assert " ".join(serve_words(HINT, "vllm")) == (
        "vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size=2 --max-num-seqs=64 --max-model-len=4096 "
        "--max-num-batched-tokens=8192 --gpu-memory-utilization=0.90 --dtype=bfloat16"
    )
    assert " ".join(serve_words(HINT, "sglang")) == (
        "python -m sglang.launch_server --model-path=meta-llama/Llama-3.1-8B --tp-size=2 --max-running-requests=64 "
        "--context-length=4096 --chunked-prefill-size=8192 --mem-fraction-static=0.90 --dtype=bfloat16"
    )


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("70b", "meta-llama/Llama-3.3-70B-Instruct"),
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("deepseek-r1", "deepseek-ai/DeepSeek-R1"),
        ("deepseek-v3", "deepseek-ai/DeepSeek-V3"),
        ("hf:me/mine", "me/mine"),
    ],
)
def test_a_model_is_named_by_its_repository_whatever_was_typed(name: str, repository: str, catalog: Catalog) -> None:
    assert repository_of(name, catalog) == repository


def test_unknown_settings_are_left_to_the_engine() -> None:
    for words in (serve_words(BARE, "vllm"), serve_words(BARE, "sglang")):
        assert not [word for word in words if "batched" in word or "chunked" in word or "mem" in word or "dtype" in word]


@pytest.mark.parametrize(
    ("dtype", "flag"),
    [("bf16", "--dtype=bfloat16"), ("fp16", "--dtype=float16"), ("fp32", "--dtype=float32"), ("fp8", "--quantization=fp8")],
)
def test_each_precision_has_its_flag(dtype: str, flag: str) -> None:
    assert serve_words(replace(HINT, dtype=dtype), "vllm")[-1] == serve_words(replace(HINT, dtype=dtype), "sglang")[-1] == flag


@pytest.mark.parametrize(
    ("changes", "resources"),
    [
        ({}, {"accelerators": "L4:2", "ports": 8000, "cloud": "gcp", "region": "us-central1"}),
        ({"region": ""}, {"accelerators": "L4:2", "ports": 8000, "cloud": "gcp"}),
        ({"provider": "owned"}, {"accelerators": "L4:2", "ports": 8000}),
        ({"spot": True, "provider": "x"}, {"accelerators": "L4:2", "ports": 8000, "use_spot": True}),
        ({"gpu": "a100-sxm-80gb", "provider": "x"}, {"accelerators": "A100-80GB:2", "ports": 8000}),
        ({"gpu": "a100-pcie-40gb", "provider": "x"}, {"accelerators": "A100:2", "ports": 8000}),
        ({"gpu": "rtx-4090", "provider": "x"}, {"accelerators": "RTX4090:2", "ports": 8000}),
        ({"gpu": "h100-sxm", "provider": "x"}, {"accelerators": "H100:2", "ports": 8000}),
        (
            {"gpu": "h100-sxm", "provider": "runpod", "instance": "2x_H100-SXM_SECURE", "region": "US"},
            {"accelerators": "H100-SXM:2", "ports": 8000, "cloud": "runpod", "region": "US"},
        ),
        (
            {"gpu": "h100-sxm", "instance": "a3-megagpu-8g"},
            {"accelerators": "H100-MEGA:2", "ports": 8000, "cloud": "gcp", "region": "us-central1"},
        ),
        (
            {"gpu": "h200-sxm", "provider": "vast", "instance": "2x-H200", "region": "US"},
            {"accelerators": "H200:2", "ports": 8000, "cloud": "vast"},
        ),
    ],
)
def test_skypilot_hint_uses_its_gpu_names_and_clouds(changes: dict[str, Any], resources: dict[str, Any]) -> None:
    service = skypilot_service(replace(HINT, **changes), "vllm")
    assert service["resources"] == resources
    assert service["service"]["replica_policy"] == {"min_replicas": 3, "max_replicas": 3}
    assert service["setup"] == "pip install vllm"
    assert service["run"].endswith("--port=8000")
    large = skypilot_service(replace(HINT, **changes, download_bytes=140 * 10**9), "vllm")["service"]["readiness_probe"]
    assert large == {"path": "/health", "initial_delay_seconds": 1900}  # 700 s of download at 0.2 GB/s, and the start


@pytest.mark.parametrize("target", ["skypilot", "dstack"])
def test_gpus_that_a_target_does_not_name_are_an_error(target: str) -> None:
    for changes in ({"gpu": "k80"}, {"gpu": "rtx-5090-laptop", "provider": "x"}):
        with pytest.raises(UsageError, match=f"{target} has no name for {changes['gpu']}"):
            launch_files(target, LaunchPlan((replace(HINT, **changes),), "vllm"))


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({}, None),
        ({"provider": "azure", "region": "westeurope", "gpu": "t4"}, "westeurope is not in the catalog that skypilot downloads"),
        ({"provider": "vast", "region": "US", "gpu": "h200-sxm"}, "skypilot names regions of vast otherwise"),
    ],
)
def test_regions_that_a_target_does_not_name_are_in_a_note(changes: dict[str, Any], note: str | None) -> None:
    (content,) = launch_files("skypilot", LaunchPlan((replace(HINT, **changes),), "vllm")).values()
    assert note in content if note else "# Region" not in content


def test_required_earlier_release_is_named() -> None:
    old = replace(HINT, gpu="v100-sxm-16gb", earlier={"vllm": "0.6 was the last."})
    service = skypilot_service(old, "vllm")
    assert service["envs"] == {"HF_TOKEN": "", "VLLM_VERSION": ""}
    assert "${VLLM_VERSION:?the present release does not run on v100-sxm-16gb" in service["setup"]
    files = launch_files("skypilot", LaunchPlan((old, replace(HINT, group="other")), "vllm"))
    assert files["other.yaml"].startswith("# Options: as documented for vLLM")
    assert yaml.safe_load(files["other.yaml"])["envs"] == {"HF_TOKEN": ""}
    assert files["chat-l4.yaml"].startswith("# vLLM: 0.6 was the last. Start it with --env VLLM_VERSION=")


def test_known_earlier_release_is_pinned() -> None:
    """vLLM's present release has no kernels for compute capability 7.0: install line, image and note name the last that has."""
    gpu = Catalog().gpu_by_id["v100-sxm-16gb"]
    engines = Catalog().engines
    assert known_releases(engines, gpu) == {"vllm": "0.8.5"}
    assert known_releases(engines, Catalog().gpu_by_id["h100-sxm"]) == {}
    earlier = earlier_releases(engines, gpu)
    old = replace(HINT, gpu=gpu.id, earlier=earlier, releases=known_releases(engines, gpu))
    service = skypilot_service(old, "vllm")
    assert service["envs"] == {"HF_TOKEN": "", "VLLM_VERSION": "0.8.5"}
    (script,) = launch_files("skypilot", LaunchPlan((old,), "vllm")).values()
    assert "Release 0.8.5 is installed." in script
    for target in ("docker", "kubernetes"):
        (script,) = launch_files(target, LaunchPlan((old,), "vllm")).values()
        assert "vllm/vllm-openai:v0.8.5" in script
        assert "sglang:" not in script
    (script,) = launch_files("vllm", LaunchPlan((old,), "vllm")).values()
    assert 'pip install "vllm==0.8.5"' in script


def test_script_has_count_and_machine_of_each_command() -> None:
    old = replace(HINT, gpu="t4", earlier={"vllm": "0.6 was the last."})
    (script,) = launch_files("vllm", LaunchPlan((HINT, old), "vllm")).values()
    lines = script.splitlines()
    assert lines[0] == "#!/bin/sh"
    assert "# 3 of these, each on 2x l4 (gcp g2-standard-24)" in lines
    assert sum(line.startswith("vllm serve") for line in lines) == 2
    assert lines[-2] == "# The present release does not run on t4, an earlier one did: 0.6 was the last."
    (script,) = launch_files("sglang", LaunchPlan((old,), "vllm")).values()
    assert "earlier" not in script  # that was vLLM's
    assert script.splitlines()[-1].startswith("python -m sglang.launch_server")


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        (
            {"provider": "gcp", "instance": "g2-standard-24"},
            {"node.kubernetes.io/instance-type": "g2-standard-24", "cloud.google.com/gke-accelerator": "nvidia-l4"},
        ),
        (
            {"provider": "gcp", "instance": "a3-megagpu-8g", "gpu": "h100-sxm", "spot": True},
            {
                "node.kubernetes.io/instance-type": "a3-megagpu-8g",
                "cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb",
                "cloud.google.com/gke-spot": "true",
            },
        ),
        (
            {"provider": "aws", "instance": "p5.48xlarge", "spot": True},
            {"node.kubernetes.io/instance-type": "p5.48xlarge", "eks.amazonaws.com/capacityType": "SPOT"},
        ),
        ({"provider": "lambda", "instance": "gpu_8x_h100"}, None),
        ({"provider": "aws", "instance": ""}, None),
    ],
)
def test_pods_are_placed_on_the_machines_of_the_offer(changes: dict[str, Any], labels: dict[str, str] | None) -> None:
    [text] = launch_files("kubernetes", LaunchPlan((replace(HINT, **changes),), "vllm")).values()
    spec = first_document(text)["spec"]["template"]["spec"]
    assert spec.get("nodeSelector") == labels
    assert ("add your cluster's node selector" in text) == (labels is None)


def test_kubernetes_sends_requests_to_pods_that_are_ready_and_to_leaders_only() -> None:
    [text] = launch_files("kubernetes", LaunchPlan((HINT,), "vllm")).values()
    assert "kubectl apply" not in text
    replicas, service = yaml.safe_load_all(text)
    pod = replicas["spec"]["template"]
    assert (replicas["kind"], replicas["spec"]["replicas"]) == ("Deployment", 3)
    assert service["spec"] == {"selector": pod["metadata"]["labels"], "ports": [{"port": 8000}]}
    [container] = pod["spec"]["containers"]
    assert container["readinessProbe"] == {"httpGet": {"path": "/health", "port": 8000}}
    assert container["env"][0]["valueFrom"]["secretKeyRef"]["optional"]
    [text] = launch_files("kubernetes", LaunchPlan((replace(HINT, nodes=2),), "vllm")).values()
    assert "kubectl apply --server-side -f https://github.com/kubernetes-sigs/lws/" in text  # Clusters lack this kind at first.
    replicas, service = yaml.safe_load_all(text)
    size = replicas["spec"]["leaderWorkerTemplate"]["size"]
    assert (replicas["kind"], replicas["spec"]["replicas"], size) == ("LeaderWorkerSet", 3, 2)
    assert service["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
    assert service["metadata"]["name"] != replicas["metadata"]["name"]  # The set has a service of its own name.
    assert "readinessProbe" not in replicas["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]


def test_karpenter_gets_a_pool_of_the_offer_s_machines_and_the_pods_that_need_them() -> None:
    offer = replace(HINT, provider="aws", instance="g6.12xlarge", region="us-east-1", gpu="l4")
    files = launch_files("karpenter", LaunchPlan((offer,), "vllm", ("head",)))
    pool, pods = (first_document(files[name]) for name in ("chat-l4-nodes.yaml", "chat-l4.yaml"))
    requirements = {one["key"]: one["values"] for one in pool["spec"]["template"]["spec"]["requirements"]}
    assert requirements == {
        "node.kubernetes.io/instance-type": ["g6.12xlarge"],
        "karpenter.sh/capacity-type": ["on-demand"],
        "topology.kubernetes.io/region": ["us-east-1"],
    }
    assert pool["spec"]["limits"] == {"nvidia.com/gpu": 6}
    taints = {taint["key"] for taint in pool["spec"]["template"]["spec"]["taints"]}
    assert taints <= {one["key"] for one in pods["spec"]["template"]["spec"]["tolerations"]}
    assert "# It expects your EC2NodeClass 'default'" in files["chat-l4-nodes.yaml"]
    with pytest.raises(UsageError):
        launch_files("karpenter", LaunchPlan((HINT,), "vllm"))
    on_spot = launch_files("karpenter", LaunchPlan((replace(offer, spot=True),), "vllm"))
    assert '"karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]' in on_spot["chat-l4-nodes.yaml"]
    spot = on_spot["chat-l4.yaml"]
    assert first_document(spot)["spec"]["template"]["spec"]["nodeSelector"] == {
        "node.kubernetes.io/instance-type": "g6.12xlarge",
        "karpenter.sh/capacity-type": "spot",
    }


def test_dstack_gets_replicas_resources_and_the_serve_line() -> None:
    [text] = launch_files("dstack", LaunchPlan((replace(HINT, gpu="a100-sxm-80gb", spot=True),), "vllm")).values()
    service = yaml.safe_load(text)
    assert (service["type"], service["replicas"], service["resources"]) == (
        "service",
        3,
        {"gpu": "A100:80GB:2", "shm_size": "16GB"},
    )
    assert (service["backends"], service["regions"], service["spot_policy"]) == (["gcp"], ["us-central1"], "spot")
    assert service["commands"][0].startswith("vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size=2")
    with pytest.raises(UsageError):
        launch_files("dstack", LaunchPlan((replace(HINT, nodes=2),), "vllm"))
