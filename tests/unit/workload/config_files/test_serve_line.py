"""Command lines that start servers, read back: the inverse of what --emit writes, and lines as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.launch.serve_command import serve_words, shell_line
from whichgpu.workload.config_files.serve_line import command_lines, serve_workload_of
from whichgpu.workload.decoding.speculative import METHODS, Speculative

sizes = st.sampled_from((1, 2, 4, 8))
limits = st.none() | st.integers(1, 100_000)
DRAFT = "Qwen/Qwen3-0.6B"


def speculative_fields(method: str | None, tokens: int) -> dict[str, object] | None:
    return {"method": method, **({"draft": DRAFT} if method == "draft" else {}), "tokens": tokens} if method else None


@given(
    engine=st.sampled_from(("vllm", "sglang")), tp=sizes, pp=sizes, dp=sizes, is_expert_parallel=st.booleans(),
    dtype=st.sampled_from(("bf16", "fp16", "fp32", "fp8", "int8", "int4", "nvfp4")),
    kv=st.sampled_from((None, "fp8", "bf16")), sequences=limits,
    context=limits, chunk=limits, share=st.none() | st.integers(1, 100).map(lambda share: share / 100),
    nodes=st.sampled_from((1, 2)), method=st.sampled_from((None, *METHODS)), tokens=st.integers(1, 64),
)  # fmt: skip
def test_a_line_read_back_gives_the_workload_it_was_written_from(
    engine: str, tp: int, pp: int, dp: int, is_expert_parallel: bool, dtype: str, kv: str | None, sequences: int | None,
    context: int | None, chunk: int | None, share: float | None, nodes: int, method: str | None, tokens: int,
) -> None:  # fmt: skip
    ep = tp * dp if is_expert_parallel else 1
    options = LaunchOptions(
        "g", "Qwen/Qwen3-30B-A3B", 1, "h100-sxm", tp * pp * dp, tp, sequences, context, chunk, dtype, share, "", "", "", False,
        pipeline_parallel_size=pp, data_parallel_size=dp, expert_parallel_size=ep, kv_dtype=kv, nodes=nodes,
        speculative=Speculative(method, DRAFT if method == "draft" else "", tokens) if method else None,
    )  # fmt: skip
    [words] = command_lines(shell_line(serve_words(options, engine, 8000)))
    read = serve_workload_of(words)
    assert read is not None
    layout = {name: size for name, size in {"tp": tp, "pp": pp, "dp": dp, "ep": ep}.items() if size > 1}
    written_kv = kv if kv != dtype and kv in engine_record(engine).serve.kv_precision else None
    expected = {"task": "serve", "engine": engine, "model": "Qwen/Qwen3-30B-A3B", "precision": dtype, "gpus": tp * pp * dp}
    expected |= {"kv_precision": written_kv, "parallel": layout or None, "nodes": nodes if nodes > 1 else None}
    expected["speculative"] = speculative_fields(method, tokens)
    assert read.fields == {name: value for name, value in expected.items() if value is not None}
    assert (read.max_sequences, read.context, read.max_batched_tokens, read.memory_share) == (sequences, context, chunk, share)
    assert set(read.unread) <= {"--node-rank", "--master-addr", "--dist-init-addr"}


@pytest.mark.parametrize(
    ("line", "fields", "context"),
    [
        (
            "CUDA_VISIBLE_DEVICES=0,1 python3 -m vllm.entrypoints.openai.api_server --model a/b -tp 2 --dtype half "
            "--max-model-len 16k",
            {"model": "a/b", "engine": "vllm", "gpus": 2, "parallel": {"tp": 2}, "precision": "fp16"},
            16_000,
        ),
        (
            "vllm serve a/b --tensor_parallel_size 2 --max_model_len=131072",
            {"model": "a/b", "engine": "vllm", "gpus": 2, "parallel": {"tp": 2}},
            131_072,
        ),
        (
            "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.11.0 --model a/b --quantization awq --trust-remote-code",
            {"model": "a/b", "engine": "vllm", "gpus": 1, "precision": "int4"},
            None,
        ),
        (
            "/usr/bin/sglang serve --model-path a/b --tp-size 8 --dp 2 --enable-dp-attention --kv-cache-dtype fp8_e5m2",
            {"model": "a/b", "engine": "sglang", "gpus": 8, "parallel": {"tp": 4, "dp": 2, "ep": 8}, "kv_precision": "fp8"},
            None,
        ),
        (
            "sglang serve --model-path a/b --tp-size 8 --attn-dp-size 8 --ep 4",
            {"model": "a/b", "engine": "sglang", "gpus": 8, "parallel": {"dp": 8, "ep": 8}},
            None,
        ),
        (
            "llama-server -hf a/Llama-3.2-3B-Instruct-GGUF:Q4_K_M -c 8192 -ngl 99",
            {"model": "Llama-3.2-3B-Instruct", "engine": "llama.cpp", "gpus": 1, "precision": "q4_k_m"},
            8192,
        ),
        (
            "OLLAMA_CONTEXT_LENGTH=8192 ollama run llama3.1:8b-instruct-q8_0",
            {"model": "llama3.1-8b-instruct", "engine": "llama.cpp", "gpus": 1, "precision": "q8_0"},
            8192,
        ),
        ("ollama run qwen3", {"model": "qwen3-8b", "engine": "llama.cpp", "gpus": 1, "precision": "q4_k_m"}, None),
        ("ollama run gpt-oss:20b", {"model": "gpt-oss-20b", "engine": "llama.cpp", "gpus": 1}, None),
        (
            "llama-server -m b-Q8_0.gguf -ncmoe 12 -c 4096",
            {"model": "b", "engine": "llama.cpp", "gpus": 1, "precision": "q8_0", "offload": {"experts": 12}},
            4096,
        ),
        (
            "llama-server -m b-Q8_0.gguf -cmoe -c 4096",
            {"model": "b", "engine": "llama.cpp", "gpus": 1, "precision": "q8_0", "offload": {"experts": "host"}},
            4096,
        ),
        (
            "trtllm-serve a/b --tp_size 2 --max_batch_size 64 --max_seq_len 4096",
            {"model": "a/b", "engine": "tensorrt-llm", "gpus": 2, "parallel": {"tp": 2}},
            4096,
        ),
        (
            "./build/bin/llama-server -m models/Llama-3.1-8B-Instruct-Q4_K_M.gguf -c 32768 -np 4 -ngl 99",
            {"model": "Llama-3.1-8B-Instruct", "engine": "llama.cpp", "gpus": 1, "precision": "q4_k_m"},
            8192,
        ),
        (
            """vllm serve a/b --speculative-config '{"model": "c/d", "num_speculative_tokens": 5}'""",
            {"model": "a/b", "engine": "vllm", "gpus": 1, "speculative": {"method": "draft", "draft": "c/d", "tokens": 5}},
            None,
        ),
        (
            "vllm serve a/b --spec-method deepseek_mtp --spec-tokens 2",
            {"model": "a/b", "engine": "vllm", "gpus": 1, "speculative": {"method": "mtp", "tokens": 2}},
            None,
        ),
        (
            "sglang serve --model-path a/b --speculative-algorithm EAGLE --speculative-num-steps 3",
            {"model": "a/b", "engine": "sglang", "gpus": 1, "speculative": {"method": "mtp", "tokens": 3}},
            None,
        ),
        (
            "llama-server -m b-Q8_0.gguf -md /models/d-Q4_0.gguf --draft-max 8",
            {"model": "b", "engine": "llama.cpp", "gpus": 1, "precision": "q8_0",
             "speculative": {"method": "draft", "draft": "d", "tokens": 8}},
            None,
        ),
        (
            """vllm serve a/b --speculative-config '{"method": "suffix"}'""",
            {"model": "a/b", "engine": "vllm", "gpus": 1},
            None,
        ),
    ],
)  # fmt: skip
def test_lines_as_people_write_them(line: str, fields: dict[str, object], context: int | None) -> None:
    [words] = command_lines(line)
    read = serve_workload_of(words)
    assert read is not None
    assert read.fields == {"task": "serve", **fields}
    assert read.context == context


@pytest.mark.parametrize("line", ["echo vllm", "vllm bench serve --model a/b", "python train.py", "nohup", "docker run nginx"])
def test_other_commands_start_no_server(line: str) -> None:
    assert all(serve_workload_of(words) is None for words in command_lines(line))


def test_unusable_values_and_unknown_options_are_listed_as_not_read() -> None:
    [words] = command_lines(
        "vllm serve a/b --max-model-len many --gpu-memory-utilization 9 --dtype odd --lora-modules x=y --spec-method suffix"
    )
    read = serve_workload_of(words)
    assert read is not None
    assert set(read.unread) == {
        "--max-model-len",
        "--gpu-memory-utilization",
        "--dtype",
        "--lora-modules",
        "--speculative-config.method",
    }
    assert read.context is None


@pytest.mark.parametrize("method", METHODS)
def test_a_line_of_llama_cpp_gives_its_speculative_decoding(method: str) -> None:
    options = LaunchOptions(
        "g", "Qwen/Qwen3-8B", 1, "h100-sxm", 1, 1, None, None, None, "q4_k_m", None, "", "", "", False,
        speculative=Speculative(method, DRAFT if method == "draft" else "", 6),
    )  # fmt: skip
    read = serve_workload_of(serve_words(options, "llama.cpp"))
    assert read is not None
    expected = {"method": method, "tokens": 6} | ({"draft": "Qwen3-0.6B"} if method == "draft" else {})
    assert read.fields["speculative"] == expected
    assert not read.unread


@given(st.lists(st.text(max_size=20), max_size=12))
def test_no_words_after_a_program_are_a_traceback(words: list[str]) -> None:
    assert serve_workload_of(["vllm", "serve", *words]) is not None


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve a/b --max-model-len=-5 --tensor-parallel-size=0 --gpu-memory-utilization=nan",
        "vllm serve a/b --max-model-len -5 --tensor-parallel-size -1 --gpu-memory-utilization 1.7",
        "vllm serve a/b --max-model-len 99999999999 --tensor-parallel-size 0 --gpu-memory-utilization 0",
    ],
)
def test_numbers_with_which_no_engine_starts_are_invalid(line: str) -> None:
    [words] = command_lines(line)
    read = serve_workload_of(words)
    assert read is not None
    assert {one.name for one in read.invalid} == {"--max-model-len", "--tensor-parallel-size", "--gpu-memory-utilization"}


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve a/b --max-model-len=-1 --tensor-parallel-size $GPUS --gpu-memory-utilization 0.9",
        "sglang serve --model-path a/b --chunked-prefill-size -1 --context-length 8k",
        "llama-server -m b-Q8_0.gguf -c 0 -np -1",
    ],
)
def test_numbers_by_which_an_engine_chooses_itself_are_valid(line: str) -> None:
    [words] = command_lines(line)
    read = serve_workload_of(words)
    assert read is not None
    assert read.invalid == ()
