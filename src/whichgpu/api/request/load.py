"""Requests about one given group of GPUs: memory, time, time under a load, and GPUs side by side."""

from typing import Annotated, TypedDict

from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import File, Names, Pairs, Words
from whichgpu.api.request.types import FilePath, Histogram, ModelName, NameList
from whichgpu.api.request.workload import WorkloadFields, work_field
from whichgpu.api.workloads.remarks import MAX_SIMULATED_REQUESTS
from whichgpu.base.kinds import Flag, Number, Whole
from whichgpu.workload.kinds import ModelValue
from whichgpu.workload.workload import KINDS

OWN_MEASUREMENTS = Field(Flag())


def _targets() -> tuple[str, ...]:
    from whichgpu.decide.launch.targets import target_names

    return target_names()


# Words that people type for a target of `--emit`.
TARGETS_BY_WORD = {
    "slurm": ("sbatch", "srun"),
    "kubernetes": ("k8s", "kubectl", "eks", "gke", "aks", "helm"),
    "docker": ("docker-run", "podman", "container"),
    "skypilot": ("sky", "skyserve"),
    "ollama": ("modelfile", "ollama-modelfile"),
    "llama.cpp": ("llama-server", "gguf"),
    "tensorrt-llm": ("trtllm", "trtllm-serve", "trt-llm"),
    "cloud-cli": ("aws", "gcloud", "az"),
    "torchrun": ("fsdp", "ddp"),
}
SYNONYMS = tuple((word, target) for target, words in TARGETS_BY_WORD.items() for word in words)
EMIT = Field(Words("tool", _targets, synonyms=SYNONYMS), "TARGET", "option.emit", "vllm")

REPORT = Field(File(), "FILE", "option.report", is_local=True)


class LengthFields(TypedDict, total=False):
    """Fields for the distribution of input and output lengths, or for a trace file of inference requests."""

    trace: Annotated[FilePath | None, Field(File(), "FILE", "option.serving-trace", is_local=True)]
    seed: Annotated[int | str | None, Field(Whole(0, 2**31 - 1), "N", "option.serving-seed")]
    in_spread: Annotated[float | str | None, Field(Number(high=5.0), "N", "option.serving-in-spread")]
    out_spread: Annotated[float | str | None, Field(Number(high=5.0), "N", "option.serving-out-spread")]
    in_histogram: Annotated[Histogram | None, Field(Pairs(":"), "TOKENS:WEIGHT,…", "option.serving-in-histogram")]
    out_histogram: Annotated[Histogram | None, Field(Pairs(":"), "TOKENS:WEIGHT,…", "option.serving-out-histogram")]


class FitRequest(WorkloadFields, total=False):
    """Request for the memory a model needs, and the GPUs that have enough."""

    model: Annotated[ModelName, Field(ModelValue(), "MODEL", argument=True, required=True, example="llama-3.1-8b")]
    task: Annotated[str | None, work_field]
    gpu: Annotated[NameList | None, Field(Names("gpus"), "NAME", "option.fit-gpu", "RTX 4090")]
    gpus: Annotated[int | str | None, work_field]
    emit: Annotated[str | None, EMIT]
    report: Annotated[FilePath | None, REPORT]
    plot: Annotated[FilePath | None, Field(File(), "FILE", is_local=True)]


class CompareRequest(WorkloadFields, total=False):
    """Request for a comparison of GPUs or machines."""

    names: Annotated[NameList, Field(Names("gpus"), "NAME…", argument=True, required=True, example="H100 SXM,A100-SXM-80GB")]
    task: Annotated[str | None, work_field]
    model: Annotated[ModelName | None, Field(ModelValue(), "MODEL", "option.compare-model")]
    gpus: Annotated[int | str | None, work_field]


class EstimateRequest(WorkloadFields, LengthFields, total=False):
    """Request for time, throughput and memory of a workload on one group of GPUs."""

    task: Annotated[str, Field(KINDS["task"], "TASK", argument=True, required=True, example="decode")]
    model: Annotated[ModelName, Field(ModelValue(), "MODEL", argument=True, required=True, example="llama-3.1-8b")]
    gpu: Annotated[str | None, Field(Names("gpus", many=False, is_exact=True), "NAME", "option.estimate-gpu", "H100 SXM")]
    gpus: Annotated[int | str | None, work_field]
    requests: Annotated[FilePath | None, Field(File(), "FILE", is_local=True, is_display=True)]
    no_own_measurements: Annotated[bool | None, OWN_MEASUREMENTS]
    best_layout: Annotated[bool | None, Field(Flag(), help="option.estimate-best-layout")]
    evidence: Annotated[bool | None, Field(Flag(), help="option.show-evidence", is_display=True)]
    emit: Annotated[str | None, EMIT]
    report: Annotated[FilePath | None, REPORT]
    plot: Annotated[FilePath | None, Field(File(), "FILE", "option.serving-plot", is_local=True)]
    count: Annotated[int | str | None, Field(Whole(1, MAX_SIMULATED_REQUESTS), "N", "option.serving-count")]
    burstiness: Annotated[float | str | None, Field(Number(high=1000.0), "N", "option.serving-burstiness")]
    max_batched_tokens: Annotated[int | str | None, Field(Whole(1, 1 << 18), "N", "option.serving-max-batched-tokens")]
    max_sequences: Annotated[int | str | None, Field(Whole(1, 8192), "N", "option.serving-max-sequences")]
    block_tokens: Annotated[int | str | None, Field(Whole(1, 4096), "N", "option.serving-block-tokens")]
    memory_share: Annotated[float | str | None, Field(Number(high=1.0), "N", "option.serving-memory-share")]
    chunked_prefill: Annotated[bool | None, Field(Flag(), help="option.serving-chunked-prefill", has_negative=True)]
    mixed_steps: Annotated[bool | None, Field(Flag(), help="option.serving-mixed-steps", has_negative=True)]
    prefix_caching: Annotated[bool | None, Field(Flag(), help="option.serving-prefix-caching", has_negative=True)]
