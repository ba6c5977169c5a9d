"""The text of a metrics page into series and values, fast where the page keeps its shape."""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from math import isfinite, nan
from typing import Final, NamedTuple, NoReturn

from prometheus_client.parser import text_string_to_metric_families

from watchdog.errors import WatchdogError
from watchdog.history.shapes import Form, Lines, Shapes
from watchdog.model import Page, Reason, Series

VLLM = "vllm:"
MODEL_LABEL = "model_name"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# What servers in front of vLLM make of `vllm:`; a longer prefix stands before one it contains.
# Ray's metrics agent shows a counter only once it counted something.
RAY_PREFIXES = ("ray_vllm:", "ray_vllm_")
PREFIXES = (*RAY_PREFIXES, "kserve_vllm:", "kserve_vllm_", "vllm_")
# No label of vLLM comes near; the library takes quadratic time over escapes, hence less of those.
MAX_LABELS_BYTES = 16 * 1024
MAX_ESCAPED_LABELS_BYTES = 2 * 1024
# What the library may be given of one page, as others wait meanwhile. What it has read is remembered, so
# that a larger page which is all in unusual form is refused once or twice and read then.
MAX_UNUSUAL_BYTES = 256 * 1024
# Churn below this is not worth forgetting.
SPARE_ENTRIES = 1000
SPARE_BYTES = 4 * 1024 * 1024

# Possessive throughout: a line is walked once, whatever is in it.
_HEAD = re.compile(rb'\s*+([^\s{"#]*+)\s*+(\{(?:[^"}]++|"(?:[^"\\]++|\\.)*+")*+\})?+')
_LABEL = re.compile(rb'[\s,]*+([^"=,{}\s]++)\s*+=\s*+("(?:[^"\\]++|\\.)*+")\s*+')
_PLAIN_LABEL = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*+)="([^"\\]*+)"')
_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*+")
_FIRST_WORD = re.compile(rb"[a-zA-Z0-9]++")
# A router's names begin like vLLM's; their only label says of which server it speaks.
_ROUTERS_WORD = re.compile(rb"vllm:[a-z0-9_]++\{server=")
# A page names no more programs than this (and none in more characters); what else is on it counts as one.
MOST_STRANGERS = 32


