"""Text, written one way: cleaned where it comes in; times, numbers and the nearest name as people say them."""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, time, timedelta
from difflib import get_close_matches

MOST_CHARACTERS = 2000
"""Of a line that quotes what others sent."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The year 1 and the year 9999: beyond these no RFC 3339 text exists.
EARLIEST_WALL = -62135596800.0
LATEST_WALL = 253402300799.0

# What a reader takes for something else than text: controls (but tab and line feed), line separators,
# what turns the direction of writing, and halves of a pair, which no encoder takes.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff\ud800-\udfff]"
)
_DURATION = re.compile(
    r"(?=[0-9])(?:([0-9]{1,4})w)?(?:([0-9]{1,5})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,8})m(?!s))?"
    r"(?:([0-9]{1,10}(?:\.[0-9]{1,9})?)s)?(?:([0-9]{1,12})ms)?"
)
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
# What a signal is compared with stands behind its name.
_COMPARISON_WORDS = {"baseline": " before", "lately": " lately", "lowest": " at the least"}
_UNITS_SECONDS = (604800.0, 86400.0, 3600.0, 60.0, 1.0, 0.001)


def clean(text: str) -> str:
    """`text` of others, of one line or several: what would harm a reader is written out, as `\\x1b` is.

    Line feeds and tabs stay, and a line feed with a carriage return is one.
    """
    if text.isascii() and text.isprintable():
        return text
    return _HARMFUL.sub(lambda match: _escaped(match[0]), text.replace("\r\n", "\n"))


def first_harmful(text: str) -> int | None:
    """Where the first character is that `clean` would write out; None where there is none."""
    match = None if text.isascii() and text.isprintable() else _HARMFUL.search(text)
    return match.start() if match else None


def one_line(text: str, most_characters: int = MOST_CHARACTERS) -> str:
    """`text` of others as `printable`, the end cut off if too long."""
    shown = printable(text[:most_characters])
    # Written out, it is longer.
    cut = len(text) > most_characters or len(shown) > most_characters
    return shown[: most_characters - 3] + "..." if cut else shown


def printable(text: str) -> str:
    """`text` of others on one line: all that is not printable is written out, line feeds and tabs as well."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def printable_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels of others, each name and value printable."""
    return {printable(name): printable(value) for name, value in labels.items()}


def clean_values(value: object) -> object:
    """Values as a JSON reader gives them, each text and name in them cleaned; raises RecursionError."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(name)): clean_values(each) for name, each in value.items()}
    if isinstance(value, list):
        return [clean_values(each) for each in value]
    return value


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the known name most like this one; empty where none is alike."""
    close = get_close_matches(name[:100], list(known), n=1)
    return f"did you mean `{close[0]}`?" if close else ""


def timestamp(wall: float) -> str:
    """Unix seconds as RFC 3339 in UTC, to the millisecond; times outside the calendar become its edge."""
    bounded = max(EARLIEST_WALL, min(LATEST_WALL, wall))
    moment = _EPOCH + timedelta(seconds=bounded)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration_seconds(text: str) -> float:
    """Seconds from `90`, `0.5s`, `250ms`, `1h30m`, `1d` or `2w`; raises ValueError for other text."""
    match = _DURATION.fullmatch(text.strip())
    if match and any(match.groups()):
        pairs = zip(match.groups(), _UNITS_SECONDS, strict=True)
        return sum(float(part) * unit for part, unit in pairs if part)
    if _SECONDS.fullmatch(text.strip()):
        return float(text)
    raise ValueError("must be a duration such as 5s, 1m30s or 2h")


def point_in_time(text: str, now: datetime) -> float:
    """Unix seconds from `02:10`, `2026-03-01T02:10`, `now`, `now-2h` or unix seconds; raises ValueError.

    What names no zone is in that of `now`; a time of day is the last one that is not after `now`.
    """
    word = text.strip()
    if word == "now" or word.startswith("now-"):
        ago_seconds = duration_seconds(word.removeprefix("now-")) if word != "now" else 0.0
        return now.timestamp() - ago_seconds
    if re.fullmatch(r"[0-9]{9,11}(\.[0-9]{1,9})?", word):
        return float(word)
    try:
        if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", word):
            that_day = datetime.combine(now.date(), time.fromisoformat(word.zfill(5)), now.tzinfo)
            return (that_day if that_day <= now else that_day - timedelta(days=1)).timestamp()
        moment = datetime.fromisoformat(word)
        return (moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError("must be a time such as 02:10, 2026-03-01T02:10Z, now-2h or unix seconds") from None


def seconds_text(seconds: float) -> str:
    """Seconds as people say a time: 5.5 ms, 38 ms, 4.2 s, 3m 20s, 2h 5m, 3d 4h; ">= 38 ms" for a bound."""
    return bound_mark(seconds) + _time_text(float(seconds))


def _time_text(seconds: float) -> str:
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.00995 else f"{seconds * 1000:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest}s" if rest else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes}m" if minutes else f"{hours}h"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h" if hours else f"{days}d"


def clock_text(seconds: float) -> str:
    """Seconds as a player of recordings shows them: `m:ss`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def bound_mark(value: float) -> str:
    """What stands before a number: ">= " or "<= " for one that is only a bound, nothing for an exact one."""
    sign = getattr(value, "sign", "")
    return f"{sign} " if sign else ""


def number_text(value: float | None) -> str:
    """A number as a person writes it: four digits or all of a whole part; "unknown", ">= x" or "<= x" for a bound."""
    if value is None:
        return "unknown"
    plain = float(value)
    if plain == int(plain) or abs(plain) >= 1000:
        return bound_mark(value) + (f"{plain:.0f}" if abs(plain) < 1e15 else f"{plain:.4g}")
    return bound_mark(value) + f"{plain:.4g}"


def quantity_text(name: str, value: float | None) -> str:
    """The value of a signal or reading as people say it, with the unit in its name."""
    if value is None or not math.isfinite(value):
        return "unknown"
    return bound_mark(value) + _with_unit(without_comparison(name), float(value))


def without_comparison(name: str) -> str:
    """The name of the signal itself, where it ends with that of what it is compared with."""
    bare, _, comparison = name.rpartition("_")
    return bare if comparison in _COMPARISON_WORDS else name


def comparison_words(name: str) -> str:
    """What a signal is compared with as words behind its own; empty where that is nothing."""
    return _COMPARISON_WORDS.get(name.rpartition("_")[2], "")


def _with_unit(name: str, value: float) -> str:
    if name.endswith("_tokens_per_second"):
        return f"{_rounded(value)} tokens/s"
    if name.endswith("_per_second"):
        return f"{_rounded(value)}/s"
    if name.endswith("_seconds") or name.startswith("seconds_"):
        return seconds_text(value)
    if name.endswith("_ratio"):
        return f"{value:.0%}" if value == 0 or abs(value) >= 0.01 else f"{value:.2%}"
    return _rounded(value)


def _rounded(value: float) -> str:
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 1 else f"{value:.2g}"
