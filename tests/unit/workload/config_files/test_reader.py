"""Training configs, compose files and manifests as their tools document them, and files that are none of these."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichgpu.base.errors import UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.workload.config_files.model_names import model_of
from whichgpu.workload.config_files.reader import config_workload

AXOLOTL = """
base_model: NousResearch/Meta-Llama-3.1-8B
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_target_linear: true
sequence_len: 4096
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 3
optimizer: paged_adamw_8bit
bf16: auto
tf32: false
gradient_checkpointing: true
flash_attention: true
datasets: [{path: x, type: alpaca}]
learning_rate: 0.0002
"""
LLAMA_FACTORY = """
model_name_or_path: Qwen/Qwen3-8B
stage: sft
do_train: true
finetuning_type: full
lora_rank: 8
deepspeed: examples/deepspeed/ds_z3_config.json
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
num_train_epochs: 3.0
bf16: true
"""
TORCHTUNE = """
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: [q_proj, v_proj, output_proj]
  lora_rank: 16
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 8192}
optimizer: {_component_: torch.optim.AdamW, fused: true}
batch_size: 2
gradient_accumulation_steps: 8
epochs: 1
dtype: bf16
enable_activation_checkpointing: true
"""
ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_activation_checkpointing: true}
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""
COMPOSE = """
services:
  web: {image: nginx}
  llm:
    image: vllm/vllm-openai:latest
    command: --model meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}
"""
MANIFEST = """
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - image: lmsysorg/sglang:latest
          command: [python3, -m, sglang.launch_server]
          args: [--model-path, Qwen/Qwen3-8B, --tp, "2"]
          resources: {limits: {nvidia.com/gpu: 2}}
"""


@pytest.mark.parametrize(
    ("text", "tool", "fields"),
    [
        (
            AXOLOTL,
            "axolotl",
            {
                "model": "NousResearch/Meta-Llama-3.1-8B", "qlora": True, "lora_rank": 32, "lora_targets": "all-linear",
                "seq_in": 4096, "micro_batch": 2, "accumulation": 4, "batch": 8, "epochs": 3.0, "optimizer": "adamw-8bit",
                "precision": "bf16", "checkpointing": "full", "attention": "flash",
            },
        ),
        (
            LLAMA_FACTORY,
            "llama-factory",
            {
                "model": "Qwen/Qwen3-8B", "seq_in": 2048, "micro_batch": 1, "accumulation": 2, "batch": 2, "epochs": 3.0,
                "precision": "amp-bf16", "checkpointing": "full", "parallel": {"zero": 3},
            },
        ),
        (
            TORCHTUNE,
            "torchtune",
            {
                "model": "lora_llama3_1_8b", "lora_rank": 16, "lora_targets": "q,v,o", "seq_in": 8192, "micro_batch": 2,
                "accumulation": 8, "batch": 16, "epochs": 1.0, "optimizer": "adamw", "precision": "bf16", "checkpointing": "full",
            },
        ),
        (
            ACCELERATE,
            "accelerate",
            {
                "gpus": 16, "nodes": 2, "precision": "amp-bf16", "checkpointing": "full", "parallel": {"zero": 3, "dp": 16},
            },
        ),
    ],
)  # fmt: skip
def test_training_configs(text: str, tool: str, fields: dict[str, Any]) -> None:
    config = config_workload(text.encode(), "config.yaml")
    assert config.tool == tool
    assert config.fields == {"task": "finetune", **fields}
    assert not config.unread or config.unread in (("tf32",), ("do_train",))


def test_adapters_of_llama_factory_train_on_weights_in_half_precision() -> None:
    lora = config_workload(LLAMA_FACTORY.replace("full", "lora").encode(), "config.yaml")
    assert (lora.fields["precision"], lora.fields["lora_rank"]) == ("bf16", 8)


def test_adapters_of_torchtune_may_be_in_the_mlp_too() -> None:
    both = config_workload(TORCHTUNE.replace("  lora_rank", "  apply_lora_to_mlp: True\n  lora_rank").encode(), "config.yaml")
    assert both.fields["lora_targets"] == "q,v,o,mlp"


@pytest.mark.parametrize(
    ("words", "unread"),
    [
        ("torchrun train.py --deepspeed ds.json", ("deepspeed",)),
        ("torchrun train.py --deepspeed ds_zero2.json", ()),
        ("accelerate launch --config_file fsdp.yaml train.py", ("config_file",)),
    ],
)
def test_files_that_a_training_command_names_are_listed_as_not_read(words: str, unread: tuple[str, ...]) -> None:
    line = f"{words} --model_name_or_path me/mine --per_device_train_batch_size 1"
    assert config_workload(line.encode(), "train.sh").unread == unread


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("model_name_or_path: gpt2\nstage: dpo\nfinetuning_type: lora", ("stage",)),
        ("model_name_or_path: gpt2\nstage: sft\nfinetuning_type: freeze", ("finetuning_type",)),
        ("model_name_or_path: gpt2\nstage: sft\nfinetuning_type: lora\nquantization_bit: 8", ("quantization_bit",)),
        ("base_model: gpt2\nadapter: ia3\nmax_steps: -1\ntensor_parallel_size: 1", ("adapter",)),
        (
            "distributed_type: NO\ndeepspeed_config: {zero_stage: 3, offload_optimizer_device: cpu, offload_param_device: none}",
            ("deepspeed_config.offload_optimizer_device",),
        ),
    ],
)
def test_values_of_training_configs_that_change_the_run_and_are_not_read_are_listed(text: str, unread: tuple[str, ...]) -> None:
    assert config_workload(text.encode(), "a.yaml").unread == unread


def test_attention_without_flash_kernels_is_read_from_llama_factory() -> None:
    assert config_workload(b"model_name_or_path: gpt2\nflash_attn: disabled", "a.yaml").fields["attention"] == "eager"


TWO_SERVICES = """
services:
  a: {image: vllm/vllm-openai, command: --model a/small}
  b: {image: vllm/vllm-openai, entrypoint: [sh, -c], command: ["vllm serve a/large --max-model-len 4096"]}
  c: {image: vllm/vllm-openai, command: --model a/small}
  d: {image: vllm/vllm-openai, entrypoint: [python, load_test.py]}
