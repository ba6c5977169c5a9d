"""What follows from a GPU's name: its memory, its bandwidth, and the single-stream speed these allow."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from itertools import chain
from pkgutil import get_data
from types import MappingProxyType
from typing import Any

import yaml

GIB = 2**30

# Words that tell makers, brands and memory types, not parts.
_NOISE = frozenset(
    {"nvidia", "amd", "intel", "tesla", "geforce", "quadro", "instinct", "radeon", "habana", "dgx", "hgx"}
    | {"gpu", "gpus", "tensor", "core", "accelerator", "graphics", "card", "generation", "edition", "the"}
    | {"superchip", "oam", "hbm2", "hbm2e", "hbm3", "hbm3e", "gddr6", "gddr6x", "gddr7"}
)
_COUNT = re.compile(r"\d{1,2}x|x\d{1,2}")  # "8x H100"
_MEMORY = re.compile(r"(\d{1,4})(?:g|gb|gib)")
_GLUED = re.compile(r"(rtx|gtx|gaudi)(\d.*)|([a-z]{1,2}\d+[a-z]?)(sxm\d?|pcie|nvl|ada)")
_FORM = re.compile(r"sxm\d?")


class MemoryClass(StrEnum):
    """The classes of GPU by which vLLM chooses its defaults."""

    UNDER_70_GIB = "under_70_gib"
    FROM_70_GIB = "from_70_gib"
    FROM_160_GIB = "from_160_gib"
    A100 = "a100"
    """An A100 of 80 GB, which most versions put into the smaller class."""
    GB10 = "gb10"
    """A GB10, whose memory is shared with its CPU; late versions put it into the smaller class."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU's figures and the vendor's document that states them.

    `operations_per_second` on dense 16-bit matrices; None where the table does not hold it.
    """

    name: str
    memory_bytes: int
    bandwidth_bytes_per_second: float
    source: str
    spellings: tuple[str, ...] = ()
    operations_per_second: float | None = None

    @property
    def memory_class(self) -> MemoryClass:
        """The class of defaults vLLM gives it."""
        if self.name == "GB10":
            return MemoryClass.GB10
        if self.memory_bytes < 70 * GIB:
            return MemoryClass.UNDER_70_GIB
        if self.name.startswith("A100"):
            return MemoryClass.A100
        return MemoryClass.FROM_70_GIB if self.memory_bytes < 160 * GIB else MemoryClass.FROM_160_GIB


@cache
def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU of this package's gpus.yaml, in its order; read when rules are loaded, not by a step."""
    return tuple(_gpu(row) for row in yaml.safe_load(get_data(__package__, "gpus.yaml") or b"")["gpus"])


def find_gpu(name: str) -> Gpu | None:
    """The GPU meant by a name as people, drivers and clouds write it.

    None for a name that is not in the table and for one that leaves open which of two parts is meant.
    """
    return _by_words().get(_words(name))


def similar_gpus(name: str) -> tuple[str, ...]:
    """At most three names of the table that may have been meant, for a hint."""
    words = _words(name)
    named = [gpu.name for gpu in all_gpus() if words and words <= _words(gpu.name)]
    spelled = {" ".join(sorted(words)): gpu.name for words, gpu in _by_words().items()}
    close = get_close_matches(" ".join(sorted(words))[:60], spelled, n=6)
    return tuple(dict.fromkeys(chain(named, (spelled[text] for text in close))))[:3]


def decode_ceiling_tokens_per_second(
    bandwidth_bytes_per_second: float | None, weight_bytes: float | None, gpus: int = 1
) -> float | None:
    """The most tokens a second a single stream can decode: every token reads all weights once.

    `weight_bytes` of the whole model, spread over `gpus` by tensor parallelism (of a mixture of experts the
    active weights); None where a figure is not known.
    """
    if (
        not bandwidth_bytes_per_second
        or not weight_bytes
        or min(bandwidth_bytes_per_second, weight_bytes) < 0
    ):
        return None
    return bandwidth_bytes_per_second * max(gpus, 1) / weight_bytes


def turning_batch(gpu: Gpu, weight_bits: float = 16.0) -> float | None:
    """The streams in a batch from which a decode step is bound by compute instead of by reading the weights.

    Each weight is read once a step and takes two operations a stream: operations a second times bytes of a weight,
    over bandwidth and two (the ridge of the roofline model). None where the table does not hold the operations.
    """
    if gpu.operations_per_second is None:
        return None
    return gpu.operations_per_second * weight_bits / 8 / gpu.bandwidth_bytes_per_second / 2


def _gpu(row: Mapping[str, Any]) -> Gpu:
    return Gpu(
        name=row["name"],
        memory_bytes=row["memory"] * GIB,
        bandwidth_bytes_per_second=row["bandwidth"] * 1e9,
        source=row["source"],
        spellings=tuple(row.get("also", ())),
        operations_per_second=row["compute"] * 1e12 if "compute" in row else None,
    )


@cache
def _by_words() -> Mapping[frozenset[str], Gpu]:
    """Every spelling, with and without the amount of memory, as a set of words."""
    table: dict[frozenset[str], Gpu] = {}
    for gpu in all_gpus():
        memory = f"{gpu.memory_bytes // GIB}gb"
        for spelling in (gpu.name, *gpu.spellings):
            words = _words(spelling)
            table.setdefault(words, gpu)
            if not any(_MEMORY.fullmatch(word) for word in words):
                table.setdefault(words | {memory}, gpu)
    return MappingProxyType(table)


def _words(name: str) -> frozenset[str]:
    """The words that identify the part, whatever the order, case and separators: {"a100", "sxm", "80gb"}."""
    lowered = re.sub(r"\((?:r|tm|c)\)|[®™©]", " ", name.lower())
    spaced = re.sub(r"(\d)\s+(g|gb|gib)\b", r"\1\2", re.sub(r"[^a-z0-9]+", " ", lowered))
    pieces = chain.from_iterable(_unglued(word) for word in spaced.split())
    words = (_canonical(piece) for piece in pieces if piece not in _NOISE and not _COUNT.fullmatch(piece))
    return frozenset(words)


def _unglued(word: str) -> tuple[str, ...]:
    match = _GLUED.fullmatch(word)
    return tuple(part for part in match.groups() if part) if match else (word,)


def _canonical(word: str) -> str:
    memory = _MEMORY.fullmatch(word)
    if memory:
        return f"{memory[1]}gb"
    return "sxm" if _FORM.fullmatch(word) else word
