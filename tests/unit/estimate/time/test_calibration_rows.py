"""The mapping from published results to requests: what a row means, and which rows are left out and why."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from evidence import language, vision
from evidence.kernels.operators import published_operator
from evidence.names import FOLDER, as_model, doubt, gpu_id, reason_named, table
from evidence.published import Published, read_published
from evidence.reasons import Reason
from evidence.rows import ADAPTERS, Read, left_out, operator_rows, read_all, single_gpu_rows, tally
from evidence.runs import mlperf, nvdle
from msgspec.structs import replace

from whichgpu.catalog.evidence import Measurement
from whichgpu.catalog.store import Catalog
from whichgpu.workload.models import find_model
from whichgpu.workload.spelling import from_object

_COLUMNS = (
    "source,source_path,date,gpu,n_gpus,task,framework,model,precision,batch,seq_in,seq_out,parallelism,metric,value,notes,trust"
)


_BLANK = Published(
    line=2,
    source="",
    path="",
    date="2020",
    gpu="A100 SXM 40GB",
    gpus=1,
    task="infer-throughput",
    framework="PyTorch",
    model="",
    precision="",
    batch=None,
    seq_in=None,
    seq_out=None,
    metric="",
    value=1.0,
    notes="",
    trust="high",
)


def published(source: str, **fields: Any) -> Published:
    """A row of that source with the fields that matter to a test."""
    return replace(_BLANK, source=source, **fields)


def used(result: Measurement | Reason) -> Measurement:
    """The result, which must be a request."""
    assert isinstance(result, Measurement), result
    return result


@pytest.fixture(scope="session")
def truth() -> Path:
    """Measurements that are not part of the project."""
    folder = Path(os.environ.get("WHICHGPU_SHARED", Path(__file__).parents[5] / "shared")) / "truth"
    if not folder.is_dir():
        pytest.skip(f"no measurements at {folder}")
    return folder


@pytest.fixture(scope="session")
def reads(truth: Path) -> list[Read]:
    """Every published row with what became of it."""
    return read_all(truth)


def test_row_is_read_verbatim(tmp_path: Path) -> None:
    """Numbers are numbers where the column holds some, and the line is the file's."""
    file = tmp_path / "rows.csv"
    file.write_text(
        f"{_COLUMNS}\ntimm,a.csv,2024-08,RTX 4090 24GB,1,train,PyTorch,resnet18,AMP fp16,64,,,1 GPU,images/s,2.5,img 160,high\n"
    )
    (row,) = read_published(file)
    assert (row.line, row.batch, row.seq_in, row.value) == (2, 64, None, 2.5)
    assert row.noted(r"img (\d+)") == "160"
    assert row.states_all


def test_torchvision_script_copies_images_and_steps_no_optimizer() -> None:
    """Batch 12 at 224 px; half precision copies half the bytes; PyTorch of 2021 ran fp32 as TF32 on an A100."""
    row = published("ryujaehun", task="train", model="vgg16", precision="fp32", batch=12, value=80.0, metric="ms/batch")
    full = used(vision.torchvision_script(row))
    assert full.seconds == pytest.approx(0.080)
    assert full.request["precision"] == "tf32"
    assert full.request["include_optimizer_step"] is False
    assert full.pageable_copy_bytes == 12 * 3 * 224 * 224 * 4
    half = used(vision.torchvision_script(published("ryujaehun", gpu="Titan Xp 12GB", model="vgg16", precision="fp16", batch=12)))
    assert half.request["precision"] == "fp16"
    assert half.pageable_copy_bytes == full.pageable_copy_bytes / 2


def test_years_of_one_script_are_those_in_which_it_ran() -> None:
    """The Titans were added with the A100 a year after the RTX 2080 Ti: what their hosts take for a call is of PyTorch 1.7."""
    common = {"model": "vgg16", "precision": "fp32", "batch": 12}
    years = {
        gpu: used(vision.torchvision_script(published("ryujaehun", gpu=gpu, **common))).request["year"]
        for gpu in ("Titan RTX 24GB", "Titan Xp 12GB", "RTX 2080 Ti 11GB", "Titan V 12GB")
    }
    assert list(years.values()) == [2021, 2021, 2019, 2018]


def test_a_run_that_calls_itself_unoptimised_is_left_out() -> None:
    """The same chip, script and networks were also measured with the usual build."""
    row = published("lamikr", gpu="RX 7700S 8GB", framework="PyTorch ROCm", model="vgg16", precision="fp16", batch=12)
    assert doubt(row) is None
    assert doubt(replace(row, path="results/AMD/AMD_Radeon_RX_7700S_NO_OPT/half.csv")) is Reason.OTHER_ENGINE


