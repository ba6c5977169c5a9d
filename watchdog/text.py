"""Values as they leave us: times as RFC 3339, text that UTF-8 can carry, numbers that JSON can write."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The year 1 and the year 9999: beyond these no RFC 3339 text exists.
EARLIEST_WALL = -62135596800.0
LATEST_WALL = 253402300799.0


def timestamp(wall: float) -> str:
    """Unix seconds as RFC 3339 in UTC, to the millisecond; times outside the calendar become its edge."""
    bounded = max(EARLIEST_WALL, min(LATEST_WALL, wall))
    moment = _EPOCH + timedelta(seconds=bounded)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def scalar_text(text: str) -> str:
    """`text` with `?` for lone surrogates, which no encoder takes: one bad label must not cost a whole answer."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