"""
TWO_PODS = """
kind: Pod
spec: {containers: [{image: vllm/vllm-openai, args: [--model, a/small]}]}
---
kind: Pod
spec: {containers: [{image: vllm/vllm-openai, command: [/bin/sh, -c, "vllm serve a/large"]}]}
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.sh", "vllm serve a/small\nvllm serve a/large\nvllm serve a/small\n"), ("a.yaml", TWO_SERVICES), ("a.yaml", TWO_PODS)],
    ids=["commands", "services", "pods"],
)
def test_all_servers_of_a_file_are_read_and_equal_ones_once(name: str, text: str) -> None:
    config = config_workload(text.encode(), name)
    assert [one.fields["model"] for one in (config, *config.others)] == ["a/small", "a/large"]
    with pytest.raises(UsageError):
        config_workload("\n".join(f"vllm serve a/{n}" for n in range(30)).encode(), "a.sh")


def test_containers_start_the_server_of_their_image_or_command() -> None:
    compose = config_workload(COMPOSE.encode(), "docker-compose.yml")
    assert (compose.tool, compose.fields["model"], compose.context) == (
        "docker-compose",
        "meta-llama/Llama-3.1-8B-Instruct",
        8192,
    )
    assert not compose.unread
    manifest = config_workload(MANIFEST.encode(), "deploy.yaml")
    assert (manifest.tool, manifest.fields["engine"], manifest.fields["gpus"]) == ("kubernetes", "sglang", 2)
    assert not manifest.invalid
    short = config_workload(MANIFEST.replace("gpu: 2", "gpu: 1").encode(), "deploy.yaml")
    assert list(map(str, short.invalid)) == ["GPUs of the container 1 (>= 2: tensor parallel 2)"]


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("lora_llama3_1_8b", "llama-3.1-8b"),
        ("/data/Meta-Llama-3.1-8B-Instruct/", "llama-3.1-8b"),
        ("RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic", "llama-3.1-8b-fp8"),
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("me/mine", None),
    ],
)
def test_models_are_found_by_the_names_of_configs(name: str, id: str | None) -> None:
    model = model_of(name, Catalog())
    assert (model.id if model else None) == id


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.yaml", b"a: ["),
        ("a.yaml", b"just text"),
        ("a.yaml", b"services: {a: 7, b: {command: [1, {x: y}]}}"),
        ("a.yaml", b"kind: Pod\nspec: {containers: [7, {command: 9}]}"),
        ("a.yaml", b"!!python/object/apply:os.system [echo]"),
        ("a.json", b"{"),
        ("a.json", b"[" * 100_000),
        ("a.json", b"{}"),
        ("a.sh", b"\xff"),
        ("a.sh", b"echo 'unclosed"),
        ("a.sh", b""),
    ],
)
def test_files_without_a_workload_are_refused(name: str, content: bytes) -> None:
    with pytest.raises(UsageError) as refused:
        config_workload(content, name)
    assert refused.value.kind == "bad-workload-file"


