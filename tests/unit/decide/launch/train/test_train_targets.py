"""Files that start training runs: the layout and batch each tool computes from them are those of the estimate."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.decide.launch.job_targets import JOB_TARGETS
from whichgpu.decide.launch.train.base_checkpoint import training_checkpoint
from whichgpu.decide.launch.train.megatron import SETUP
from whichgpu.decide.launch.train.options import TrainOptions, TrainPlan
from whichgpu.decide.launch.train.rotary import Rotary
from whichgpu.decide.launch.train.targets import TRAIN_TARGETS, train_files
from whichgpu.workload.config_files.reader import config_workload
from whichgpu.workload.models import find_model
from whichgpu.workload.parallel import Parallel

OWN_MODELS = ("torchtitan", "megatron")  # Tools that have models of their own; others run the user's script.
LLAMA = find_model("llama-3.1-8b", Catalog(), None)
MIXTRAL = find_model("mixtral-8x7b", Catalog(), None)
RUN = TrainOptions(
    "llama-h100", "meta-llama/Llama-3.1-8B", LLAMA, "h100-sxm", 16, 2, Parallel(dp=16, zero=3), "bf16", 64, 2, 4096,
    checkpointing="full", steps=1000, max_seconds=5000.0, provider="gcp", instance="a3-highgpu-8g",
    region="us-east4", is_spot=True, image="pytorch/pytorch",
)  # fmt: skip
# Arguments of Megatron-LM core 0.15 (megatron/training/arguments.py) that are written.
MEGATRON_OPTIONS = frozenset(
    "num-layers hidden-size ffn-hidden-size num-attention-heads kv-channels vocab-size seq-length max-position-embeddings "
    "micro-batch-size global-batch-size tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size "
    "expert-model-parallel-size train-iters group-query-attention num-query-groups swiglu normalization position-embedding-type "
    "untie-embeddings-and-output-weights disable-bias-linear num-experts moe-router-topk bf16 fp16 sequence-parallel "
    "num-virtual-stages-per-pipeline-rank use-megatron-fsdp data-parallel-sharding-strategy use-distributed-optimizer "
    "recompute-granularity recompute-method recompute-num-layers recompute-activations ckpt-format attention-dropout "
    "hidden-dropout add-qkv-bias qk-layernorm moe-ffn-hidden-size moe-shared-expert-intermediate-size moe-layer-freq "
    "moe-grouped-gemm moe-token-dispatcher-type rotary-base use-rope-scaling rope-scaling-factor optimizer lr min-lr "
    "lr-decay-style data-path tokenizer-type tokenizer-model save load save-interval save-retain-interval "
    "pretrained-checkpoint accumulate-allreduce-grads-in-fp32 fp8-format".split()
)


def last_line(target: str, options: TrainOptions) -> list[str]:
    files = train_files(target, TrainPlan(options, ("head",)))
    return shlex.split(next(iter(files.values())).splitlines()[-1])


def options_of(words: list[str]) -> dict[str, str]:
    return {word.lstrip("-").partition("=")[0]: word.partition("=")[2] for word in words if word.startswith("--")}


@given(
    tp=st.sampled_from((1, 2, 4)), pp=st.sampled_from((1, 2)), cp=st.sampled_from((1, 2)), dp=st.sampled_from((1, 2, 4, 8)),
    zero=st.integers(0, 3), micro=st.integers(1, 4), passes=st.integers(1, 8),
    precision=st.sampled_from(("bf16", "amp-bf16", "fp32")),
)  # fmt: skip
def test_tools_with_their_own_models_compute_the_same_batch_and_layout(
    tp: int, pp: int, cp: int, dp: int, zero: int, micro: int, passes: int, precision: str
) -> None:
    gpus = tp * pp * cp * dp
    layout = Parallel(dp=dp, tp=tp, pp=pp, cp=cp, ep=dp, zero=zero)
    run = replace(RUN, gpus=gpus, nodes=1, parallel=layout, batch=micro * passes * dp, accumulation=passes, precision=precision)
    assert (run.micro_batch, run.replicas) == (micro, dp)
    megatron = options_of(last_line("megatron", run))
    assert int(megatron["global-batch-size"]) == micro * passes * dp
    sizes = ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size", "expert-model-parallel-size")
    assert [int(megatron.get(name, 1)) for name in sizes] == [tp, pp, cp, dp]
    assert ("bf16" in megatron) == (precision != "fp32")
    if pp > 1 and passes < pp:  # PyTorch's schedules refuse fewer passes than stages.
        with pytest.raises(UsageError) as refused:
            last_line("torchtitan", run)
        assert refused.value.kind == "emit-layout"
        return
    titan = options_of(last_line("torchtitan", run))
    degrees = {name.partition(".")[2]: int(size) for name, size in titan.items() if name.endswith("_degree")}
    shards = degrees["data_parallel_shard_degree"]
    assert degrees["data_parallel_replicate_degree"] * shards * tp * pp * cp == gpus
    assert shards * tp * cp % dp == 0  # Expert parallel ranks are taken from these.
    assert [degrees[f"{name}_parallel_degree"] for name in ("tensor", "pipeline", "context", "expert")] == [tp, pp, cp, dp]
    assert int(titan["training.global_batch_size"]) == micro * passes * dp
    local, microbatch = (
        int(titan["training.local_batch_size"]),
        int(titan.get("parallelism.pipeline_parallel_microbatch_size", 0)),
    )
    assert (local, microbatch) == ((micro * passes, micro) if pp > 1 else (micro, 0))
    assert ("training.disable_cuda_graphs" in titan) == (pp > 1 or dp > 1)  # Neither stages nor exchanged experts allow them.


@given(
    gpus=st.sampled_from((1, 2, 8, 16)), zero=st.integers(0, 3), micro=st.integers(1, 4), passes=st.integers(1, 8),
    nodes=st.sampled_from((1, 2)),
)  # fmt: skip
def test_deepspeed_s_batch_is_that_of_all_ranks(gpus: int, zero: int, micro: int, passes: int, nodes: int) -> None:
    layout = Parallel(dp=gpus, zero=zero)
    run = replace(RUN, gpus=gpus, nodes=min(nodes, gpus), parallel=layout, batch=micro * passes * gpus, accumulation=passes)
    config = json.loads(train_files("deepspeed", TrainPlan(run))["deepspeed.json"])
    product = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * gpus
    assert config["train_batch_size"] == product == run.batch
    assert config["zero_optimization"]["stage"] == zero
    assert config["gradient_clipping"] == "auto"
    words = last_line("deepspeed", run)
    launcher = words[: words.index("train.py")]
    if run.nodes == 1:
        assert launcher == ["deepspeed", f"--num_gpus={gpus}"]
    else:  # Its own launcher would need a hostfile and ssh.
        assert launcher[:3] == ["torchrun", f"--nnodes={run.nodes}", f"--nproc-per-node={gpus // run.nodes}"]


def test_layouts_that_split_a_model_are_refused_by_scripts_and_run_by_megatron_in_jobs() -> None:
    run = replace(RUN, parallel=Parallel(dp=2, tp=4, pp=2), provider="aws", instance="p5.48xlarge", region="us-east-1")
    for target in ("torchrun", "accelerate", "deepspeed"):
        with pytest.raises(UsageError) as refused:
            train_files(target, TrainPlan(run))
        assert (refused.value.kind, "tp=4, pp=2" in str(refused.value)) == ("emit-layout", True)
    for target in JOB_TARGETS:
        text = "".join(train_files(target, TrainPlan(run)).values())
        assert "--tensor-model-parallel-size=4" in text
        assert "CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun" in text
        assert "--branch core_v0.15.0" in text
    [task] = train_files("dstack", TrainPlan(replace(run, is_finetuning=True))).values()
    assert "files" not in yaml.safe_load(task)  # dstack uploads a few megabytes at most.
    assert "add them with your data/ and weights/ too" in task
    [sbatch] = train_files("slurm", TrainPlan(run)).values()
    assert "srun env CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun" in sbatch  # srun takes no variable before a program.
    for lacking in (replace(run, lora_rank=8), replace(run, shape=find_model("deepseek-v3", Catalog(), None))):
        with pytest.raises(UsageError) as refused:
            train_files("slurm", TrainPlan(lacking))
        assert refused.value.kind == "emit-layout"


def test_accelerate_s_config_is_explained_as_the_run_it_was_written_from() -> None:
    for zero, kind in ((0, "MULTI_GPU"), (1, "DEEPSPEED"), (2, "FSDP"), (3, "FSDP")):
        run = replace(RUN, parallel=Parallel(dp=16, zero=zero))
        text = train_files("accelerate", TrainPlan(run, ("a: comment",)))["accelerate.yaml"]
        assert yaml.safe_load(text)["distributed_type"] == kind
        fields = config_workload(text.encode(), "accelerate.yaml").fields
        assert (fields["gpus"], fields["nodes"], fields["precision"]) == (16, 2, "amp-bf16")
        assert fields["parallel"] == {"dp": 16} | ({"zero": zero} if zero else {})
        config = yaml.safe_load(text)
        assert (config["rdzv_backend"], config["same_network"]) == ("static", True)
        assert config.get("deepspeed_config", {}).get("deepspeed_multinode_launcher", "standard") == "standard"
        assert ("deepspeed_multinode_launcher" in text) == (zero == 1)  # Else it asks for a hostfile and pdsh.
    words = last_line("accelerate", RUN)
    assert words[:3] == ["accelerate", "launch", "--config_file=accelerate.yaml"]
    assert "--gradient_checkpointing" not in words  # FSDP checkpoints; both at once are an error.
    assert "--gradient_checkpointing" in last_line("accelerate", replace(RUN, parallel=Parallel(dp=16)))


def test_torchrun_starts_a_process_per_gpu() -> None:
    words = last_line("torchrun", RUN)
    assert words[:5] == [
        "torchrun", "--nnodes=2", "--nproc-per-node=8", "--rdzv-backend=c10d", "--rdzv-endpoint=$HEAD_ADDRESS:29500"
    ]  # fmt: skip
    assert {"train.py", "--per_device_train_batch_size=2", "--gradient_accumulation_steps=2", "--bf16"} <= set(words)
    assert {"--max_steps=1000", "--save_steps=500", "--save_total_limit=1", "--output_dir=output"} <= set(words)
    tuned = last_line("torchrun", replace(RUN, is_finetuning=True))
    assert json.loads(tuned[-1].partition("=")[2])["cpu_ram_efficient_loading"]  # Else each rank loads all weights.
    assert words[-2:] == ["--fsdp", '--fsdp_config={"reshard_after_forward": true, "activation_checkpointing": true}']
    assert "--gradient_checkpointing" not in words  # FSDP checkpoints.
    single = last_line("torchrun", replace(RUN, gpus=1, nodes=1, parallel=Parallel(), precision="fp32", optimizer="adamw-8bit"))
    assert single[:3] == ["torchrun", "--nnodes=1", "--nproc-per-node=1"]
    assert "--optim=adamw_bnb_8bit" in single
    assert not [word for word in single if word.startswith(("--fsdp", "--bf16"))]


def test_megatron_gets_the_model_s_sizes_in_documented_options() -> None:
    words = options_of(last_line("megatron", RUN))
    assert (words["num-layers"], words["hidden-size"], words["num-query-groups"]) == ("32", "4096", "8")
    assert words["data-parallel-sharding-strategy"] == "optim_grads_params"
    layout = Parallel(dp=2, tp=4, pp=2, ep=4, sp=True, zero=1, chunks=2)
    moe = replace(RUN, model="mixtral", shape=MIXTRAL, parallel=layout, checkpointing="selective")
    options = options_of(last_line("megatron", moe))
    assert (options["num-experts"], options["moe-router-topk"], options["expert-model-parallel-size"]) == ("8", "2", "4")
    assert {"sequence-parallel", "use-distributed-optimizer", "recompute-activations"} <= options.keys()
    unasked = replace(moe, parallel=replace(layout, sp=False))
    assert "sequence-parallel" in options_of(last_line("megatron", unasked))  # Megatron-LM refuses to train an MoE without it.
    assert "sequence-parallel" not in options_of(last_line("megatron", replace(unasked, shape=RUN.shape)))
    assert (words["attention-dropout"], words["ckpt-format"]) == ("0.0", "fsdp_dtensor")
    assert options["moe-ffn-hidden-size"] == "14336"
    assert last_line("megatron", moe)[:2] == ["CUDA_DEVICE_MAX_CONNECTIONS=1", "torchrun"]  # needed by tensor parallel ranks
    assert last_line("megatron", RUN)[0] == "torchrun"  # refused by FSDP
    qwen = options_of(last_line("megatron", replace(RUN, shape=find_model("qwen3-30b-a3b", Catalog(), None))))
    assert (qwen["moe-ffn-hidden-size"], "qk-layernorm" in qwen) == ("768", True)
    assert "add-qkv-bias" in options_of(last_line("megatron", replace(RUN, shape=find_model("qwen2.5-7b", Catalog(), None))))
    assert (words["rotary-base"], words["rope-scaling-factor"], qwen["rotary-base"]) == ("500000", "8", "1000000")
    assert (words["train-iters"], words["save-interval"], words["save-retain-interval"]) == ("1000", "500", "1000")
    assert words["tokenizer-model"] == "meta-llama/Llama-3.1-8B"
    tuned = options_of(last_line("megatron", replace(RUN, is_finetuning=True, steps=None)))
    assert (tuned["pretrained-checkpoint"], tuned["lr"], tuned["train-iters"]) == ("weights", "1e-05", "100")
    assert "pretrained-checkpoint" not in words
    launcher = {"nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint"}
    assert (words | options | qwen | tuned).keys() - launcher <= MEGATRON_OPTIONS


def test_schedulers_get_nodes_gpus_and_the_upper_end_of_the_time() -> None:
    [sbatch] = train_files("slurm", TrainPlan(RUN)).values()
    assert "#SBATCH --nodes=2\n" in sbatch
    assert "#SBATCH --gpus-per-node=8\n" in sbatch
    assert "#SBATCH --time=01:24:00\n" in sbatch
    assert "--time" not in next(iter(train_files("slurm", TrainPlan(replace(RUN, max_seconds=None))).values()))
    [task] = train_files("skypilot", TrainPlan(RUN)).values()
    document: dict[str, Any] = yaml.safe_load(task)
    assert document["resources"] == {
        "accelerators": "H100:8", "cloud": "gcp", "region": "us-east4", "use_spot": True, "network_tier": "best",
        "disk_size": 450,  # weights and two checkpoints of 16 bytes per parameter
        "autostop": {"idle_minutes": 10, "down": True},
    }  # fmt: skip
    assert document["envs"] == {"HF_TOKEN": "", "BUCKET": ""}
    assert document["num_nodes"] == 2
    assert document["setup"].strip() == "pip install transformers accelerate"


def test_notes_say_what_a_line_cannot() -> None:
    adapted = replace(RUN, lora_rank=16, is_qlora=True, parallel=Parallel(dp=16, zero=1), provider="aws", is_finetuning=True)
    scripts = {name: train_files(name, TrainPlan(adapted)) for name in TRAIN_TARGETS if name not in OWN_MODELS}
    texts = {name: "".join(files.values()) for name, files in scripts.items()}
    for note in ("QLoRA (4-bit base weights) of rank 16", "Starts from the weights of meta-llama/Llama-3.1-8B."):
        assert all(note in text for text in texts.values())
    assert "pip install transformers accelerate peft bitsandbytes deepspeed" in texts["docker"]
    assert "cudnn9-devel" in train_files("docker", TrainPlan(replace(adapted, image="x-cudnn9-runtime")))["docker.sh"]
    assert {name for name, text in texts.items() if '"stage": 1' in text} == {"deepspeed", *JOB_TARGETS}
    assert {name for name, text in texts.items() if "this line does not" in text} == {"torchrun"}
    for precision, loaded in (("bf16", "bf16"), ("amp-bf16", "fp32"), ("fp32", "fp32")):
        (text,) = train_files("torchrun", TrainPlan(replace(RUN, precision=precision))).values()
        assert f"The script loads the weights in {loaded}" in text
        assert "samples have 4096 tokens" in text
    assert "NODE_RANK=0..1" in texts["accelerate"]
    for target in OWN_MODELS:
        with pytest.raises(UsageError) as refused:
            train_files(target, TrainPlan(adapted))
        assert refused.value.kind == "emit-adapter"
        (text,) = train_files(target, TrainPlan(replace(RUN, parallel=Parallel(dp=16, zero=1), steps=None))).values()
        assert "does not state the run's length" in text
        assert "Config and tokenizer: meta-llama/Llama-3.1-8B. Weights start at random." in text
        assert "a folder that all nodes share" in text
        assert ("shards optimizer state only with parameters" in text) == (target == "torchtitan")
        assert ("--mock-data in place of --data-path" in text) == (target == "megatron")


def test_fine_tuning_with_torchtitan_starts_from_the_published_weights() -> None:
    (text,) = train_files("torchtitan", TrainPlan(replace(RUN, is_finetuning=True))).values()
    assert "--checkpoint.initial_load_in_hf" in text
    assert 'hf download meta-llama/Llama-3.1-8B --local-dir assets/hf/Llama-3.1-8B --exclude "original/*"' in text
    assert "initial_load_in_hf" not in "".join(last_line("torchtitan", RUN))


@pytest.mark.parametrize(
    ("model", "is_finetuning", "repository", "base"),
    [
        ("llama-3.1-8b", True, "meta-llama/Llama-3.1-8B", ""),
        ("llama-3.1-8b-instruct", True, "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
        ("olmo-2-7b", True, "allenai/OLMo-2-1124-7B", ""),  # Its first repository is instruction-tuned.
        ("qwen3-8b", True, "Qwen/Qwen3-8B", "Qwen/Qwen3-8B-Base"),
        ("qwen3-8b", False, "Qwen/Qwen3-8B-Base", ""),
        ("llama-3.3-70b", True, "meta-llama/Llama-3.3-70B-Instruct", ""),  # No base checkpoint was published.
        ("deepseek-coder-7b-v1.5", True, "deepseek-ai/deepseek-coder-7b-instruct-v1.5", ""),  # The base is of another model.
        ("ernie-4.5-21b-a3b", False, "baidu/ERNIE-4.5-21B-A3B-Base-PT", ""),
    ],
)
def test_training_starts_from_base_weights_unless_others_are_named(
    model: str, is_finetuning: bool, repository: str, base: str
) -> None:
    checkpoint = training_checkpoint(model, Catalog(), is_finetuning)
    assert (checkpoint.repository, checkpoint.base) == (repository, base)


def test_an_instruction_tuned_checkpoint_is_said_to_be_one() -> None:
    run = replace(RUN, model="meta-llama/Llama-3.1-8B-Instruct", base_model="meta-llama/Llama-3.1-8B", is_finetuning=True)
    text = train_files("torchrun", TrainPlan(run))["torchrun.sh"]
    assert "weights of meta-llama/Llama-3.1-8B-Instruct, an instruction-tuned checkpoint. The base checkpoint is " in text


@pytest.mark.parametrize(
    ("target", "model"),
    [("torchtitan", "mixtral-8x7b")]
    + [("megatron", name) for name in ("bert-large", "resnet50", "deepseek-v3", "gpt-oss-20b", "gemma-2-9b", "olmo-2-7b")],
)
def test_models_that_a_tool_lacks_are_refused(target: str, model: str) -> None:
    run = replace(RUN, model=model, shape=find_model(model, Catalog(), None))
    with pytest.raises(UsageError) as refused:
        train_files(target, TrainPlan(run))
    assert refused.value.kind == "emit-model"


def test_megatron_runs_only_what_the_estimate_counts() -> None:
    run = replace(RUN, parallel=Parallel(dp=2, tp=8), precision="bf16")
    for target in ("megatron", "slurm"):
        with pytest.raises(UsageError) as refused:
            last_line(target, replace(run, has_main_weights=False))
        assert "fp32 weights" in str(refused.value)
        assert "fp8-format" in options_of(last_line(target, replace(run, precision="fp8")))
    assert last_line("torchtitan", replace(run, has_main_weights=False))  # It trains in bf16 alone.
    for target in ("torchtitan", "torchrun", "docker"):
        with pytest.raises(UsageError) as refused:
            last_line(target, replace(run, precision="fp8", parallel=Parallel(dp=16)))
        assert refused.value.kind == "emit-precision"
    mixed = replace(run, shape=MIXTRAL, precision="amp-fp16")
    assert "moe-grouped-gemm" not in options_of(last_line("megatron", mixed))  # Megatron-LM asserts bf16 with it.


def test_rotary_embeddings_are_those_of_the_model_s_own_config() -> None:
    shape = replace(LLAMA, vocab=50000)
    assert "rotary-base" not in options_of(last_line("megatron", replace(RUN, shape=shape)))
    stated = options_of(last_line("megatron", replace(RUN, shape=shape, rotary=Rotary(2e6, 4))))
    assert (stated["rotary-base"], stated["rope-scaling-factor"]) == ("2000000", "4")
    family = options_of(last_line("megatron", RUN))
    assert (family["rotary-base"], family["rope-scaling-factor"]) == ("500000", "8")


def test_nodes_that_share_a_folder_clone_megatron_once(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    clone = 'for path; do :; done; mkdir -p "$path"; sleep 0.2; echo > "$path/pretrain_gpt.py"'
    for name, code in (("git", clone), ("pip", "true")):
        (tools / name).write_text(f"#!/bin/sh\n{code}\n")
        (tools / name).chmod(0o755)
    shared = tmp_path / "shared"
    shared.mkdir()
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    nodes = [subprocess.Popen(["bash", "-c", SETUP], cwd=shared, env=path, stderr=subprocess.DEVNULL) for _ in range(3)]
    assert [node.wait() for node in nodes] == [0, 0, 0]
    assert [str(one.relative_to(shared)) for one in shared.rglob("*")] == ["Megatron-LM", "Megatron-LM/pretrain_gpt.py"]
