"""Checks emitted scripts with diffusers' own classes: `python diffusers_check.py FOLDER`, prints JSON.

Each script runs as it is, but weights are neither loaded nor run: the pipeline that it loads checks every argument and attribute
against the signatures of its class. With `--tiny FOLDER` it writes a small Stable Diffusion with random weights instead.
"""

from __future__ import annotations

import inspect
import json
import os
import runpy
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

diffusers, torch = import_module("diffusers"), import_module("torch")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PROMPTS = ("a", "b", "c")


class Loaded:
    """A pipeline without weights: its parts are those its class takes, and its call is checked."""

    def __init__(self, kind: Any, options: dict[str, Any]) -> None:
        self.kind, self.calls = kind, 0
        if not isinstance(options["torch_dtype"], torch.dtype):
            raise TypeError(f"no dtype: {options['torch_dtype']}")
        parts = set(inspect.signature(kind.__init__).parameters)
        config = options.pop("quantization_config", None)
        if config is not None and not set(config.quant_mapping) <= parts:
            raise AttributeError(f"{kind.__name__} has not all of {sorted(config.quant_mapping)}")
        for part in parts - {"self", "args", "kwargs"}:
            setattr(self, part, MagicMock(spec=torch.nn.Module()))
        extra = set(options) - {"torch_dtype"}
        if extra:
            raise TypeError(f"options of from_pretrained: {sorted(extra)}")

    def to(self, device: str) -> Loaded:
        torch.device(device)
        return self

    def enable_model_cpu_offload(self, **options: Any) -> None:
        inspect.signature(self.kind.enable_model_cpu_offload).bind(self, **options)

    def __call__(self, **options: Any) -> Any:
        unknown = set(options) - set(inspect.signature(self.kind.__call__).parameters)
        if unknown:
            raise TypeError(f"{self.kind.__name__} takes no {sorted(unknown)}")
        for name in ("height", "width"):
            if options[name] % 16:
                raise ValueError(f"{name} is {options[name]}")
        if len(options.get("negative_prompt", options["prompt"])) != len(options["prompt"]):
            raise ValueError("as many negative prompts as prompts")
        self.calls += len(options["prompt"])
        results = [MagicMock() for _ in options["prompt"]]
        return (
            MagicMock(spec=["frames"], frames=results) if "num_frames" in options else MagicMock(spec=["images"], images=results)
        )


def check(path: Path) -> int:
    """Run a script without weights; return how many prompts it results something of."""
    loaded: list[Loaded] = []

    def from_pretrained(cls: Any, /, model: str, **options: Any) -> Loaded:
        assert "/" in model, model
        loaded.append(Loaded(cls, options))
        return loaded[-1]

    with tempfile.TemporaryDirectory() as folder, patch("diffusers.utils.export_to_video"):
        os.chdir(folder)
        Path("prompts.txt").write_text("\n".join(PROMPTS) + "\n", encoding="utf-8")
        with patch.object(diffusers.DiffusionPipeline, "from_pretrained", classmethod(from_pretrained)):
            runpy.run_path(str(path), run_name="__main__")
        os.chdir("/")
    if loaded[0].calls != len(PROMPTS):
        raise ValueError(f"{loaded[0].calls} of {len(PROMPTS)} prompts")
    return loaded[0].calls


def write_tiny(folder: Path) -> None:
    """Write a small Stable Diffusion with random weights, whose prompts are letters."""
    transformers = import_module("transformers")
    tokens = [
        "<|startoftext|>",
        "<|endoftext|>",
        *(letter + end for letter in LETTERS for end in ("", "</w>")),
    ]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    tokenizer = transformers.CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77)
    text = transformers.CLIPTextConfig(
        vocab_size=len(tokens), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, bos_token_id=0,
        eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    blocks = {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8}
    diffusers.StableDiffusionPipeline(
        vae=diffusers.AutoencoderKL(
            down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2, latent_channels=4, **blocks
        ),
        text_encoder=transformers.CLIPTextModel(text),
        tokenizer=tokenizer,
        unet=diffusers.UNet2DConditionModel(
            sample_size=32,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=32,
            attention_head_dim=8,
            **blocks,
        ),
        scheduler=diffusers.DDIMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)


def main() -> None:
    """Check every script of a folder and print the results."""
    if sys.argv[1] == "--tiny":
        write_tiny(Path(sys.argv[2]))
        return
    results: dict[str, dict[str, Any]] = {}
    for path in sorted(Path(sys.argv[1]).glob("*.py")):
        try:
            results[path.name] = {"checked": check(path), "problem": None}
        except Exception as problem:
            results[path.name] = {"checked": 0, "problem": f"{type(problem).__name__}: {problem}"[:600]}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