class ExpositionError(WatchdogError):
    """A page that cannot be used; `detail` is one line that says where and what was expected."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class _LineError(Exception):
    """What is wrong with one line, before its number is known."""

    def __init__(self, detail: str, reason: Reason = Reason.PARSE) -> None:
        super().__init__(detail)
        self.detail = detail
        self.reason = reason


class _Sample(NamedTuple):
    """A line taken apart: `head` is all before the value, `lone` is true where only a value follows it."""

    head: bytes
    name: bytes
    braces: bytes
    value: bytes
    lone: bool


class _Mark(Enum):
    """Stands for a line that the cache does not know; None there means: known and not wanted."""

    UNSEEN = "unseen"


# A constant of the module is read faster than a member, once for each line.
_UNSEEN: Final = _Mark.UNSEEN


class SeriesCache:
    """Remembers what the text before a value means, as Prometheus does, so that a line is parsed once.

    `wanted` is asked for each name once, as it is with the prefix `vllm:`; lines of names it refuses are
    remembered as such. Entries live in two generations: when the younger is full it becomes the older,
    and what no page asked for meanwhile is forgotten with the one before.
    """

    def __init__(
        self,
        wanted: Callable[[str], bool],
        max_series: int = 50_000,
        max_line_bytes: int = 64 * 1024,
        *,
        shapes: Shapes | None = None,
    ) -> None:
        self.max_series = max_series
        self.max_line_bytes = max_line_bytes
        self._wanted = wanted
        self._shapes = shapes or Shapes()
        # A `Lines` while it is shared with other targets.
        self._younger: dict[bytes, Series | None] = {}
        self._older: dict[bytes, Series | None] = {}
        self._learned_bytes = 0
        self._unusual_bytes = 0
        self._learns = False
        self._form: Form | None = None
        self._shape: tuple[Series, ...] = ()
        self._unique: tuple[Series, ...] = ()

    def __len__(self) -> int:
        """Counts the lines remembered."""
        return len(self._younger) + len(self._older)

    def look_up(self, lines: Sequence[bytes]) -> tuple[Sequence[Series], list[bytes]]:
        """Returns the wanted series of a page's lines and, beside each, the text of its value.

        Raises _LineError for a line that cannot be read, with the line's number in it.
        """
        self._unusual_bytes = 0
        self._learns = False
        form = self._form
        # What follows the last line is empty.
        values = None if form is None or lines[-1] else form.values(lines[:-1])
        if form is not None and values is not None:
            return form.series, values
        return self._look_up_each(lines)

    def _look_up_each(self, lines: Sequence[bytes]) -> tuple[list[Series], list[bytes]]:
        found: list[Series] = []
        values: list[bytes] = []
        known = self._younger.get
        for line in lines:
            head, _, value = line.rpartition(b" ")
            series = known(head, _UNSEEN)
            if series is None:
                continue
            if series is _UNSEEN:
                sample = self._learn(line, head, lines)
                if sample is None:
                    continue
                series, value = sample
            found.append(series)
            values.append(value)
        if len(self._younger) > 2 * len(lines) + SPARE_ENTRIES or self._learned_bytes > SPARE_BYTES:
            self._forget()
        elif not self._learns:
            self._form = self._form_of(lines)
        return found, values

    def _form_of(self, lines: Sequence[bytes]) -> Form | None:
        """The form of a page that said nothing new; None where a line of it has to be read again each time."""
        if lines[-1]:
            return None
        heads = [line.rpartition(b" ")[0] for line in lines[:-1]]
        meanings = [self._younger.get(head, _UNSEEN) for head in heads]
        known = [one for one in meanings if one is not _UNSEEN]
        if len(known) < len(meanings):
            return None
        return self._shapes.form(tuple(head + b" " for head in heads), known)

    def unique(self, found: Sequence[Series]) -> tuple[Series, ...]:
        """Returns the series without repeats: the very tuple of the page before if the shape is the same."""
        shape = tuple(found)
        if shape != self._shape:
            self._shape = shape
            once = tuple(dict.fromkeys(shape))
            self._unique = shape if len(once) == len(shape) else once
        elif not self._learns and not isinstance(self._younger, Lines):
            # Of a page that says nothing new any more.
            self._younger = self._shapes.lines(self._younger)
        return self._unique

    def _learn(self, line: bytes, head: bytes, lines: Sequence[bytes]) -> tuple[Series, bytes] | None:
        """Reads a line that the younger generation does not know; None where it holds no wanted value."""
        stripped = line.strip()
        if not stripped:
            return None
        if stripped.startswith(b"#"):
            if head:
                self._remember(head, None)
            return None
        try:
            sample = _take_apart(stripped)
            # First the value: a line that is refused once must not be known, and passed over, the next time.
            _number(sample.value)
            series = self._recall(sample)
        except _LineError as fault:
            _refuse(fault, lines.index(line) + 1, stripped)
        if sample.lone and head + b" " + sample.value == line.rstrip(b"\r"):
            self._remember(head, series)
        return None if series is None else (series, sample.value)

    def _recall(self, sample: _Sample) -> Series | None:
        # Keyed without value and timestamp: a page whose timestamps move adds nothing.
        series = self._younger.get(sample.head, _UNSEEN)
        if series is _UNSEEN:
            series = self._older.get(sample.head, _UNSEEN)
            if series is _UNSEEN:
                series = self._read_series(sample)
            self._remember(sample.head, series)
        return series

    def _remember(self, head: bytes, series: Series | None) -> None:
        self._learns = True
        if isinstance(self._younger, Lines):
            self._younger = dict(self._younger)
        self._younger[head] = series
        self._learned_bytes += len(head)

    def _read_series(self, sample: _Sample) -> Series | None:
        if sample.name and not any(map(self._is_wanted, _readings(sample.name.decode()))):
            return None
        text, labels = self._read_labels(sample)
        name = self._meaning(text, labels)
        if name is None:
            return None
        # One series for each spelling of it, so that a repeat in other words is a repeat.
        leaves_zeros_out = text.startswith(RAY_PREFIXES)
        other = self._shapes.known_series(name, labels, not leaves_zeros_out)
        if other is not None and any(other is mine for mine in self._younger.values()):
            return other
        return self._shapes.series(name, labels, leaves_zeros_out)

    def _read_labels(self, sample: _Sample) -> tuple[str, dict[str, str]]:
        """Returns name and labels: usual ones at once, whatever else is allowed by way of the library."""
        most = MAX_ESCAPED_LABELS_BYTES if b"\\" in sample.braces else MAX_LABELS_BYTES
        if len(sample.head) > most:
            raise _LineError(
                f"{len(sample.head)} bytes of labels, at most {most} are taken", Reason.TOO_LARGE
            )
        labels = _plain_labels(sample.braces)
        if sample.name and labels is not None:
            return sample.name.decode(), labels
        self._unusual_bytes += len(sample.head)
        if self._unusual_bytes > MAX_UNUSUAL_BYTES:
            detail = f"more than {MAX_UNUSUAL_BYTES} bytes of new labels in unusual form on one page"
            raise _LineError(detail, Reason.TOO_LARGE)
        return _library_labels(sample)

    def _meaning(self, text: str, labels: Mapping[str, str]) -> str | None:
        """Returns the name that a sample's name stands for; None for what is not wanted or not an engine's own."""
        told = _readings(text)
        if self._is_wanted(told[0]):
            return None if _is_hearsay(told[0], labels) else told[0]
        # Without its prefix a name is vLLM's only where it says which model it is of.
        bare = MODEL_LABEL in labels and any(map(self._is_wanted, told[1:]))
        return told[1] if bare else None

    def _is_wanted(self, name: str) -> bool:
        return not name.endswith("_created") and self._wanted(name)

    def _forget(self) -> None:
        self._older, self._younger = self._younger, {}
        self._learned_bytes = 0


def parse(body: bytes, cache: SeriesCache) -> Page:
    """Reads a page in the text format (an OpenMetrics body will do); the first of repeated series is taken.

    A value that is not a finite number becomes NaN; timestamps and exemplars are ignored; a line that is not UTF-8
    text is skipped as long as most are. Raises ExpositionError for anything else, whatever the bytes.
    """
    notes: list[str] = []
    if body.startswith(BYTE_ORDER_MARK):
        body = body[len(BYTE_ORDER_MARK) :]
        notes.append("a byte order mark at the start of the page was skipped")
    lines, unreadable = _lines(body, cache)
    if unreadable:
        notes.append(_skipped_note(unreadable))
    found, texts = cache.look_up(lines)
    values = _numbers(texts, lines)
    if not found:
        _refuse_without_samples(lines)
    series = cache.unique(found)
    if len(series) < len(found):
        values = _first_of_each(found, values)
        repeats = len(found) - len(series)
        notes.append(f"{repeats} repeated series: the first value of each was taken")
    openmetrics = body.rstrip().endswith(b"# EOF")
    return Page(series, tuple(values), tuple(notes), openmetrics, _strangers(series, lines))


def _lines(body: bytes, cache: SeriesCache) -> tuple[list[bytes], Sequence[int]]:
    """The lines of a page, and the numbers of those that are no text: they are empty then."""
    if not body or body.isspace():
        raise ExpositionError(Reason.EMPTY, "the page is empty")
    # A family has two lines about it and one sample at least: more lines are a bomb, not worth splitting.
    most_lines = 3 * cache.max_series + SPARE_ENTRIES
    if len(body) > most_lines and body.count(b"\n") > most_lines:
        raise ExpositionError(Reason.TOO_LARGE, f"more lines than {cache.max_series} series can have")
    lines = body.split(b"\n")
    if len(body) > cache.max_line_bytes:
        _refuse_long_line(lines, cache.max_line_bytes)
    unreadable: Sequence[int] = () if _is_text(body) else _blank_unreadable(lines)
    if len(lines) > cache.max_series:
        samples = sum(map(_is_sample, lines))
        if samples > cache.max_series:
            detail = f"{samples} series, at most {cache.max_series} are taken"
            raise ExpositionError(Reason.TOO_LARGE, detail)
    return lines, unreadable


def _is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _blank_unreadable(lines: list[bytes]) -> Sequence[int]:
    """Empties the lines that are no text and returns their numbers: a bad byte costs its line.

    Raises ExpositionError where most samples are lost: that is no page any more.
    """
    unreadable = [number for number, line in enumerate(lines, 1) if not _is_text(line)]
    lost = sum(_is_sample(lines[number - 1]) for number in unreadable)
    samples = sum(map(_is_sample, lines))
    if 2 * lost > samples or samples == 0:
        first = unreadable[0]
        what = "a NUL byte" if b"\0" in lines[first - 1] else "bytes that are not UTF-8 text"
        more = f", as on {lost} of {samples} lines with values" if lost > 1 else ""
        raise ExpositionError(Reason.UTF8, f"line {first}: {what}{more}")
    for number in unreadable:
        lines[number - 1] = b""
    return unreadable


def _is_sample(line: bytes) -> bool:
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith(b"#")


def _skipped_note(unreadable: Sequence[int]) -> str:
    if len(unreadable) == 1:
        return f"line {unreadable[0]} is not UTF-8 text and was skipped"
    return f"{len(unreadable)} lines are not UTF-8 text and were skipped, the first is line {unreadable[0]}"


def _refuse_long_line(lines: Sequence[bytes], most: int) -> None:
    if max(map(len, lines)) > most:
        number, length = next((i, len(line)) for i, line in enumerate(lines, 1) if len(line) > most)
        detail = f"line {number} has {length} bytes, at most {most} are taken"
        raise ExpositionError(Reason.TOO_LARGE, detail)


def _refuse_without_samples(lines: Sequence[bytes]) -> None:
    """Refuses a page of comments only; one whose samples nobody wants is a page."""
    if not any(map(_is_sample, lines)):
        raise ExpositionError(Reason.EMPTY, "the page holds comments and no sample")


def _numbers(texts: Sequence[bytes], lines: Sequence[bytes]) -> list[float]:
    try:
        values = list(map(float, texts))
    except ValueError:
        values = _careful_numbers(texts, lines)
    else:
        # Python would read 1_0 as ten.
        if b"_" in b"".join(texts):
            values = _careful_numbers(texts, lines)
    # The sum is finite where all are (or nearly so): one look at each is saved.
    if not isfinite(sum(values)):
        values = [value if isfinite(value) else nan for value in values]
    return values


def _careful_numbers(texts: Sequence[bytes], lines: Sequence[bytes]) -> list[float]:
    """Reads values of which one at least is no bare number, but may have a timestamp behind a tab."""
    try:
        return [_number(_fields(text)[0]) for text in texts]
    except _LineError:
        _refuse_values(lines)


def _refuse_values(lines: Sequence[bytes]) -> NoReturn:
    """Finds the line whose value made the page fail."""
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if stripped and not stripped.startswith(b"#"):
            try:
                _number(_take_apart(stripped).value)
            except _LineError as fault:
                _refuse(fault, number, stripped)
    raise ExpositionError(Reason.PARSE, "a value is not a number")


def _first_of_each(found: Sequence[Series], values: Sequence[float]) -> list[float]:
    first: dict[Series, float] = {}
    for series, value in zip(found, values, strict=True):
        first.setdefault(series, value)
    return list(first.values())


def _take_apart(line: bytes) -> _Sample:
    """Splits a line into name, labels and value; raises _LineError that says what was expected where."""
    match = _HEAD.match(line)
    if match is None or not (match[1] or match[2]):
        raise _LineError("a metric name was expected at the start")
    name, braces = match[1], match[2] or b""
    if name and not _NAME.fullmatch(name):
        raise _LineError("a metric name was expected at the start")
    rest = line[match.end() :]
    if not braces and rest.startswith(b"{"):
        raise _LineError('labels in the form {name="value"} were expected after the metric\'s name')
    fields = _fields(rest)
    return _Sample(line[: match.end()].rstrip(), name, braces, fields[0], lone=len(rest.split()) == 1)


def _fields(rest: bytes) -> list[bytes]:
    """Splits what stands after the labels into the value and, maybe, a timestamp."""
    words = rest.split()
    # After a lone # comes an exemplar, which says nothing of the value.
    fields = words[: words.index(b"#")] if b"#" in words else words
    if not fields:
        raise _LineError("a value was expected after the metric's name and labels")
    if len(fields) > 2:
        raise _LineError("nothing was expected after the value and its timestamp")
    if len(fields) == 2:
        _number(fields[1], "a timestamp")
    return fields


def _number(text: bytes, what: str = "a value") -> float:
    try:
        number = float(text)
    except ValueError:
        raise _LineError(f"a number was expected as {what}, not {_shown(text, 40)}") from None
    if b"_" in text:
        raise _LineError(f"a number was expected as {what}, not {_shown(text, 40)}")
    return number


def _plain_labels(braces: bytes) -> dict[str, str] | None:
    """Returns the labels where they are written as every client writes them, without escapes; else None."""
    pairs = _PLAIN_LABEL.findall(braces)
    if b"{" + b",".join([name + b'="' + value + b'"' for name, value in pairs]) + b"}" != (braces or b"{}"):
        return None
    labels = {name.decode(): value.decode() for name, value in pairs}
    if len(labels) < len(pairs):
        return None
    if b"__" in braces:
        # Two underscores at the start are not for a server to set.
        return {name: value for name, value in labels.items() if not name.startswith("__")}
    return labels


def _library_labels(sample: _Sample) -> tuple[str, dict[str, str]]:
    """Returns name and labels as prometheus_client reads them: escapes, spaces, quoted names."""
    braces = _without_reserved(sample.braces) if b"__" in sample.braces and sample.name else sample.braces
    text = (sample.name + braces + b" 1").decode()
    try:
        (family,) = text_string_to_metric_families(text)
        (read,) = family.samples
    except Exception:  # The library raises what its string handling happens to raise.
        raise _LineError('labels in the form {name="value"} were expected') from None
    return read.name, dict(read.labels)


def _without_reserved(braces: bytes) -> bytes:
    """Drops labels whose names start with two underscores: they are not for a server to set."""
    kept: list[bytes] = []
    position = 1
    while match := _LABEL.match(braces, position):
        position = match.end()
        if not match[1].startswith(b"__"):
            kept.append(match[1] + b"=" + match[2])
    return b"{" + b",".join(kept) + b"," * bool(kept) + braces[position:].lstrip(b", \t")


def _readings(name: str) -> tuple[str, ...]:
    """Returns what a sample's name may stand for: with vLLM's own prefix for those put in its place, or for none."""
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return (VLLM + name[len(prefix) :],)
    return (name,) if name.startswith(VLLM) else (name, VLLM + name)


def _is_hearsay(name: str, labels: Mapping[str, str]) -> bool:
    """Whether a router says it of a server behind it: of vLLM's name, with that server's and without a model's."""
    return name.startswith(VLLM) and "server" in labels and labels.keys().isdisjoint((MODEL_LABEL, "engine"))