@pytest.mark.parametrize("content", [b"a: !!python/tuple [1, 2]", b"a: [1, 2\nb: {", b"a: \t- b\n c"])
def test_errors_in_yaml_have_a_place_and_no_words_of_python(content: bytes) -> None:
    with pytest.raises(UsageError) as refused:
        config_workload(content, "a.yaml")
    assert re.search(r"line \d+, column \d+: ", str(refused.value))
    assert not re.search("python|unicode|constructor", str(refused.value))


@given(
    st.dictionaries(
        st.sampled_from(
            ("base_model", "micro_batch_size", "sequence_len", "adapter", "lora_r", "bf16", "optimizer", "deepspeed")
        ),
        st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.integers(), max_size=2),
    )
)
def test_odd_values_in_a_config_are_no_traceback(document: dict[str, Any]) -> None:
    import json

    content = json.dumps({"base_model": "gpt2", **document}).encode()
    assert config_workload(content, "a.json").fields["task"] == "finetune"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("micro_batch_size: -5\nsequence_len: 0", {"micro_batch_size", "sequence_len"}),
        ("micro_batch_size: 99999999999\nsequence_len: .nan\nnum_epochs: -1", {"micro_batch_size", "sequence_len", "num_epochs"}),
        ("micro_batch_size: '0'\nadapter: lora\nlora_r: 0\nlora_dropout: 1.5", {"micro_batch_size", "lora_r", "lora_dropout"}),
        ("micro_batch_size: 1\nlora_r: 0\nlora_dropout: 0\nmax_steps: -1", set()),  # no adapter, and no limit of steps
    ],
)
def test_numbers_with_which_no_training_starts_are_invalid(text: str, names: set[str]) -> None:
    config = config_workload(f"base_model: gpt2\n{text}".encode(), "a.yaml")
    assert {one.name for one in config.invalid} == names


def test_what_a_file_says_of_checkpointing_is_kept_and_what_it_leaves_out_is_its_tool_s_default() -> None:
    stated = config_workload(b"base_model: gpt2\ngradient_checkpointing: false", "a.yaml").fields
    assert (stated["checkpointing"], stated["micro_batch"], stated["batch"]) == ("none", 1, 1)
    assert config_workload(b"base_model: gpt2", "a.yaml").fields["checkpointing"] == "none"
    trainer = config_workload(b"model_name_or_path: gpt2\ngradient_accumulation_steps: 2", "a.yaml").fields
    assert (trainer["micro_batch"], trainer["batch"]) == (8, 16)


LEVELS = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 13))
MERGES = "\n".join(f"l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * 9)}]}}" for n in range(1, 13))


@pytest.mark.parametrize(
    "text",
    [
        f"l0: &l0 [x]\n{LEVELS}\nbase_model: *l12",
        f"l0: &l0 [x]\n{LEVELS}\nbase_model: gpt2\nbf16: *l12",
        f"l0: &l0 {{a: b}}\n{MERGES}\nbase_model: gpt2",
        "base_model: &a [*a]",
    ],
    ids=["model", "other key", "merge keys", "itself"],
)
def test_aliases_that_stand_for_gigabytes_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        config_workload(text.encode(), "a.yaml")
    assert refused.value.kind == "bad-workload-file"


def test_aliases_as_people_use_them_are_read_and_a_model_is_a_text() -> None:
    usual = b"x: &x {sequence_len: 512}\n<<: *x\nbase_model: &m gpt2\ntokenizer: *m"
    assert config_workload(usual, "a.yaml").fields["seq_in"] == 512
    assert "model" not in config_workload(b"base_model: [gpt2]", "a.yaml").fields
