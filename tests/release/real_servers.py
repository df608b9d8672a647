"""Starts a real server of a tiny model with random weights on loopback: `python real_servers.py SERVER FOLDER PORT`.

Runs in an environment with xllamacpp (the server of llama.cpp in a wheel) or transformers; the model and its tokenizer are
made for the purpose and written to FOLDER. It serves until it is ended.
"""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

MODEL = "tests/tiny-llama"
VOCABULARY = 32_000
LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, CONTEXT = 2, 128, 4, 2, 256, 8192
WORDS = ("time", "house", "water", "light", "stone", "river", "table", "green", "paper", "music")  # Known whole.


def vocabulary() -> list[str]:
    """Return the tokens: specials, words with and without a space before them, and fillers."""
    words = [spelling for word in WORDS for spelling in (word, f"\u2581{word}")]
    tokens = ["<unk>", "<s>", "</s>", *words]
    return [*tokens, *(f"\u2581filler{number}" for number in range(VOCABULARY - len(tokens)))]


def llama_cpp(folder: Path, port: int) -> None:
    """Serve a GGUF file with the server of llama.cpp."""
    path = folder / "tiny.gguf"
    write_gguf(path)
    module = import_module("xllamacpp")
    params = module.CommonParams()
    params.model.path = str(path)
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_parallel, params.n_ctx = 4, 4 * 2048
    params.cpuparams.n_threads = 2
    server = module.Server(params)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(1)


def write_gguf(path: Path) -> None:
    """Write a Llama of random weights with a SentencePiece vocabulary."""
    gguf, numpy = import_module("gguf"), import_module("numpy")
    draw = numpy.random.default_rng(0)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("Tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(VOCABULARY)
    tokens = vocabulary()
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0 if place < 3 else -float(place) for place in range(len(tokens))])
    writer.add_token_types([2, 3, 3, *(1 for _ in tokens[3:])])  # unknown, control, normal
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    kv = HIDDEN * KV_HEADS // HEADS
    shapes = {"token_embd": (VOCABULARY, HIDDEN), "output": (VOCABULARY, HIDDEN), "output_norm": (HIDDEN,)}
    for layer in range(LAYERS):
        parts = {"attn_q": (HIDDEN, HIDDEN), "attn_k": (kv, HIDDEN), "attn_v": (kv, HIDDEN), "attn_output": (HIDDEN, HIDDEN)}
        parts |= {"ffn_gate": (FFN, HIDDEN), "ffn_up": (FFN, HIDDEN), "ffn_down": (HIDDEN, FFN)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in parts.items()}
        shapes |= {f"blk.{layer}.attn_norm": (HIDDEN,), f"blk.{layer}.ffn_norm": (HIDDEN,)}
    for name, shape in shapes.items():
        is_norm = len(shape) == 1
        data = numpy.ones(shape, numpy.float32) if is_norm else draw.normal(0, 0.05, shape).astype(numpy.float32)
        writer.add_tensor(f"{name}.weight", data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def transformers(folder: Path, port: int) -> None:
    """Serve a checkpoint in a Hugging Face cache of its own with `transformers serve`, which lists what lies in the cache."""
    os.environ |= {"HF_HUB_CACHE": str(folder), "HF_HUB_OFFLINE": "1"}
    repository = folder / f"models--{MODEL.replace('/', '--')}"
    revision = "0" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    write_checkpoint(repository / "snapshots" / revision)
    sys.argv = ["transformers", "serve", "--host=127.0.0.1", f"--port={port}", "--device=cpu"]
    import_module("transformers.cli.transformers").main()


def write_checkpoint(folder: Path) -> None:
    """Write a Llama of random weights with a word-level tokenizer and a chat template."""
    library, tokenizers = import_module("transformers"), import_module("tokenizers")
    tokens = {token.replace("\u2581", "_"): place for place, token in enumerate(vocabulary())}
    words: Any = tokenizers.Tokenizer(tokenizers.models.WordLevel(tokens, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = library.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>", model_max_length=CONTEXT
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    tokenizer.save_pretrained(folder)
    config = library.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, max_position_embeddings=CONTEXT, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    library.LlamaForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    {"llama.cpp": llama_cpp, "transformers": transformers}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