def test_timm_states_image_and_layout() -> None:
    """Images a second become seconds of a batch, at the size and layout the run had."""
    common = {"gpu": "RTX 4090 24GB", "framework": "PyTorch 240 eager NHWC", "precision": "AMP fp16", "batch": 1024}
    result = used(vision.timm(published("timm", model="resnet18", value=4096.0, notes="img 288; step 250 ms", **common)))
    assert result.seconds == 0.25
    assert (result.request["image"], result.request["memory_format"], result.request["precision"]) == (
        288,
        "channels_last",
        "amp-fp16",
    )


def test_mxnet_alexnet_trains_at_the_batch_the_page_means() -> None:
    """`16x` is of the batch, not part of an instance's name such as g3.4xlarge."""
    notes = "EC2 p2/g3.4xlarge/p3.2xlarge; source states AlexNet batch is 16x the printed batch"
    common = {"framework": "MXNet 1.2.0.rc1", "gpu": "V100 SXM 16GB", "precision": "fp32", "value": 2048.0}
    train = used(vision.mxnet(published("mxnet", task="train", model="Alexnet", batch=64, notes=notes, **common)))
    assert (train.request["batch"], train.seconds) == (1024, 0.5)
    plain = used(vision.mxnet(published("mxnet", model="Inception-v3", batch=64, notes="EC2 p2/g3.4xlarge", **common)))
    assert (plain.request["batch"], plain.request["image"]) == (64, 299)


def test_old_vgg_of_mxnet_has_eleven_layers() -> None:
    """VGG-16 at the printed rate would need more than twice the P100's peak."""
    row = published("mxnet", gpu="P100 SXM 16GB", framework="MXNet 0a03417", model="VGG", precision="fp32", batch=16, value=755.3)
    assert used(vision.mxnet(row)).request["model"] == "vgg11"


def test_cifar_images_are_small_save_for_vit() -> None:
    """The benchmark crops to 32 px and resizes for vision transformers alone; its backward holds the optimizer's step."""
    common = {"gpu": "T4 16GB", "framework": "PyTorch eager", "precision": "fp32 (default dtype; TF32 conv default)", "batch": 64}
    small = used(vision.devos50(published("devos50", task="train", model="resnet18", value=0.0185, **common)))
    assert (small.request["image"], small.request["optimizer"]) == (32, "sgd-momentum")
    assert small.synchronises_after_forward  # it waits for the device after the forward pass
    assert small.stochastic_depth == ""
    for model, depth in (("convnext-tiny", "kept"), ("efficientnet-b0", "dropout")):
        assert (
            used(vision.devos50(published("devos50", task="train", model=model, value=0.02, **common))).stochastic_depth == depth
        )
    large = used(vision.devos50(published("devos50", task="train", model="vit-base-patch16-224", value=1.7, **common)))
    assert (large.request["image"], large.request["precision"]) == (224, "fp32-default")


def test_other_software_is_left_out() -> None:
    """Caffe2 and neon are no engines of ours."""
    common = {"model": "vgg16", "precision": "fp32", "batch": 16, "notes": "224x224; mean of 20"}
    assert vision.forward_and_backward(published("u39kun", framework="Caffe2 0.8.1", **common)) is Reason.OTHER_ENGINE


def test_whole_batches_of_generation_keep_their_whole_time() -> None:
    """A fixed batch offline: the printed latency is from prompts to last tokens."""
    common = {"framework": "vLLM", "model": "meta-llama/Meta-Llama-3-8B", "precision": "fp16"}
    sizes = {"batch": 16, "seq_in": 128, "seq_out": 128, "notes": "latency=2.19 s for whole batch"}
    result = used(language.argonne(published("argonne", **common, **sizes)))
    assert (result.kind, result.seconds, result.request["task"]) == ("generate", 2.19, "batch")


def test_a_batch_that_does_not_fit_at_once_is_left_out() -> None:
    """Llama 2 7B keeps half a MiB a token: 64 sequences of 4,096 need 128 GiB, and 40 GB hold them in turns."""
    common = {"framework": "vLLM", "model": "meta-llama/Llama-2-7b-hf", "precision": "fp16"}
    sizes = {"batch": 64, "seq_in": 2048, "seq_out": 2048, "notes": "latency=150.0 s for whole batch"}
    assert language.argonne(published("argonne", **common, **sizes)) is Reason.QUEUED


