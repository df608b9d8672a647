"""Segmentation networks of benchmarks, from their papers; most take volumes or grey images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from whichgpu.estimate.trace.framework import load_torch

SIZES: dict[str, tuple[int, ...]] = {
    "unet": (256,),
    "unet_medical": (572,),
    "unet_industrial": (512,),
    "nnunet_2d": (192,),
    "nnunet_3d": (128,),
    "unet3d_kits19": (128,),
    "vnet": (32,),
}
SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "unet_medical": lambda side: (1, side, side),
    "unet_industrial": lambda side: (1, side, side),
    "nnunet_2d": lambda side: (4, side, side * 5 // 6),
    "nnunet_3d": lambda side: (4, side, side, side),
    "unet3d_kits19": lambda side: (1, side, side, side),
    "vnet": lambda side: (1, side, side, side),
}


def network(name: str) -> Any:
    """Build the network of that name without weights."""
    return NETWORKS[name]()


def unet(inputs: int = 3, base: int = 64, classes: int = 2, *, modern: bool = True) -> Any:
    """U-Net of arXiv 1505.04597: with padding and batch normalisation as used today, or without as in the paper.

    The paper's takes 572 grey pixels and labels the middle 388; upsampling is 3x3 as in NVIDIA's medical example.
    """
    nn = load_torch().nn

    def upward(inputs: int, outputs: int) -> Any:
        if modern:
            return nn.ConvTranspose2d(inputs, outputs, 2, stride=2)
        dropped = [nn.Dropout(0.5)] if inputs == widths[-1] else []
        return nn.Sequential(*dropped, nn.ConvTranspose2d(inputs, outputs, 3, 2, 1, output_padding=1), nn.ReLU(inplace=True))

    def double(inputs: int, outputs: int) -> Any:
        layers = []
        for width in (inputs, outputs):
            norm = [nn.BatchNorm2d(outputs)] if modern else []
            layers += [nn.Conv2d(width, outputs, 3, padding=int(modern), bias=not modern), *norm, nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    widths = [base * 2**level for level in range(5)]
    pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
    return u_shaped(
        down=[double(i, o) for i, o in zip([inputs, *widths], widths, strict=False)],
        up=[upward(i, o) for i, o in pairs],
        merge=[double(2 * o, o) for _, o in pairs],
        head=nn.Conv2d(base, classes, 1),
        pool=2,
    )


def unet_industrial() -> Any:
    """The small U-Net of NVIDIA's industrial example: 32 to 256 channels; the last layer of each upward block is half as wide."""
    nn = load_torch().nn
    down, widest = (32, 32, 64, 128), 256

    def layers(*widths: int) -> list[Any]:
        modules = []
        for inputs, outputs in pairwise(widths):
            modules += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
        return modules

    def upward(inputs: int, outputs: int) -> Any:
        return nn.Sequential(nn.ConvTranspose2d(inputs, outputs, 2, stride=2), nn.ReLU(inplace=True))

    return u_shaped(
        down=[
            *(nn.Sequential(*layers(i, o, o)) for i, o in zip((1, *down), down, strict=False)),
            nn.Sequential(*layers(down[-1], widest, widest)),
        ],
        up=[upward(widest, 128), upward(64, 64), upward(32, 32), upward(16, 16)],
        merge=[nn.Sequential(*layers(*w)) for w in ((256, 128, 64), (128, 64, 32), (64, 32, 16), (48, 32, 32))],
        head=nn.Conv2d(32, 1, 1),
        pool=2,
    )


def strided_unet(inputs: int, classes: int, widths: Sequence[int], *, dims: int, leaky: bool) -> Any:
    """nnU-Net, arXiv 1809.10486: strided convolutions on the way down, instance normalisation. MLPerf's 3D U-Net is one too."""
    nn = load_torch().nn
    convolution, upward, norm = {
        2: (nn.Conv2d, nn.ConvTranspose2d, nn.InstanceNorm2d),
        3: (nn.Conv3d, nn.ConvTranspose3d, nn.InstanceNorm3d),
    }[dims]

    def double(inputs: int, outputs: int, stride: int = 1) -> Any:
        layers = []
        for width, step in ((inputs, stride), (outputs, 1)):
            act = nn.LeakyReLU(0.01, inplace=True) if leaky else nn.ReLU(inplace=True)
            layers += [convolution(width, outputs, 3, step, 1, bias=False), norm(outputs, affine=True), act]
        return nn.Sequential(*layers)

    pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
    return u_shaped(
        down=[double(inputs, widths[0]), *(double(i, o, 2) for i, o in pairwise(widths))],
        up=[upward(i, o, 2, stride=2) for i, o in pairs],
        merge=[double(2 * o, o) for _, o in pairs],
        head=convolution(widths[0], classes, 1),
    )


