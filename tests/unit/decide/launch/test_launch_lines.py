"""Emitted lines parse with the options that each engine documents, and a vLLM line gives the layout it was written from."""

from __future__ import annotations

import argparse
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.units import GIB
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.serve_command import serve_notes, serve_words, serving_engines, shell_line
from whichgpu.decide.launch.targets import LaunchPlan, launch_files, targets
from whichgpu.workload.decoding.offload import Offload
from whichgpu.workload.decoding.speculative import METHODS, Speculative
from whichgpu.workload.precisions import PRECISION_BY_NAME

OPTIONS = LaunchOptions(
    group="chat", model="meta-llama/Llama-3.1-8B", copies=2, gpu="h100-sxm", gpus_per_copy=8, tensor_parallel_size=4,
    max_num_seqs=64, max_model_len=4096, max_num_batched_tokens=8192, dtype="fp8", memory_share=0.9, provider="aws",
    instance="p5.48xlarge", region="us-east-1", spot=False, data_parallel_size=2, kv_dtype="fp8",
)  # fmt: skip
FP8_KV = replace(OPTIONS, dtype="bf16")

# Options as documented: vLLM 0.32 (vllm serve --help), SGLang 0.5.23 (server arguments), TensorRT-LLM 1.2 (commands/serve.py),
# llama.cpp (tools/server/README.md). A type of None is a switch.
INT, FLOAT, TEXT = int, float, str
DOCUMENTED: dict[str, dict[str, type | tuple[str, ...] | None]] = {
    "vllm": {
        "--tensor-parallel-size": INT, "--pipeline-parallel-size": INT, "--data-parallel-size": INT,
        "--enable-expert-parallel": None, "--max-num-seqs": INT, "--max-model-len": INT, "--max-num-batched-tokens": INT,
        "--gpu-memory-utilization": FLOAT, "--dtype": ("auto", "half", "float16", "bfloat16", "float", "float32"),
        "--quantization": TEXT, "--kv-cache-dtype": ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"),
        "--cpu-offload-gb": INT, "--nnodes": INT, "--node-rank": TEXT, "--master-addr": TEXT, "--headless": None, "--port": INT,
        "--speculative-config.method": ("draft_model", "mtp", "eagle3", "ngram"), "--speculative-config.model": TEXT,
        "--speculative-config.num_speculative_tokens": INT,
    },
    "sglang": {
        "--model-path": TEXT, "--tp-size": INT, "--pp-size": INT, "--dp-size": INT, "--ep-size": INT,
        "--enable-dp-attention": None,
        "--max-running-requests": INT, "--context-length": INT, "--chunked-prefill-size": INT, "--mem-fraction-static": FLOAT,
        "--dtype": ("auto", "half", "float16", "bfloat16", "float", "float32"), "--quantization": TEXT,
        "--kv-cache-dtype": ("auto", "fp8_e5m2", "fp8_e4m3", "bf16", "bfloat16", "fp4_e2m1"),
        "--cpu-offload-gb": INT, "--nnodes": INT, "--node-rank": TEXT, "--dist-init-addr": TEXT, "--port": INT, "--host": TEXT,
        "--speculative-algorithm": ("STANDALONE", "NEXTN", "EAGLE3", "NGRAM"), "--speculative-draft-model-path": TEXT,
        "--is-embedding": None,
        "--speculative-num-steps": INT, "--speculative-eagle-topk": INT, "--speculative-num-draft-tokens": INT,
    },
    "tensorrt-llm": {
        "--tp_size": INT, "--pp_size": INT, "--ep_size": INT, "--max_batch_size": INT, "--max_num_tokens": INT,
        "--max_seq_len": INT, "--kv_cache_free_gpu_memory_fraction": FLOAT, "--port": INT,
        "--host": TEXT, "--extra_llm_api_options": TEXT,
    },
    "llama.cpp": {
        "--model": TEXT, "--n-gpu-layers": INT, "--cpu-moe": None,
        "--split-mode": ("none", "layer", "row"), "-np": INT, "--ctx-size": INT,
        "--ubatch-size": INT, "--cache-type-k": ("f32", "f16", "bf16", "q8_0", "q4_0"),
        "--cache-type-v": ("f32", "f16", "bf16", "q8_0", "q4_0"), "--flash-attn": ("on", "off", "auto"),
        "--port": INT, "--host": TEXT,
        "--spec-type": ("draft-simple", "draft-mtp", "draft-eagle3", "ngram-simple"), "--model-draft": TEXT,
        "--embedding": None, "--gpu-layers-draft": INT, "--spec-draft-n-max": INT, "--spec-ngram-simple-size-m": INT,
    },
}  # fmt: skip
PROGRAMS = {"vllm": ["vllm", "serve"], "sglang": ["python", "-m", "sglang.launch_server"], "tensorrt-llm": ["trtllm-serve"]}
MODEL_IS_ARGUMENT = ("vllm", "tensorrt-llm")


