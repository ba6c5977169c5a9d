"""Scrapes from files, and scrapes into files: a line of metadata, then a line of JSON for each scrape."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from sys import float_info
from types import MappingProxyType, TracebackType
from typing import Self

from watchdog.errors import RecordingError
from watchdog.model import Failure, Reason, Scrape, ServerInfo
from watchdog.scrape.line_file import CutError, LineFile, lines_of
from watchdog.scrape.load import answer_of, requests_in_flight
from watchdog.text import one_line

DEFAULT_INTERVAL_SECONDS = 5.0
# Names of files below this are counters, not unix times.
EARLIEST_UNIX_TIME = 1_000_000_000.0
# Files further apart were not collected in one go, files closer were copied together.
LEAST_FILE_GAP_SECONDS = 0.5
MOST_FILE_GAP_SECONDS = 3600.0
# Below the interval by this share is still the interval: scrapes come a little early.
INTERVAL_SLACK = 0.05
# A wall clock that leaves the monotonic one by more than this has jumped.
CLOCK_JUMP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a recording and the condition that held in it; unix seconds.

    `part` names the recording that it comes from where several were joined into one life, else it is empty.
    """

    label: str
    start: float
    end: float
    part: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """What a recording says of itself; `meta` is its first line as it stands."""

    name: str
    meta: Mapping[str, object]
    interval_seconds: float
    phases: tuple[Phase, ...]


def read(path: Path, on_cut: Callable[[str], None] | None = None) -> tuple[Recording, Iterator[Scrape]]:
    """Opens a recording (.jsonl, .jsonl.gz, .jsonl.xz), a folder of .prom files or one .prom file.

    Both `at` and `wall` of a scrape are its recorded time. A recording that breaks off, as a full disk leaves
    one, is read up to there, and `on_cut` is called with words for a person; where that is None, it is
    a fault. Raises RecordingError that names the file and the line: at once for the metadata, from the
    iterator for the lines after it.
    """
    if path.is_dir():
        return _read_pages(path, sorted(path.glob("*.prom"), key=_natural_order))
    if path.suffix == ".prom":
        return _read_pages(path, [path])
    meta = _read_meta(path)
    phases = _phases(meta, path)
    interval_seconds = _number(meta.get("interval_s", DEFAULT_INTERVAL_SECONDS), "interval_s", f"{path}:1")
    if interval_seconds <= 0:
        raise RecordingError(f"{path}:1: interval_s: a number above 0 was expected")
    name = one_line(str(meta.get("name") or _bare_name(path)))
    recording = Recording(name, meta, interval_seconds, phases)
    return recording, _up_to_cut(_read_rows(path, _server_info(meta)), path, on_cut)


def thin(scrapes: Iterable[Scrape], interval_seconds: float) -> Iterator[Scrape]:
    """Keeps the first scrape and each that comes an interval (less 5 %) or more after the last one kept."""
    least_seconds = interval_seconds * (1 - INTERVAL_SLACK)
    kept_at: float | None = None
    for scrape in scrapes:
        if kept_at is None or scrape.at - kept_at >= least_seconds:
            kept_at = scrape.at
            yield scrape


