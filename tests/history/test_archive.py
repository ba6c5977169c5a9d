"""The past of an engine as bytes: what comes back, and what is refused."""

import json
import zlib
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.history.test_stretches import LATENCY, PROMPT, RATE
from tests.history.test_stretches import Life as Watched
from watchdog.history.archive import ArchiveError, Life, pack, unpack
from watchdog.history.history import Marks
from watchdog.history.stretches import KEPT_SECONDS, Stretches

NAMES = (RATE, LATENCY, PROMPT)
MARKS = Marks(1000.0, (5.0, nan, 7.0))
LIFE = Life.of("http://gpu/metrics", "0.24.0", MARKS)
WALL = 1_700_000_000.0


def empty(names: tuple[str, ...] = NAMES) -> Stretches:
    return Stretches(names, RATE)


def watched(seconds: float = 300.0) -> Watched:
    life = Watched()
    life.run(seconds)
    return life


@pytest.fixture(scope="module")
def packed() -> bytes:
    life = watched()
    return pack(life.stretches, LIFE, life.at, WALL)


def opened(packed: bytes) -> tuple[dict[str, object], bytes]:
    head, _, numbers = zlib.decompress(packed).partition(b"\n")
    return json.loads(head), numbers


def test_stretches_come_back_at_the_ages_they_have_then() -> None:
    life = watched()
    packed = pack(life.stretches, LIFE, life.at, WALL)
    back, whose = unpack(packed, empty(), 70.0, WALL + 600)
    assert [life.at - end for end in life.stretches.ends] == pytest.approx(
        [70.0 - 600 - end for end in back.ends]
    )
    assert len(back.begins) == len(life.stretches.begins)
    assert back.columns == life.stretches.columns
    assert (back.hurt_from, whose.is_continued_by(LIFE)) == (None, True)
    assert back.value(LATENCY, back.like({PROMPT: 500}, {PROMPT: 2.0})) == pytest.approx(0.1)


def test_for_how_long_it_hurt_is_kept() -> None:
    life = watched()
    life.run(100, hurts=True)
    packed = pack(life.stretches, LIFE, life.at, WALL)
    assert unpack(packed, empty(), 0.0, WALL + 50).stretches.hurt_from == pytest.approx(-150.0)


def test_a_life_goes_on_in_what_came_back() -> None:
    life = watched()
    back = unpack(pack(life.stretches, LIFE, life.at, WALL), empty(), 0.0, WALL + 10).stretches
    later = Watched()
    later.stretches = back
    before = len(back.ends)
    later.run(120, latency=0.3)
    assert len(back.ends) > before
    assert all(one <= other for one, other in zip(back.ends, back.begins[1:], strict=False))


def test_what_is_older_than_eight_hours_is_left_out(packed: bytes) -> None:
    assert len(unpack(packed, empty(), 0.0, WALL + KEPT_SECONDS - 100).stretches.ends) in range(1, 14)
    assert not unpack(packed, empty(), 0.0, WALL + KEPT_SECONDS + 300).stretches.ends


@pytest.mark.parametrize(
    ("names", "wall", "why"),
    [
        (NAMES, WALL - 60, "60 s from now: a clock was set"),
        ((RATE, LATENCY), WALL + 10, "other signals"),
        ((RATE, PROMPT, LATENCY), WALL + 10, "other signals"),
    ],
)
def test_a_past_from_the_future_or_of_other_signals_is_refused(
    packed: bytes, names: tuple[str, ...], wall: float, why: str
) -> None:
    with pytest.raises(ArchiveError, match=why):
        unpack(packed, empty(names), 0.0, wall)


def test_another_format_is_refused_by_its_number(packed: bytes) -> None:
    head, numbers = opened(packed)
    later = zlib.compress(json.dumps(head | {"format": 2}).encode() + b"\n" + numbers)
    with pytest.raises(ArchiveError, match="its format is 2"):
        unpack(later, empty(), 0.0, WALL)


@given(cut=st.integers(0, 10_000), changed=st.tuples(st.integers(0, 10_000), st.integers(1, 255)))
def test_damaged_bytes_are_refused_wherever_they_are_damaged(
    packed: bytes, cut: int, changed: tuple[int, int]
) -> None:
    place, by = changed[0] % len(packed), changed[1]
    damaged = packed[:place] + bytes([packed[place] ^ by]) + packed[place + 1 :]
    for bad in (packed[: cut % len(packed)], damaged):
        with pytest.raises(ArchiveError):
            unpack(bad, empty(), 0.0, WALL)


@given(
    st.dictionaries(
        st.sampled_from(["count", "wall", "hurt_seconds", "life", "names"]),
        st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers(), max_size=3),
        min_size=1,
    ),
    st.binary(max_size=40),
)
def test_a_head_or_numbers_that_make_no_sense_are_refused_or_harmless(
    packed: bytes, other: dict[str, object], more: bytes
) -> None:
    head, numbers = opened(packed)
    made = zlib.compress(json.dumps(head | other).encode() + b"\n" + numbers + more)
    try:
        back = unpack(made, empty(), 0.0, WALL).stretches
    except ArchiveError:
        return
    assert all(end <= 0.0 for end in back.ends)


def test_what_is_far_too_large_is_not_opened() -> None:
    with pytest.raises(ArchiveError, match="far too large"):
        unpack(zlib.compress(b"\0" * 100_000_000), empty(), 0.0, WALL)


@pytest.mark.parametrize(
    ("now", "same"),
    [
        (LIFE, True),
        (Life.of("http://gpu/metrics", None, Marks(nan, (nan, nan, nan))), True),
        (Life.of("http://gpu/metrics", "0.24.0", Marks(1000.4, (6.0, 2.0, 7.0))), True),
        (Life.of("http://gpu/metrics", "0.24.0", Marks(1002.0, (6.0, 2.0, 7.0))), False),
        (Life.of("http://gpu/metrics", "0.24.0", Marks(nan, (4.0, nan, 7.0))), False),
        (Life.of("http://gpu/metrics", "0.25.0", MARKS), False),
        (Life.of("http://other/metrics", "0.24.0", MARKS), False),
    ],
)
def test_a_life_goes_on_while_nothing_says_that_another_one_began(now: Life, same: bool) -> None:
    assert LIFE.is_continued_by(now) is same