class StrictParser(argparse.ArgumentParser):
    """Parser that raises for an unknown option instead of ending the process."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ValueError(message)


def parse(engine: str, line: str) -> argparse.Namespace:
    """Parse a command line with the documented options of an engine; raise ValueError for any other option."""
    parser = StrictParser(allow_abbrev=False)
    if engine in MODEL_IS_ARGUMENT:
        parser.add_argument("model")
    for option, kind in DOCUMENTED[engine].items():
        if kind is None:
            parser.add_argument(option, action="store_true")
        elif isinstance(kind, tuple):
            parser.add_argument(option, choices=kind)
        else:
            parser.add_argument(option, type=kind)
    words = shlex.split(line)
    program = PROGRAMS.get(engine, ["llama-server"])
    assert words[: len(program)] == program
    return parser.parse_args(words[len(program) :])


SPECULATIVE = replace(OPTIONS, speculative=Speculative("draft", "meta-llama/Llama-3.2-1B", 5, 0.6))


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", "--speculative-config.num_speculative_tokens=5 --speculative-config.model=meta-llama/Llama-3.2-1B"),
        ("sglang", "--speculative-num-steps=5 --speculative-eagle-topk=1 --speculative-num-draft-tokens=6"),
        ("llama.cpp", "--model-draft Llama-3.2-1B-q8_0.gguf --gpu-layers-draft 999 --spec-draft-n-max 5"),
    ],
)
def test_speculative_decoding_is_on_the_line(engine: str, words: str) -> None:
    assert words in shell_line(serve_words(SPECULATIVE, engine))
    assert any("60% of the drafted tokens" in note for note in serve_notes(SPECULATIVE, engine))
    assert serve_notes(OPTIONS, engine) == [note for note in serve_notes(SPECULATIVE, engine) if "drafted" not in note]


@pytest.mark.parametrize("target", ["tensorrt-llm", "slurm", "docker", "kubernetes", "skypilot", "dstack"])
def test_tensorrt_llm_reads_speculative_decoding_from_a_file_written_first(target: str) -> None:
    (content,) = launch_files(target, LaunchPlan((SPECULATIVE,), "tensorrt-llm")).values()
    file = "chat-engine.yaml"
    assert content.index("max_draft_len: 5") < content.index(f"> {file}; ") < content.index(f"--extra_llm_api_options={file}")


def test_heads_that_only_the_user_can_name_and_engines_without_options_are_in_notes() -> None:
    eagle = replace(OPTIONS, speculative=Speculative("eagle", tokens=3))
    assert any("EAGLE-3 heads trained for meta-llama/Llama-3.1-8B" in note for note in serve_notes(eagle, "vllm"))
    (content,) = launch_files("ollama", LaunchPlan((eagle,), "llama.cpp")).values()
    assert "Speculative decoding is not set: Ollama has no variable for it." in content


degrees = st.sampled_from([1, 2, 4, 8])
launches = st.builds(
    replace,
    st.just(OPTIONS),
    tensor_parallel_size=degrees,
    pipeline_parallel_size=degrees,
    data_parallel_size=degrees,
    expert_parallel_size=degrees,
    max_num_seqs=st.none() | st.integers(1, 4096),
    max_model_len=st.none() | st.integers(1, 1 << 20),
    max_num_batched_tokens=st.none() | st.integers(1, 1 << 18),
    memory_share=st.none() | st.floats(0.1, 1.0),
    dtype=st.sampled_from(["bf16", "fp16", "fp32", "fp8", "int4", "nvfp4", "q4_k_m"]),
    kv_dtype=st.sampled_from([None, "bf16", "fp16", "fp8", "int8", "f16", "q8_0"]),
    is_embedding=st.booleans(),
    layers=st.just(32),
    offload=st.none() | st.builds(Offload, layers=st.integers(1, 40)) | st.just(Offload(experts=True)),
    speculative=st.none() | st.builds(Speculative, st.sampled_from(sorted(METHODS)), st.just("a/draft"), st.integers(1, 64)),
)


@pytest.mark.parametrize("engine", serving_engines())
@given(options=launches)
def test_every_line_has_documented_options_only(engine: str, options: LaunchOptions) -> None:
    parse(engine, shell_line(serve_words(options, engine, port=8000)))


@pytest.mark.parametrize("engine", serving_engines())
def test_a_wrong_option_fails_the_parser(engine: str) -> None:
    line = shell_line(serve_words(OPTIONS, engine))
    with pytest.raises(ValueError, match="unrecognized"):
        parse(engine, f"{line} --tensor-paralel-size=2")


@given(options=launches)
def test_a_vllm_line_read_back_is_the_launch_it_was_written_from(options: LaunchOptions) -> None:
    read = parse("vllm", shell_line(serve_words(options, "vllm")))
    sizes = (read.tensor_parallel_size or 1, read.pipeline_parallel_size or 1, read.data_parallel_size or 1)
    assert sizes == (options.tensor_parallel_size, options.pipeline_parallel_size, options.data_parallel_size)
    assert read.enable_expert_parallel == (options.expert_parallel_size > 1)
    assert (read.max_num_seqs, read.max_model_len) == (options.max_num_seqs, options.max_model_len)
    assert read.max_num_batched_tokens == options.max_num_batched_tokens
    assert read.gpu_memory_utilization == (
        None if options.memory_share is None else pytest.approx(options.memory_share, abs=0.005)
    )
    needs_checkpoint = options.dtype in ("int4", "nvfp4", "q4_k_m")  # vLLM makes no such weights from the published ones.
    assert read.model == (f"path/to/{options.model}-{options.dtype}" if needs_checkpoint else options.model)


@pytest.mark.parametrize("target", sorted(set(targets()) - {"ollama", "llama.cpp"}))
@pytest.mark.parametrize("dtype", ["int8", "int4", "nvfp4", "mxfp4"])
def test_a_quantised_checkpoint_is_a_placeholder_in_every_file_that_names_the_model(target: str, dtype: str) -> None:
    files = launch_files(target, LaunchPlan((replace(OPTIONS, dtype=dtype),), "vllm"))
    content = "\n".join(content for name, content in files.items() if not name.endswith("-nodes.yaml"))
    placeholder = f"path/to/{OPTIONS.model}-{dtype}"
    assert placeholder in "\n".join(line for line in content.splitlines() if not line.startswith("#"))
    assert f"# {placeholder}: name a checkpoint in {dtype} here" in content
    assert OPTIONS.model not in content.replace(placeholder, "")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_weights_are_named_by_their_repository_only_in_a_precision_the_engine_loads(engine: str) -> None:
    def model(dtype: str, published: str = "") -> str:
        words = serve_words(replace(OPTIONS, dtype=dtype, published=published), engine)
        return next(word.removeprefix("--model-path=") for word in words if OPTIONS.model in word)

    assert model("bf16") == model("fp32") == model("mxfp4", "mxfp4") == model("int4", "int4") == OPTIONS.model
    assert (model("fp8") == OPTIONS.model) == (engine != "tensorrt-llm")  # The other two quantise to fp8 at load.
    assert model("fp8", "fp8") == model("bf16", "fp16") == OPTIONS.model
    assert model("bf16", "mxfp4") == f"path/to/{OPTIONS.model}-bf16"
    assert model("int4", "fp8") == f"path/to/{OPTIONS.model}-int4"


@pytest.mark.parametrize(
    ("dtype", "file_type"), [("int4", "q4_k_m"), ("int8", "q8_0"), ("fp16", "f16"), ("mxfp4", "mxfp4_moe"), ("iq4_xs", "iq4_xs")]
)
def test_a_gguf_file_is_named_by_a_type_of_llama_cpp(dtype: str, file_type: str) -> None:
    (content,) = launch_files("llama.cpp", LaunchPlan((replace(OPTIONS, dtype=dtype),), "llama.cpp")).values()
    assert f"--model Llama-3.1-8B-{file_type}.gguf " in content
    assert f"as a GGUF file in {file_type}" in content
    assert PRECISION_BY_NAME[file_type].is_gguf


def test_attention_data_parallel_is_inside_the_tensor_parallel_group_of_sglang() -> None:
    experts = replace(OPTIONS, expert_parallel_size=8)
    read = parse("sglang", shell_line(serve_words(experts, "sglang")))
    assert (read.tp_size, read.dp_size, read.ep_size, read.enable_dp_attention) == (8, 2, 8, True)
    dense = parse("sglang", shell_line(serve_words(OPTIONS, "sglang")))
    assert (dense.tp_size, dense.dp_size, dense.enable_dp_attention) == (4, 2, False)


def test_embeddings_are_switched_on_in_engines_that_need_it() -> None:
    embedding = replace(OPTIONS, is_embedding=True)
    assert parse("sglang", shell_line(serve_words(embedding, "sglang"))).is_embedding
    assert parse("llama.cpp", shell_line(serve_words(embedding, "llama.cpp"))).embedding
    assert serve_words(embedding, "vllm") == serve_words(OPTIONS, "vllm")  # vLLM reads it from the model's config.


def test_kv_cache_precision_has_each_engine_s_own_name() -> None:
    assert parse("vllm", shell_line(serve_words(FP8_KV, "vllm"))).kv_cache_dtype == "fp8"
    assert parse("sglang", shell_line(serve_words(FP8_KV, "sglang"))).kv_cache_dtype == "fp8_e4m3"
    assert parse("llama.cpp", shell_line(serve_words(replace(FP8_KV, kv_dtype="q8_0"), "llama.cpp"))).cache_type_v == "q8_0"
    assert any("KV cache in fp8" in note for note in serve_notes(FP8_KV, "tensorrt-llm"))


def test_the_context_of_llama_cpp_is_that_of_all_sequences() -> None:
    read = parse("llama.cpp", shell_line(serve_words(replace(OPTIONS, dtype="q4_k_m"), "llama.cpp")))
    assert (read.ctx_size, read.np, read.model) == (64 * 4096, 64, "Llama-3.1-8B-q4_k_m.gguf")


@pytest.mark.parametrize("target", sorted(targets()))
def test_no_name_escapes_its_comment_or_word(target: str) -> None:
    name = "a; rm -rf $(x) 'b' $NODE_RANK"
    draft = Speculative("draft", name)
    plan = LaunchPlan((replace(OPTIONS, model=name, dtype="int4", speculative=draft),), "vllm", ("estimate of a\nreboot",))
    for file, content in launch_files(target, plan).items():
        assert "\nreboot" not in content
        if file.endswith("sh") and file != "cloud.sh" and target not in ("ollama", "llama.cpp"):  # cloud.sh names no model
            assert any(name in word for word in shlex.split(content.splitlines()[-1]))


@pytest.mark.parametrize("target", ["slurm", "kubernetes", "skypilot"])
def test_replicas_on_several_nodes_get_rank_and_address(target: str) -> None:
    wide = replace(OPTIONS, gpus_per_copy=16, nodes=2, tensor_parallel_size=8)
    (content,) = launch_files(target, LaunchPlan((wide,), "vllm")).values()
    assert "--nnodes=2" in content
    assert "--node-rank=$NODE_RANK" in content
    assert "NODE_OPTIONS=--headless" in content
    assert "NODE_RANK=$" in content


def test_slurm_script_has_directives_first_and_one_job_for_each_replica() -> None:
    (content,) = launch_files("slurm", LaunchPlan((OPTIONS,), "vllm", ("an estimate",))).values()
    lines = content.splitlines()
    assert lines[0] == "#!/bin/bash"
    assert {"#SBATCH --nodes=1", "#SBATCH --gpus-per-node=8", "#SBATCH --array=0-1"} <= set(lines)
    assert lines.index("# an estimate") > max(place for place, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert lines[-1].startswith("srun vllm serve meta-llama/Llama-3.1-8B ")


def test_docker_line_publishes_the_port_and_runs_the_engine_of_the_estimate() -> None:
    (content,) = launch_files("docker", LaunchPlan((OPTIONS,), "sglang")).values()
    words = shlex.split(content.splitlines()[-1])
    assert words[:3] == ["docker", "run", "--rm"]
    assert {"--gpus=all", "--publish=8000:8000", "--entrypoint=python", "lmsysorg/sglang", "--port=8000"} <= set(words)


@pytest.mark.parametrize("engine", serving_engines())
def test_a_server_with_a_port_listens_where_other_machines_reach_it(engine: str) -> None:
    read = parse(engine, shell_line(serve_words(OPTIONS, engine, port=8000)))
    assert engine == "vllm" or read.host == "0.0.0.0"  # vLLM listens on all interfaces by default.
    assert "--host" not in shell_line(serve_words(OPTIONS, engine))


@pytest.mark.parametrize(("dtype", "types"), [("int8", ("float16", "float16")), ("fp16", ("float16", None))])
def test_gpus_without_bf16_get_fp16_for_it(dtype: str, types: tuple[str, str | None]) -> None:
    old = replace(OPTIONS, gpu="t4", dtype=dtype, kv_dtype="bf16", has_bf16=False)
    read = parse("vllm", shell_line(serve_words(old, "vllm")))
    assert (read.dtype, read.kv_cache_dtype) == types


@pytest.mark.parametrize("target", ["llama.cpp", "ollama"])
def test_engines_that_reserve_every_sequence_s_context_get_that_of_the_requests(target: str) -> None:
    long = replace(OPTIONS, max_model_len=131_072, request_length=2304, pipeline_parallel_size=2)
    (content,) = launch_files(target, LaunchPlan((long,), "vllm")).values()
    assert {"llama.cpp": "-np 64 --ctx-size 147456", "ollama": "OLLAMA_CONTEXT_LENGTH=2304"}[target] in content
    assert "--split-mode row" not in content  # A pipeline is the mode `layer`.


@pytest.mark.parametrize(("target", "engine"), [("llama.cpp", "vllm"), ("ollama", "vllm"), ("slurm", "tensorrt-llm")])
def test_engines_without_options_for_nodes_are_refused_replicas_of_several(target: str, engine: str) -> None:
    with pytest.raises(UsageError, match="replicas of one machine"):
        launch_files(target, LaunchPlan((replace(OPTIONS, nodes=2),), engine))


def test_weights_in_a_file_are_brought_to_the_machine() -> None:
    plan = LaunchPlan((replace(OPTIONS, dtype="q4_k_m"),), "llama.cpp")
    texts = {target: "".join(launch_files(target, plan).values()) for target in ("docker", "kubernetes", "skypilot")}
    assert '--volume="$PWD:/work"' in texts["docker"]
    assert "--model /work/Llama-3.1-8B-q4_k_m.gguf" in texts["docker"]
    assert "add one with Llama-3.1-8B-q4_k_m.gguf at /work" in texts["kubernetes"]
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
    assert "/app/llama-server --model /work/" in launch_files("dstack", plan)["chat.dstack.yml"]


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
    assert "disk_size: 1000" in texts["skypilot"]
    assert 'disk: "1000GB.."' in texts["dstack"]
    assert 'shm_size: "16GB"' in texts["dstack"]
    assert '"ephemeral-storage": "830Gi"' in texts["kubernetes"]
    assert '"emptyDir": {"sizeLimit": "830Gi"}' in texts["kubernetes"]
    assert "VolumeSize=1000" in launch_files("cloud-cli", LaunchPlan((replace(large, provider="aws"),), "vllm"))["cloud.sh"]
    (small,) = launch_files("skypilot", LaunchPlan((replace(large, download_bytes=16 * 10**9),), "vllm")).values()
    assert "disk_size" not in small


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
