"""Models of the H200 rows, built as they were when measured: torchvision's, plain MLPs, and transformers' own classes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from whichgpu.estimate.trace import ModuleTrace, images, tokens, trace
from whichgpu.estimate.trace.framework import load_torch, load_torchvision

OPTIMIZERS = {"sgdm": "sgd-momentum", "adamw": "adamw"}
# hidden, layers, heads, key-value heads, width of the MLP, vocabulary, tied
LLAMA = {
    "qwen2.5-0.5b": (896, 24, 14, 2, 4864, 151936, True),
    "llama-3.2-1b": (2048, 16, 32, 8, 8192, 128256, True),
    "llama-3.2-3b": (3072, 28, 24, 8, 8192, 128256, True),
    "mistral-7b": (4096, 32, 32, 8, 14336, 32000, False),
    "llama-3.1-8b": (4096, 32, 32, 8, 14336, 128256, False),
}
GPT2 = {"gpt2": (768, 12, 12), "gpt2-medium": (1024, 24, 16), "gpt2-large": (1280, 36, 20), "gpt2-xl": (1600, 48, 25)}
BERT = {"bert-base": (768, 12, 12), "bert-large": (1024, 24, 16)}
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def trace_row(row: Mapping[str, Any]) -> ModuleTrace:
    """Trace one measured training step."""
    name, batch = row["model"], row["batch"]
    options = {"precision": row["precision"], "optimizer": OPTIMIZERS[row["opt"]]}
    if name.startswith("mlp-"):
        units = [int(part) for part in name[4:].split("x")]
        torch = load_torch()
        return trace(lambda: mlp(units), lambda: torch.empty(batch, units[0]), **options)
    if row["seq"] is None:
        models = load_torchvision().models
        size = 299 if name == "inception_v3" else 224
        return trace(lambda: models.get_model(name), images(batch, size), channels_last=True, **options)
    load_torchvision()  # transformers imports it
    return trace(lambda: language_model(row), tokens(batch, row["seq"], labels=True), **options)


def mlp(units: list[int]) -> Any:
    """Linear layers with ReLU between them."""
    nn = load_torch().nn
    layers: list[Any] = []
    for wide, narrow in pairwise(units):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def language_model(row: Mapping[str, Any]) -> Any:
    """A transformers class by its sizes, with checkpointing or adapters as the row says."""
    model = _built(row["model"])
    model.config.use_cache = False
    if row.get("ckpt"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if row.get("lora"):
        _adapt(model, row["lora"])
        if row.get("ckpt"):
            model.enable_input_require_grads()
    return model


def _built(name: str) -> Any:
    import transformers  # type: ignore[import-not-found, unused-ignore]

    if name in LLAMA:
        hidden, layers, heads, kv, ffn, vocab, tied = LLAMA[name]
        config = transformers.LlamaConfig(
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv,
            intermediate_size=ffn,
            vocab_size=vocab,
            tie_word_embeddings=tied,
            max_position_embeddings=8192,
            attn_implementation="sdpa",
        )
        return transformers.LlamaForCausalLM(config)
    if name in GPT2:
        hidden, layers, heads = GPT2[name]
        config = transformers.GPT2Config(n_embd=hidden, n_layer=layers, n_head=heads, attn_implementation="sdpa")
        return transformers.GPT2LMHeadModel(config)
    hidden, layers, heads = BERT[name]
    config = transformers.BertConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        attn_implementation="sdpa",
    )
    return transformers.BertForMaskedLM(config)


def _adapt(model: Any, rank: int) -> None:
    """Add low-rank adapters to seven projections (arXiv 2106.09685) and freeze everything else."""
    nn = load_torch().nn

    class Adapted(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base = base
            self.down = nn.Linear(base.in_features, rank, bias=False)
            self.up = nn.Linear(rank, base.out_features, bias=False)

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.up(self.down(x)) * 2.0

    model.requires_grad_(False)
    for module in list(model.modules()):
        for name in PROJECTIONS:
            if isinstance(getattr(module, name, None), nn.Linear):
                setattr(module, name, Adapted(getattr(module, name)))
