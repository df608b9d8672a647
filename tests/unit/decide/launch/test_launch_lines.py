"""Emitted lines parse with the options that each engine documents, and a vLLM line gives the layout it was written from."""

from __future__ import annotations

import argparse
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
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
        "--model": TEXT, "--n-gpu-layers": INT, "--cpu-moe": None, "--n-cpu-moe": INT,
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
    offload=st.none() | st.builds(Offload, layers=st.integers(1, 40)) | st.builds(Offload, st.just(True), st.integers(0, 40)),
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
    (content,) = launch_files("tensorrt-llm", LaunchPlan((FP8_KV,), "tensorrt-llm")).values()
    assert "'kv_cache_config: {dtype: fp8, free_gpu_memory_fraction: 0.90}' > " in content
    assert not any("KV cache" in note for note in serve_notes(FP8_KV, "tensorrt-llm"))
    assert any("KV cache in q8_0" in note for note in serve_notes(replace(FP8_KV, kv_dtype="q8_0"), "tensorrt-llm"))


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