def _strangers(series: Sequence[Series], lines: Sequence[bytes]) -> dict[str, int]:
    """Counts a page's samples by the first word of their names; nothing where vLLM is on it."""
    words: dict[str, int] = {}
    if any(one.name.startswith(VLLM) for one in series):
        return words
    for line in lines:
        match = _FIRST_WORD.match(line.lstrip())
        if match is not None:
            word = "router" if _ROUTERS_WORD.match(line) else match[0].decode()[:MOST_STRANGERS]
            word = word if word in words or len(words) < MOST_STRANGERS else "others"
            words[word] = words.get(word, 0) + 1
    return words


def _refuse(fault: _LineError, number: int, line: bytes) -> NoReturn:
    kind = ""
    if number <= 5 and line.startswith(b"<"):
        kind = " (this is an HTML page, not a metrics page)"
    elif number == 1 and line.startswith((b"{", b"[")):
        kind = " (this looks like JSON, not a metrics page)"
    found = "" if fault.reason is Reason.TOO_LARGE else f"; found {_shown(line, 60)}"
    raise ExpositionError(fault.reason, f"line {number}: {fault.detail}{found}{kind}") from None


def _shown(text: bytes, most: int) -> str:
    """Returns the text so that it is safe to print: one line, ASCII, cut."""
    shown = text[: most + 1].decode(errors="replace")
    return ascii(shown[:most] + "..." if len(shown) > most else shown)
