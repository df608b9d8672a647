"""GPU names within the lines that other tools print: `lspci`, `nvidia-smi -L`, `rocm-smi`, `lshw`, `system_profiler`."""

from __future__ import annotations

import re

_BRACKETS = re.compile(r"\[([^\[\]]+)\]")
_LISTED_GPU = re.compile(r"^GPU\s*\[?\d+\]?\s*:\s*", re.IGNORECASE)  # nvidia-smi -L, rocm-smi
_UUID = re.compile(r"\(UUID:[^)]*\)", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_MODEL = re.compile(r"(?:\D*?\s)?\S*\d\S*")  # a name up to its first word with a digit: GeForce RTX 4070
_MARKS = re.compile(r"\((?:r|tm|c|rev \w+)\)|[®™©]", re.IGNORECASE)


def names_in_line(line: str) -> tuple[tuple[str, ...], ...]:
    """Return the names a printed line may mean, best guess first; each is a tuple of the products that share the device.

    >>> names_in_line("01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)")[0]
    ('GeForce RTX 4090',)
    >>> names_in_line("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]")[0]
    ('Radeon RX 7900 XT', '7900 XTX', '7900M')
    >>> names_in_line("GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5fd4)")[0]
    ('NVIDIA A100-SXM4-40GB',)
    """
    bare = " ".join(_MARKS.sub(" ", _UUID.sub(" ", _LISTED_GPU.sub("", line.strip()))).split())
    guesses = [_products(text) for text in reversed(_BRACKETS.findall(bare))]  # lspci puts the maker's brackets first.
    guesses.append((bare,))
    if ": " in bare:
        guesses.append((bare.rpartition(": ")[2],))
    return tuple(guess for guess in guesses if guess != (line.strip(),))


def _products(text: str) -> tuple[str, ...]:
    """Return the products in brackets; one without a number takes the first one's: `RTX 4070 Max-Q / Mobile`."""
    first, *others = [part.strip() for part in text.split("/") if part.strip()] or [""]
    model = _MODEL.match(first)
    return (first, *(other if _DIGIT.search(other) or not model else f"{model[0]} {other}" for other in others))
