"""Launch files bring weights, images, disks, tokens and ports that the machines need."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from tests.unit.decide.launch.test_launch_lines import OPTIONS, parse
from whichgpu.base.errors import UsageError
from whichgpu.base.units import GIB
from whichgpu.catalog.store import Catalog
from whichgpu.decide.launch.disk import download_bytes
from whichgpu.decide.launch.models import repository_of
from whichgpu.decide.launch.serve_command import serve_notes, serve_words, shell_line
from whichgpu.decide.launch.targets import LaunchPlan, launch_files
from whichgpu.workload.decoding.offload import Offload
from whichgpu.workload.models import find_model


def test_weights_in_a_file_are_brought_to_the_machine() -> None:
    plan = LaunchPlan((replace(OPTIONS, dtype="q4_k_m"),), "llama.cpp")
    texts = {target: "".join(launch_files(target, plan).values()) for target in ("docker", "kubernetes", "skypilot")}
    assert '--volume="$PWD:/workspace"' in texts["docker"]
    assert "--model /workspace/Llama-3.1-8B-q4_k_m.gguf" in texts["docker"]
    assert "add one with Llama-3.1-8B-q4_k_m.gguf at /workspace" in texts["kubernetes"]
    assert 'workdir: "."' in texts["skypilot"]
    assert 'image_id: "docker:ghcr.io/ggml-org/llama.cpp:server-cuda"' in texts["skypilot"]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_workers_say_how_they_exchange_kv_caches(engine: str) -> None:
    decode = replace(OPTIONS, role="decode")
    assert any("router" in note for note in serve_notes(decode, engine))
    [note] = [note for note in serve_notes(decode, engine) if "exchange KV caches" in note]
    assert ("SIDE_CHANNEL" in note, "pip install" in note) == (engine == "vllm", engine != "tensorrt-llm")


def test_ollama_gets_its_environment_variables() -> None:
    (content,) = launch_files("ollama", LaunchPlan((replace(OPTIONS, kv_dtype="q8_0"),), "llama.cpp")).values()
    assert content.splitlines()[-1] == (
        "OLLAMA_CONTEXT_LENGTH=4096 OLLAMA_NUM_PARALLEL=64 OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=1 "
        "OLLAMA_SCHED_SPREAD=1 ollama serve"
    )


@pytest.mark.parametrize(
    ("offload", "engine", "words"),
    [
        (Offload(experts=True), "llama.cpp", "--n-gpu-layers 999 --cpu-moe"),
        (Offload(layers=12), "llama.cpp", "--n-gpu-layers 21"),  # 20 of 32 layers, and the head.
        (Offload(layers=12), "vllm", "--cpu-offload-gb=6"),
        (None, "llama.cpp", "--n-gpu-layers 999"),
    ],
)
def test_weights_in_host_memory_are_left_there(offload: Offload | None, engine: str, words: str) -> None:
    options = replace(OPTIONS, dtype="q4_k_m", offload=offload, layers=32, host_weight_bytes=int(5.5 * GIB))
    line = shell_line(serve_words(options, engine))
    assert f"{words} " in line
    assert ("--cpu-moe" in line) == ("--cpu-moe" in words)
    assert any("5.5 GiB of weights" in note for note in serve_notes(options, engine)) == (offload is not None)
    assert any("has no option" in note for note in serve_notes(replace(OPTIONS, offload=offload), "tensorrt-llm")) == bool(
        offload
    )
    (content,) = launch_files("ollama", LaunchPlan((options,), "llama.cpp")).values()
    assert ("PARAMETER num_gpu 21" in content) == (offload == Offload(layers=12))
    assert ("keeps whole layers" in content) == (offload == Offload(experts=True))


def test_limits_of_attention_data_parallel_ranks_are_totals_in_sglang_and_of_each_rank_in_others() -> None:
    experts = replace(OPTIONS, expert_parallel_size=8)
    read = parse("sglang", shell_line(serve_words(experts, "sglang")))
    assert (read.max_running_requests, read.chunked_prefill_size) == (2 * 64, 2 * 8192)
    dense = parse("sglang", shell_line(serve_words(OPTIONS, "sglang")))
    assert (dense.max_running_requests, dense.chunked_prefill_size) == (64, 8192)
    assert parse("vllm", shell_line(serve_words(experts, "vllm"))).max_num_seqs == 64
    assert parse("tensorrt-llm", shell_line(serve_words(experts, "tensorrt-llm"))).max_batch_size == 64


@pytest.mark.parametrize("target", ["tensorrt-llm", "docker"])
def test_tensorrt_llm_has_attention_data_parallel_in_its_file_and_counts_it_in_tensor_parallel(target: str) -> None:
    experts = replace(OPTIONS, tensor_parallel_size=1, data_parallel_size=8, expert_parallel_size=8)
    (content,) = launch_files(target, LaunchPlan((experts,), "tensorrt-llm")).values()
    assert "enable_attention_dp: true" in content
    assert "--tp_size=8 --ep_size=8" in content
    assert "start 8 of these" not in content
    (dense,) = launch_files(target, LaunchPlan((replace(experts, expert_parallel_size=1),), "tensorrt-llm")).values()
    assert "start 8 of these" in dense
    assert "enable_attention_dp" not in dense


def test_the_program_of_an_image_is_named_by_its_path() -> None:
    plan = LaunchPlan((replace(OPTIONS, dtype="q4_k_m", data_parallel_size=1),), "llama.cpp")
    assert "--entrypoint=/app/llama-server " in launch_files("docker", plan)["docker.sh"]
    assert '"command": ["/app/llama-server", ' in launch_files("kubernetes", plan)["chat.yaml"]
    assert "/app/llama-server --model /workspace/" in launch_files("dstack", plan)["chat.dstack.yml"]


@pytest.mark.parametrize(
    ("engine", "architecture", "image"),
    [
        ("vllm", "CDNA3", "vllm/vllm-openai-rocm"),
        ("sglang", "CDNA3", "-mi30x"),
        ("sglang", "CDNA4", "-mi35x"),
        ("llama.cpp", "RDNA3", ":server-rocm"),
    ],
)
def test_gpus_of_amd_get_images_for_rocm(engine: str, architecture: str, image: str) -> None:
    amd = replace(OPTIONS, gpu="mi300x", vendor="amd", architecture=architecture, dtype="bf16", provider="", copies=1)
    plan = LaunchPlan((amd,), engine)
    for target in ("docker", "kubernetes", "skypilot", "dstack", "slurm"):
        (content,) = launch_files(target, plan).values()
        assert image in content
        assert "pip install" not in content
    with pytest.raises(UsageError):
        launch_files("skypilot", LaunchPlan((replace(amd, architecture="CDNA2"),), "sglang"))


def test_disks_and_caches_hold_the_weights() -> None:
    large = replace(OPTIONS, download_bytes=405 * 10**9 * 2, provider="", spot=False)
    texts = {
        target: "".join(launch_files(target, LaunchPlan((large,), "vllm")).values())
        for target in ("skypilot", "dstack", "kubernetes")
    }
    assert "disk_size: 1200" in texts["skypilot"]
    assert 'disk: "1200GB.."' in texts["dstack"]
    assert 'shm_size: "16GB"' in texts["dstack"]
    assert '"ephemeral-storage": "990Gi"' in texts["kubernetes"]
    assert '"emptyDir": {"sizeLimit": "990Gi"}' in texts["kubernetes"]
    assert "VolumeSize=1200" in launch_files("cloud-cli", LaunchPlan((replace(large, provider="aws"),), "vllm"))["cloud.sh"]
    (small,) = launch_files("skypilot", LaunchPlan((replace(large, download_bytes=16 * 10**9),), "vllm")).values()
    assert "disk_size" not in small
    sizes = {name: download_bytes(find_model(name, Catalog(), None), "bf16", None) for name in ("starcoder2-15b", "llama-3.1-8b")}
    assert sizes == {"starcoder2-15b": 4 * 15_957_889_024, "llama-3.1-8b": 2 * 8_030_261_248}  # The first is published in fp32.


@pytest.mark.parametrize("target", ["vllm", "slurm", "docker", "kubernetes", "skypilot", "dstack"])
def test_gated_models_get_a_token(target: str) -> None:
    for content in launch_files(target, LaunchPlan((OPTIONS,), "vllm")).values():
        assert "HF_TOKEN" in content


def test_servers_of_an_array_listen_on_different_ports() -> None:
    (content,) = launch_files("slurm", LaunchPlan((OPTIONS,), "vllm")).values()
    assert "export PORT=$((8000 + SLURM_ARRAY_TASK_ID))" in content
    assert content.splitlines()[-1].endswith("--port=$PORT")


def test_a_checkpoint_that_replaces_the_model_is_named_with_its_reason() -> None:
    tuned = replace(OPTIONS, checkpoint="RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic")
    (content,) = launch_files("vllm", LaunchPlan((tuned,), "vllm")).values()
    assert "# Checkpoint: RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic has the weights of meta-llama/Llama-3.1-8B" in content
    assert "instruction-tuned" in content
    same = replace(tuned, model="meta-llama/Llama-3.1-8B-Instruct")
    assert not any("instruction-tuned" in note for note in serve_notes(same, "vllm"))
    (other,) = launch_files("tensorrt-llm", LaunchPlan((tuned,), "vllm")).values()
    assert "RedHatAI" not in other  # It reads other quantised checkpoints.


def test_a_model_on_the_user_s_disk_is_mounted_or_named_in_the_head(tmp_path: Path) -> None:
    folder = tmp_path / "my: # model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    model = repository_of(str(folder / "config.json"), Catalog())
    assert model == str(folder)
    plan = LaunchPlan((replace(OPTIONS, model=model, dtype="bf16"),), "vllm")
    assert f"'--volume={model}:{model}:ro'" in launch_files("docker", plan)["docker.sh"]
    [service] = launch_files("skypilot", plan).values()
    assert yaml.safe_load(service)["file_mounts"] == {model: model}
    for target, words in (("kubernetes", "Volume: add one with"), ("dstack", "Volume: add one with"), ("cloud-cli", "Copy")):
        assert f"{words} " in "".join(launch_files(target, plan).values())


def test_names_are_not_replaced_by_secrets_of_dstack() -> None:
    plan = LaunchPlan((replace(OPTIONS, model="a/${{ secrets.key }}", dtype="bf16"),), "vllm")
    [service] = map(yaml.safe_load, launch_files("dstack", plan).values())
    assert service["model"] == "a/$${{ secrets.key }}"  # dstack reads two dollars as one that begins no variable.
    assert "'a/$${{ secrets.key }}'" in service["commands"][0]