def test_fp8_engines_keep_their_cache_in_fp8() -> None:
    """Static batches of TensorRT-LLM print tokens a second of one GPU; loads without a batch are not times."""
    common = {"gpu": "H100 SXM 80GB", "framework": "TensorRT-LLM v0.9.0", "model": "LLaMA 7B", "precision": "FP8"}
    static = {"batch": 64, "seq_in": 128, "seq_out": 128, "value": 8192.0, "notes": "static batching, peak-throughput table"}
    result = used(language.tensorrt_llm(published("trtllm", **common, **static)))
    assert (result.seconds, result.request["kv_precision"]) == (1.0, "fp8")
    assert language.tensorrt_llm(published("trtllm", **common, notes="in-flight batching, max-load")) is Reason.NO_BATCH
    assert (
        language.tensorrt_llm(published("trtllm", **common, notes="online serving, offered load QPS=2")) is Reason.LATENCY_BOUND
    )


def test_llama_bench_decodes_from_an_empty_context() -> None:
    """512 tokens generated from nothing have a mean context of 256."""
    common = {"gpu": "RTX 3090 24GB", "framework": "llama.cpp", "model": "LLaMA-3-8B", "precision": "Q4_K_M", "batch": 1}
    decode = used(language.llama_cpp(published("XiongjieDai", task="infer-decode", seq_in=0, seq_out=512, value=100.0, **common)))
    assert (decode.request["seq_in"], decode.request["precision"], decode.seconds) == (256, "q4_k_m", 0.01)


def test_runs_printed_twice_are_used_once() -> None:
    """Latency and throughput of one run: the preferred one is the request, the other its twin."""
    common = {"model": "MxNet/Classification/RN50v1.5", "precision": "mixed precision", "batch": 8, "notes": "Batch size=8"}
    rows = [
        published("nv-dle", line=2, metric="img/sec", value=4000.0, **common),
        published("nv-dle", line=3, metric="latency avg ms", value=2.0, **common),
    ]
    results = [result for _, result in nvdle.read(rows)]
    assert results[0] is Reason.TWIN
    assert used(results[1]).seconds == 0.002


def test_equal_tables_are_distinguished_by_their_order() -> None:
    """BERT large comes before base in the README, under the same heading."""
    common = {
        "model": "TensorFlow2/LanguageModeling/BERT",
        "precision": "FP16",
        "batch": 1,
        "seq_in": 128,
        "metric": "latency avg ms",
    }
    rows = [published("nv-dle", line=2, value=9.5, **common), published("nv-dle", line=3, value=4.2, **common)]
    hidden = [used(result).request["model"]["hidden_size"] for _, result in nvdle.read(rows)]
    assert hidden == [1024, 768]


def test_training_takes_the_batch_of_the_benchmark_script() -> None:
    """Rows that print none are run at the configured batch of their precision, in its layout."""
    common = {"task": "train", "model": "PyTorch/Classification/ConvNets/resnet50v1.5", "metric": "img/s", "gpu": "V100 SXM 16GB"}
    rows = [published("nv-dle", line=2, precision="mixed (AMP)", value=1024.0, **common)]
    rows += [published("nv-dle", line=3, precision="fp32", value=448.0, **common)]
    amp, fp32 = (used(result) for _, result in nvdle.read(rows))
    assert (amp.request["batch"], amp.request["memory_format"], amp.seconds) == (256, "channels_last", 0.25)
    assert (fp32.request["batch"], fp32.request["memory_format"], fp32.seconds) == (112, "contiguous", 0.25)


def test_mlperf_scenarios() -> None:
    """Offline is a large batch, a single stream one sample, servers are bound by latency; Hopper runs BERT in fp8."""
    common = {"framework": "MLPerf Inference v3.0; TensorRT 8.6.0, CUDA 12.0", "date": "2023-04", "model": "bert-99"}
    offline = used(
        mlperf.mlperf(published("mlperf-inf", gpu="A100 SXM 80GB", metric="offline samples/s", value=2048.0, **common))
    )
    assert (offline.request["precision"], offline.request["seq_in"], offline.seconds) == ("int8", 177, 0.5)
    assert (offline.request["year"], offline.throughput_only) == (2023, True)
    hopper = published("mlperf-inf", gpu="H100 SXM 80GB", metric="p90 single-stream latency (ms)", value=1.0, **common)
    assert used(mlperf.mlperf(hopper)).request["precision"] == "fp8"
    assert mlperf.mlperf(published("mlperf-inf", metric="server queries/s", **common)) is Reason.LATENCY_BOUND


