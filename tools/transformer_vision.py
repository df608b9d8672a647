"""Detectors and segmenters of the transformers library for the tracer (DETR, SAM, SegFormer), without matching of boxes.

Sizes are those of the published configs (`config.json` of each repository).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whichgpu.estimate.trace.framework import load_torch, load_torchvision

SIZES: dict[str, tuple[int, ...]] = {
    "detr_resnet50": (800,),
    "detr_resnet101": (800,),
    "sam_vit_b": (1024,),
    "sam_vit_l": (1024,),
    "sam_vit_h": (1024,),
    **{f"segformer_b{number}": (512,) for number in (0, 1, 2, 5)},
}
SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    name: lambda side: (3, side, side * 4 // 3)
    for name in ("detr_resnet50", "detr_resnet101")  # 800 x 1066: COCO's pictures
}
SAM_TOWERS = {"b": (768, 12, 12, (2, 5, 8, 11)), "l": (1024, 24, 16, (5, 11, 17, 23)), "h": (1280, 32, 16, (7, 15, 23, 31))}
SEGFORMERS = {  # Widths and depths of the four stages, and the decoder's width.
    "0": ((32, 64, 160, 256), (2, 2, 2, 2), 256),
    "1": ((64, 128, 320, 512), (2, 2, 2, 2), 256),
    "2": ((64, 128, 320, 512), (3, 4, 6, 3), 768),
    "5": ((64, 128, 320, 512), (3, 6, 40, 3), 768),
}


def network(name: str) -> Any:
    """Build the network of that name without weights."""
    load_torchvision()
    kind, _, size = name.rpartition("_")
    if kind == "detr":
        return _detr(size)
    return _sam(size) if kind == "sam_vit" else _segformer(size.removeprefix("b"))


def _wrapped(whole: Any, call: Callable[[Any, Any], Any]) -> Any:
    class Network(load_torch().nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.whole = whole

        def forward(self, pictures: Any) -> Any:
            return call(self.whole, pictures)

    return Network()


def _detr(depth: str) -> Any:
    """DETR, arXiv 2005.12872: a ResNet with frozen batch normalisation, six layers of encoder and decoder, 100 queries."""
    from torchvision import models
    from torchvision.ops import FrozenBatchNorm2d

    torch = load_torch()
    nn = torch.nn

    class Detr(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            whole = getattr(models, depth)(norm_layer=FrozenBatchNorm2d)
            self.stem = nn.Sequential(whole.conv1, whole.bn1, whole.relu, whole.maxpool)
            self.stages = nn.Sequential(whole.layer1, whole.layer2, whole.layer3, whole.layer4)
            for part in (self.stem, self.stages[0]):  # The reference trains from the second stage on.
                part.requires_grad_(False)
            self.narrowed = nn.Conv2d(2048, 256, 1)
            self.encoder = nn.ModuleList(_detr_layer(False) for _ in range(6))
            self.decoder = nn.ModuleList(_detr_layer(True) for _ in range(6))
            self.norm, self.queries = nn.LayerNorm(256), nn.Embedding(100, 256)
            self.scores = nn.Linear(256, 92)
            self.boxes = nn.Sequential(
                nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4), nn.Sigmoid()
            )

        def forward(self, pictures: Any) -> Any:
            x = self.narrowed(self.stages(self.stem(pictures))).flatten(2).transpose(1, 2)
            positions = torch.zeros_like(x)
            for layer in self.encoder:
                x = layer(x, positions, None, None)
            queries = self.queries.weight.unsqueeze(0).expand(x.shape[0], -1, -1)
            answers = torch.zeros_like(queries)
            outputs = []
            for layer in self.decoder:
                answers = layer(answers, queries, x, positions)
                outputs.append(answers)
            used = [self.norm(answers) for answers in (outputs if self.training else outputs[-1:])]
            return [part for answers in used for part in (self.boxes(answers), self.scores(answers).transpose(1, 2))]

    return Detr()


def _detr_layer(crossing: bool) -> Any:
    """One layer of the encoder, or of the decoder, which attends to the picture too; queries and keys get positions."""
    nn = load_torch().nn
    functional = nn.functional

    class Attention(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.last = (nn.Linear(256, 256) for _ in range(4))

        def forward(self, queries: Any, keys: Any, values: Any) -> Any:
            parts = [
                layer(x).view(x.shape[0], x.shape[1], 8, 32).transpose(1, 2)
                for layer, x in ((self.q, queries), (self.k, keys), (self.v, values))
            ]
            mixed = functional.scaled_dot_product_attention(*parts, dropout_p=0.1 if self.training else 0.0)
            return self.last(mixed.transpose(1, 2).reshape(queries.shape))

    class Layer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.own, self.cross = Attention(), Attention() if crossing else None
            self.wide, self.narrow, self.dropout = nn.Linear(256, 2048), nn.Linear(2048, 256), nn.Dropout(0.1)
            self.norms = nn.ModuleList(nn.LayerNorm(256) for _ in range(3 if crossing else 2))

        def forward(self, x: Any, positions: Any, memory: Any, memory_positions: Any) -> Any:
            placed = x + positions
            x = self.norms[0](x + self.dropout(self.own(placed, placed, x)))
            if self.cross is not None:
                x = self.norms[2](x + self.dropout(self.cross(x + positions, memory + memory_positions, memory)))
            return self.norms[1](x + self.dropout(self.narrow(self.dropout(functional.relu(self.wide(x))))))

    return Layer()


def _sam(size: str) -> Any:
    """Segment Anything, arXiv 2304.02643, with one point as prompt: three masks of 256 pixels a picture."""
    from transformers import SamConfig, SamModel, SamVisionConfig

    torch = load_torch()
    hidden, layers, heads, everywhere = SAM_TOWERS[size]
    tower = SamVisionConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        global_attn_indexes=list(everywhere),
        mlp_dim=4 * hidden,
    )
    whole = SamModel(SamConfig(vision_config=tower))

    def call(sam: Any, pictures: Any) -> Any:
        points = pictures.new_zeros(pictures.shape[0], 1, 1, 2)
        labels = torch.ones(pictures.shape[0], 1, 1, dtype=torch.int64, device=pictures.device)
        return [sam(pixel_values=pictures, input_points=points, input_labels=labels).pred_masks.flatten(1, 2)]

    return _wrapped(whole, call)


def _segformer(size: str) -> Any:
    """SegFormer, arXiv 2105.15203, for the 150 classes of ADE20K."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    widths, depths, decoder = SEGFORMERS[size]
    config = SegformerConfig(hidden_sizes=list(widths), depths=list(depths), decoder_hidden_size=decoder, num_labels=150)
    return _wrapped(SegformerForSemanticSegmentation(config), lambda whole, pictures: [whole(pixel_values=pictures).logits])
