"""What lets a recording be served round after round as one server that runs on.

A page's counters only grow. Served again from its beginning, a recording would let them fall, which is what a
restart looks like: after four rounds a crash loop. So each round starts where the one before it ended.
"""

from collections.abc import Iterator, Mapping

# Families whose samples only grow while a process lives.
_GROWING = frozenset({b"counter", b"histogram", b"summary"})


def gains(first: bytes, last: bytes) -> dict[bytes, float]:
    """What each growing series gained between two pages, by its text before the value.

    Empty where one of them fell: the recorded server restarted, and may do so in each round.
    """
    before = {series: float(value) for series, value in _growing(first)}
    gained = {series: float(value) - before.get(series, 0.0) for series, value in _growing(last)}
    return {} if any(gain < 0 for gain in gained.values()) else gained


def carried_on(body: bytes, gained: Mapping[bytes, float], rounds: int) -> bytes:
    """The page after so many whole rounds; as it stands in the first."""
    if not rounds or not gained:
        return body
    grown = {
        series + b" " + value: series + f" {float(value) + rounds * gained[series]!r}".encode()
        for series, value in _growing(body)
        if series in gained
    }
    return b"\n".join(grown.get(line, line) for line in body.split(b"\n"))


def _growing(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each growing series of a page and its value, in the order of the page."""
    grows = False
    for line in body.split(b"\n"):
        if line.startswith(b"# TYPE "):
            grows = line.rpartition(b" ")[2] in _GROWING
        elif grows and line and not line.startswith(b"#"):
            series, _, value = line.rpartition(b" ")
            yield series, value