class Writer:
    """Writes a recording, compressed as the file's name says, scrape by scrape.

    However it ends, each scrape that was written is readable. The file is replaced where it exists.
    Raises RecordingError where it cannot be written.
    """

    def __init__(self, path: Path, meta: Mapping[str, object]) -> None:
        self._path = path
        self._first: Scrape | None = None
        try:
            self._file = LineFile(path)
        except OSError as error:
            raise RecordingError(f"{path}: cannot be written: {error.strerror}") from None
        try:
            self._write_line({"name": _bare_name(path), **meta})
        except (TypeError, ValueError) as error:
            self.close()
            raise RecordingError(f"{path}:1: cannot be written: {error}") from None

    def write(self, scrape: Scrape) -> None:
        """Adds a scrape, failed or not."""
        if self._first is None:
            self._first = scrape
        row: dict[str, object] = {"t": self._time(scrape, self._first), "status": scrape.status}
        row |= {"took_s": scrape.took_seconds, "text": scrape.body.decode("utf-8", "surrogateescape")}
        if scrape.failure is not None:
            row |= {"error": scrape.failure.detail, "reason": str(scrape.failure.reason)}
            if scrape.failure.while_connecting:
                row["while_connecting"] = True
        if scrape.load is not None:
            row["load"] = answer_of(scrape.load)
        self._write_line(row)

    def close(self) -> None:
        """Finishes the file; a compressed one gets its small form here."""
        with self._told():
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_line(self, row: Mapping[str, object]) -> None:
        # ASCII throughout: bytes that are not text travel as escaped lone surrogates.
        line = json.dumps(row).encode("ascii") + b"\n"
        with self._told():
            self._file.append(line)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turns a full disk into a RecordingError; the file is closed then, with all that was written before."""
        try:
            yield
        except OSError as error:
            raise RecordingError(f"{self._path}: cannot be written: {error.strerror}") from None

    @staticmethod
    def _time(scrape: Scrape, first: Scrape) -> float:
        """Returns the wall time, or what it would have been had the clock not jumped."""
        steady = first.wall + (scrape.at - first.at)
        return scrape.wall if abs(scrape.wall - steady) <= CLOCK_JUMP_SECONDS else steady


def _read_meta(path: Path) -> Mapping[str, object]:
    for number, line in lines_of(path):
        try:
            meta = _object(line, f"{path}:{number}")
        except RecordingError as error:
            hint = "recordings are .jsonl, .gz or .xz, pages .prom"
            raise RecordingError(f"{error} ({hint})") from None
        if "t" in meta and "text" in meta:
            raise RecordingError(f"{path}:{number}: a line of metadata was expected before the first scrape")
        return MappingProxyType(meta)
    raise RecordingError(f"{path}:1: a line of metadata was expected, the file is empty")


def _up_to_cut(
    scrapes: Iterator[Scrape], path: Path, on_cut: Callable[[str], None] | None
) -> Iterator[Scrape]:
    count = 0
    try:
        for scrape in scrapes:
            count += 1
            yield scrape
    except CutError:
        if on_cut is None:
            raise
        on_cut(f"{path}: the recording breaks off after {count} scrapes; it is read up to there")


def _read_rows(path: Path, server_info: ServerInfo) -> Iterator[Scrape]:
    before = -float("inf")
    for number, line in lines_of(path):
        place = f"{path}:{number}"
        if number > 1 and not line.isspace():
            scrape = _scrape(_row(line, place), server_info, place)
            if scrape.at < before:
                raise RecordingError(f"{place}: t goes back, from {before} to {scrape.at}")
            before = scrape.at
            yield scrape


def _row(line: bytes, place: str) -> dict[str, object]:
    try:
        return _object(line, place)
    except RecordingError as error:
        # Without its end it is the last line, of which a full disk or a kill kept a part.
        raise error if line.endswith(b"\n") else CutError(str(error)) from None


def _object(line: bytes, place: str) -> dict[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise RecordingError(f"{place}: a JSON object was expected") from None
    if not isinstance(value, dict):
        raise RecordingError(f"{place}: a JSON object was expected")
    return value


def _scrape(row: Mapping[str, object], server_info: ServerInfo, place: str) -> Scrape:
    at = _number(row.get("t"), "t", place)
    took_seconds = _number(row.get("took_s", 0.0), "took_s", place)
    status, text = row.get("status"), row.get("text", "")
    if not isinstance(status, int) or isinstance(status, bool):
        raise RecordingError(f"{place}: status: an HTTP status or 0 was expected")
    if not isinstance(text, str):
        raise RecordingError(f"{place}: text: the page as a string was expected")
    failure = _failure(row, status, text, place)
    body = b"" if failure else _bytes(text)
    return Scrape(at, at, took_seconds, status, body, failure, server_info, _load(row, place))


def _load(row: Mapping[str, object], place: str) -> int | None:
    load = row.get("load")
    if load is not None and not isinstance(load, str):
        raise RecordingError(f"{place}: load: the answer of GET /load as a string was expected")
    return None if load is None else requests_in_flight(load)


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _failure(row: Mapping[str, object], status: int, text: str, place: str) -> Failure | None:
    error = row.get("error")
    detail = str(error) if error else f"HTTP status {status}" if status else "no answer"
    detail = one_line(" ".join(detail.split()), 300)
    if "reason" in row:
        try:
            reason = Reason(str(row["reason"]))
        except ValueError:
            raise RecordingError(f"{place}: reason: {row['reason']!r} is not known") from None
        return Failure(reason, detail, row.get("while_connecting") is True)
    if status == 200:
        return None if text else Failure(Reason.EMPTY, "the page is empty")
    if status == 0 and "refused" in detail:
        return Failure(Reason.REFUSED, detail)
    if status == 0 and ("timeout" in detail or "timed out" in detail):
        return Failure(Reason.TIMEOUT, detail)
    return Failure(Reason.STATUS, detail)


def _number(value: object, name: str, place: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max:
        return float(value)
    raise RecordingError(f"{place}: {name}: a number was expected")


def _phases(meta: Mapping[str, object], path: Path) -> tuple[Phase, ...]:
    listed = meta.get("phases", [])
    if not isinstance(listed, list) or not all(isinstance(phase, dict) for phase in listed):
        raise RecordingError(f"{path}:1: phases: a list of objects with label, start and end was expected")
    return tuple(
        Phase(
            one_line(str(phase.get("label", ""))),
            _number(phase.get("start"), "start of a phase", f"{path}:1"),
            _number(phase.get("end"), "end of a phase", f"{path}:1"),
            one_line(str(phase.get("part", ""))),
        )
        for phase in listed
    )


def _server_info(meta: Mapping[str, object]) -> ServerInfo:
    version, length, models = meta.get("vllm_version"), meta.get("max_model_len"), meta.get("models")
    front_end = meta.get("rust_frontend_version")
    return ServerInfo(
        one_line(version) if isinstance(version, str) else None,
        length if isinstance(length, int) and not isinstance(length, bool) else None,
        tuple(one_line(str(model)) for model in models) if isinstance(models, list) else (),
        one_line(front_end) if isinstance(front_end, str) else None,
    )


def _read_pages(path: Path, files: list[Path]) -> tuple[Recording, Iterator[Scrape]]:
    if not files:
        raise RecordingError(f"{path}: a folder with .prom files was expected, there is none in it")
    try:
        times = _times(files)
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror}") from None
    gaps = sorted(after - before for before, after in pairwise(times))
    interval_seconds = gaps[len(gaps) // 2] if gaps else DEFAULT_INTERVAL_SECONDS
    recording = Recording(one_line(_bare_name(path)), MappingProxyType({}), interval_seconds, ())
    return recording, _page_scrapes(files, times)


def _page_scrapes(files: Iterable[Path], times: Iterable[float]) -> Iterator[Scrape]:
    for file, at in zip(files, times, strict=True):
        try:
            body = file.read_bytes()
        except OSError as error:
            raise RecordingError(f"{file}: cannot be read: {error.strerror}") from None
        failure = None if body else Failure(Reason.EMPTY, "the page is empty")
        yield Scrape(at, at, 0.0, 200, body, failure)


def _times(files: list[Path]) -> list[float]:
    """Tells when the pages were taken: by unix times in the names, else by the files' own, else 5 s apart."""
    named = [float(match[0]) if (match := re.search(r"\d{9,}(\.\d+)?", file.stem)) else 0.0 for file in files]
    if min(named) >= EARLIEST_UNIX_TIME and named == sorted(set(named)):
        return named
    written = [file.stat().st_mtime for file in files]
    gaps = [after - before for before, after in pairwise(written)]
    if all(LEAST_FILE_GAP_SECONDS <= gap <= MOST_FILE_GAP_SECONDS for gap in gaps):
        return written
    return [written[0] + DEFAULT_INTERVAL_SECONDS * position for position in range(len(files))]


def _natural_order(file: Path) -> list[tuple[int, str]]:
    """Sorts page-2 before page-10."""
    parts = re.split(r"(\d+)", file.name)
    return [(int(part), "") if part.isdigit() and part.isascii() else (0, part) for part in parts]


def _bare_name(path: Path) -> str:
    name = path.name
    for suffix in (".xz", ".gz", ".jsonl", ".prom"):
        name = name.removesuffix(suffix)
    return name
