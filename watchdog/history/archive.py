"""The calm stretches of an engine as bytes that outlive this process, and of which life of which server they are."""

import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import ClassVar, NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError

from watchdog.history.history import Marks
from watchdog.history.stretches import Stretches

FORMAT = 1
# Eight hours of the finest stretches, of twice as many signals as are kept today, take less.
_MOST_BYTES = 4_000_000
# A clock is corrected by as much now and then; the newest stretch is half a minute older than the bytes that hold it.
_CLOCK_SECONDS = 5.0


class ArchiveError(Exception):
    """Bytes that cannot be used; the message says why."""


class Life(NamedTuple):
    """The identity by which the server that answers now is the one that answered then.

    `address` is a checksum of the URL it is asked at, `version` what it reported (None: not yet).
    """

    address: int
    version: str | None
    marks: Marks

    @classmethod
    def of(cls, url: str, version: str | None, marks: Marks) -> "Life":
        """The life of what answers under a URL."""
        return cls(zlib.crc32(url.encode()), version, marks)

    def is_continued_by(self, now: "Life") -> bool:
        """Whether nothing says that another one answers now; what one side does not know is not compared."""
        versions = {self.version, now.version} - {None}
        return self.address == now.address and len(versions) < 2 and self.marks.are_continued_by(now.marks)


class Unpacked(NamedTuple):
    """Stretches in monotonic seconds of this process, and whose they are."""

    stretches: Stretches
    life: Life


@dataclass(frozen=True, slots=True)
class _Head:
    """The line of JSON before the numbers: `wall` is when they were packed, `hurt_seconds` how long it hurt."""

    __pydantic_config__: ClassVar = ConfigDict(ser_json_inf_nan="strings")

    format: int
    names: tuple[str, ...]
    count: int
    wall: float
    hurt_seconds: float | None
    life: Life


_HEAD = TypeAdapter(_Head)


def pack(stretches: Stretches, life: Life, at: float, wall: float) -> bytes:
    """The stretches as they are now (monotonic, unix seconds); their times become ages."""
    hurt_seconds = None if stretches.hurt_from is None else at - stretches.hurt_from
    head = _Head(FORMAT, stretches.names, len(stretches.ends), wall, hurt_seconds, life)
    ages = [at - each for times in (stretches.begins, stretches.ends) for each in times]
    values = [each for name in stretches.names for each in stretches.columns[name]]
    numbers = struct.pack(f"<{len(ages)}d{len(values)}f", *ages, *values)
    return zlib.compress(_HEAD.dump_json(head) + b"\n" + numbers, 1)


def unpack(packed: bytes, empty: Stretches, at: float, wall: float) -> Unpacked:
    """Fills stretches with what was packed, as seen from now (monotonic, unix seconds), without what is too old.

    Raises ArchiveError where the bytes are damaged, of another format, of other signals, or from the future.
    """
    try:
        head, numbers = _parted(packed)
        _check(head, empty, wall)
        then = at - max(0.0, wall - head.wall)
        _fill(empty, head.count, numbers, then)
    except (zlib.error, struct.error, ValidationError, ValueError, OverflowError) as error:
        raise ArchiveError(f"it is damaged ({type(error).__name__})") from error
    empty.hurt_from = None if head.hurt_seconds is None else then - head.hurt_seconds
    empty.forget_before(at)
    return Unpacked(empty, head.life)


def _parted(packed: bytes) -> tuple[_Head, bytes]:
    opened = zlib.decompressobj()
    whole = opened.decompress(packed, _MOST_BYTES)
    if not opened.eof:
        raise ArchiveError("it is truncated, or far too large")
    head, _, numbers = whole.partition(b"\n")
    return _HEAD.validate_json(head), numbers


def _check(head: _Head, empty: Stretches, wall: float) -> None:
    if head.format != FORMAT:
        raise ArchiveError(f"its format is {head.format}, and this version reads {FORMAT}")
    if head.names != empty.names:
        raise ArchiveError("it has other signals than this version keeps")
    if head.wall - wall > _CLOCK_SECONDS:
        raise ArchiveError(f"it was written {head.wall - wall:.0f} s from now: a clock was set")


def _fill(empty: Stretches, count: int, numbers: bytes, then: float) -> None:
    """Raises struct.error or ValueError where the numbers are not stretches one after the other up to that time."""
    values = struct.unpack(f"<{2 * count}d{count * len(empty.names)}f", numbers)
    begins, ends = ([then - age for age in values[start : start + count]] for start in (0, count))
    edges = [edge for pair in zip(begins, ends, strict=True) for edge in pair]
    if not all(map(isfinite, edges)) or any(one > other for one, other in pairwise([*edges, then])):
        raise ValueError("not in the order of time")
    empty.begins.extend(begins)
    empty.ends.extend(ends)
    for place, name in enumerate(empty.names, start=2):
        empty.columns[name].extend(values[place * count : (place + 1) * count])