def u_shaped(down: list[Any], up: list[Any], merge: list[Any], head: Any, pool: int = 0) -> Any:
    """U-shaped network: blocks down with optional pooling, blocks up with cropped skip connections."""
    torch = load_torch()
    nn = torch.nn

    class Unet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up, self.merge = nn.ModuleList(down), nn.ModuleList(up), nn.ModuleList(merge)
            self.head = head

        def forward(self, x: Any) -> Any:
            skips = []
            for level, block in enumerate(self.down):
                x = block(nn.functional.max_pool2d(x, pool) if level and pool else x)
                skips.append(x)
            skips.pop()
            for upward, merged in zip(self.up, self.merge, strict=True):
                x = upward(x)
                x = merged(torch.cat([cropped(skips.pop(), x.shape[2:]), x], 1))
            return self.head(x)

    return Unet()


def cropped(tensor: Any, sides: Sequence[int]) -> Any:
    """Centre crop of a tensor."""
    for dim, side in enumerate(sides, 2):
        margin = tensor.shape[dim] - side
        tensor = tensor.narrow(dim, margin // 2, side) if margin else tensor
    return tensor


def vnet(base: int = 16, classes: int = 3, depth: int = 3) -> Any:
    """V-Net, arXiv 1606.04797, in the sizes of NVIDIA's example: three levels, 3x3x3 filters, batch normalisation."""
    torch = load_torch()
    nn = torch.nn

    def layer(convolution: Any, outputs: int) -> Any:
        return nn.Sequential(convolution, nn.BatchNorm3d(outputs), nn.ReLU(inplace=True))

    def residual(width: int) -> Any:
        return nn.Sequential(*(layer(nn.Conv3d(width, width, 3, padding=1), width) for _ in range(depth)))

    class Vnet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            widths = [base * 2**level for level in range(4)]
            self.first = layer(nn.Conv3d(1, base, 3, padding=1), base)
            self.shrink = nn.ModuleList(layer(nn.Conv3d(w, 2 * w, 2, stride=2), 2 * w) for w in widths[:3])
            self.down = nn.ModuleList(residual(w) for w in widths[1:])
            # The upward blocks keep the width of their concatenated inputs.
            self.grow = nn.ModuleList(
                layer(nn.ConvTranspose3d(i, o, 2, stride=2), o)
                for i, o in ((widths[3], widths[2]), (2 * widths[2], widths[1]), (2 * widths[1], widths[0]))
            )
            self.up = nn.ModuleList(residual(2 * w) for w in (widths[2], widths[1]))
            self.head = nn.Conv3d(base, classes, 3, padding=1)

        def forward(self, volume: Any) -> Any:
            x = self.first(volume) + volume
            outputs = [x]
            for shrink, block in zip(self.shrink, self.down, strict=True):
                x = shrink(x)
                x = block(x) + x
                outputs.append(x)
            outputs.pop()
            for grow, block in zip(self.grow, self.up, strict=False):
                x = torch.cat([grow(x), outputs.pop()], 1)
                x = block(x) + x
            return self.head(self.grow[-1](x))

    return Vnet()


NETWORKS: dict[str, Callable[[], Any]] = {
    "unet": unet,
    "unet_medical": lambda: unet(1, modern=False),
    "unet_industrial": unet_industrial,
    "nnunet_2d": lambda: strided_unet(4, 4, (32, 64, 128, 256, 512, 512), dims=2, leaky=True),
    "nnunet_3d": lambda: strided_unet(4, 4, (32, 64, 128, 256, 320, 320), dims=3, leaky=True),
    "unet3d_kits19": lambda: strided_unet(1, 3, (32, 64, 128, 256, 320, 320), dims=3, leaky=False),
    "vnet": vnet,
}