def test_operators_have_sizes() -> None:
    """Vidur names layers, the others sizes; its gate and up projections are one product."""
    layer = "meta-llama/Llama-2-7b-hf mlp_up_proj (n_embd=4096, n_expanded=11008, tp_shards=4)"
    row = published(
        "vidur", task="op", gpu="A40 48GB", model=layer, precision="fp16", batch=8, metric="ms", value=2.0, date="2024"
    )
    op = used(published_operator(row))
    assert {name: op.request[name] for name in ("m", "n", "k")} == {"m": 8, "n": 5504, "k": 4096}
    row = published(
        "neusight", gpu="L4 24GB", model="bmm B=96 M=4 N=5 K=6", precision="fp32 (TF32 off)", metric="ms", date="2024"
    )
    assert used(published_operator(row)).request["batch"] == 96
    row = published(
        "stas00", model="matmul 1000x1000x500", precision="bf16", metric="TFLOP/s (best shape)", value=100.0, date="2024-2026"
    )
    assert used(published_operator(row)).seconds == pytest.approx(1e-5)


def test_doubtful_rows_are_named() -> None:
    """A model that got more tokens than its context stopped at once: no measurement."""
    row = published("argonne", gpu="GH200 96GB", framework="vLLM", model="EleutherAI/gpt-j-6b", batch=1, seq_in=2048)
    assert doubt(row) is Reason.SUSPICIOUS
    assert (
        doubt(published("argonne", gpu="GH200 96GB", framework="vLLM", model="EleutherAI/gpt-j-6b", batch=1, seq_in=1024)) is None
    )


@pytest.mark.parametrize("name", ["gpu_names", "model_names", "frameworks", "precisions", "doubts", "nvdle", "mlperf"])
def test_tables_name_known_reasons(name: str) -> None:
    """Every reason in a table is one of ours, and a row that maps to nothing gives one."""
    for row in table(name):
        assert not row["left_out"] or reason_named(row["left_out"])
        ours = row.get("ours") or row.get("engine") or row.get("model")
        assert bool(row["left_out"]) or bool(ours), row


def test_every_gpu_and_config_exists(catalog: Catalog) -> None:
    """GPU ids are the catalog's, and the configs kept here are read."""
    assert {row["ours"] for row in table("gpu_names") if row["ours"]} <= set(catalog.gpu_by_id)
    for file in (FOLDER / "configs").glob("*.json"):
        assert find_model(as_model(f"config:{file.stem}"), catalog)
    assert gpu_id("no such card") is Reason.UNKNOWN_GPU


def test_every_row_is_accounted_for(reads: list[Read], truth: Path) -> None:
    """Used or left out with a reason; of what states model, precision and batch at least 60% is used, source by source too."""
    counts = tally(reads)
    everything = counts["all"]
    assert everything.rows == len(read_published(truth / "public" / "calibration.csv"))
    assert everything.used + sum(everything.reasons.values()) == everything.single
    assert everything.stated_used / everything.stated >= 0.6
    assert sum(left_out(truth).values()) == sum(isinstance(read.result, Reason) for read in reads)
    assert {read.row.source for read in reads} == {*ADAPTERS, "nv-dle"}


def test_every_request_is_valid(truth: Path, catalog: Catalog) -> None:
    """Requests use the contract's fields and values; times are positive; no run is used twice."""
    rows = single_gpu_rows(truth)
    for row in rows:
        assert row.seconds > 0
        assert row.gpu in catalog.gpu_by_id
        from_object(dict(row.request))
    assert max(Counter((row.source, row.row) for row in rows).values()) == 1
    assert all(row.seconds > 0 and row.request["kind"] for row in operator_rows(truth))


def test_h200_rows_follow_the_contract_words(truth: Path) -> None:
    """Decode replays a graph, prefill is compiled, fp32 forwards run TF32 convolutions, BERT's slow graph is not used."""
    rows = [row for row in single_gpu_rows(truth) if row.source.startswith("h200-")]
    engines = {(row.kind, row.request["engine"]) for row in rows}
    assert engines == {
        ("train", "pytorch"),
        ("train", "pytorch-compile"),
        ("forward", "pytorch"),
        ("forward", "cuda-graphs"),
        ("prefill", "pytorch-compile"),
        ("decode", "cuda-graphs"),
        ("prefill", "vllm"),
        ("decode", "vllm"),
        ("prefill", "llama.cpp"),
        ("decode", "llama.cpp"),
    }
    assert not any(row.request["model"].startswith("bert") for row in rows if row.source == "h200-forward-graph")
    assert not any(row.request["precision"] == "fp32" for row in rows if row.kind == "forward")
    assert all(re.fullmatch(r"mlp:[\dx]+", row.request["model"]) for row in rows if row.family == "mlp")
