"""Recordings read, thinned and written; and where a fault in one is told to be."""

import gzip
import json
import lzma
import os
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.places import RECORDINGS
from watchdog.errors import RecordingError
from watchdog.model import Failure, Reason, Scrape, ServerInfo
from watchdog.scrape.recording import Phase, Writer, read, thin

META = {"name": "m", "interval_s": 2, "vllm_version": "0.24.0", "max_model_len": 8192, "models": ["a"]}
SERVER_INFO = ServerInfo("0.24.0", 8192, ("a",))


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def row(t: float, text: str = "a 1\n", **more: object) -> dict[str, object]:
    return {"t": t, "status": 200, "took_s": 0.01, "text": text, **more}


def scrape(at: float, body: bytes = b"a 1\n", failure: Failure | None = None, status: int = 200) -> Scrape:
    return Scrape(at, at, 0.01, status, b"" if failure else body, failure, SERVER_INFO)


def fault(path: Path) -> str:
    with pytest.raises(RecordingError) as caught:
        list(read(path)[1])
    assert str(caught.value).startswith(str(path))
    return str(caught.value).removeprefix(str(path))


def test_a_real_recording() -> None:
    recording, scrapes = read(RECORDINGS / "h200-healthy.jsonl.xz")
    assert recording.name == "h200-healthy"
    assert recording.interval_seconds == 1.0
    assert [phase.label for phase in recording.phases] == ["healthy"]
    assert recording.meta["accelerator"] == "NVIDIA H200"
    taken = list(scrapes)
    assert len(taken) == 81
    assert all(before.at < after.at for before, after in pairwise(taken))
    assert all(item.at == item.wall and item.failure is None for item in taken)
    assert taken[0].server_info == ServerInfo("0.24.0")
    assert taken[0].body.startswith(b"# HELP python_gc")


def test_metadata_and_its_defaults(tmp_path: Path) -> None:
    phases = [{"label": "healthy", "start": 1, "end": 2.5, "more": "is ignored"}]
    recording, scrapes = read(write(tmp_path / "a.jsonl", {**META, "phases": phases}, row(5)))
    assert (recording.name, recording.interval_seconds) == ("m", 2.0)
    assert recording.phases == (Phase("healthy", 1.0, 2.5),)
    assert list(scrapes) == [scrape(5.0)]
    recording, scrapes = read(write(tmp_path / "bare.jsonl", {}))
    assert (recording.name, recording.interval_seconds, recording.phases) == ("bare", 5.0, ())
    assert list(scrapes) == []


@pytest.mark.parametrize(
    ("told", "reason", "detail"),
    [
        ({"status": 0, "error": "connection refused"}, Reason.REFUSED, "connection refused"),
        ({"status": 0, "error": "timeout"}, Reason.TIMEOUT, "timeout"),
        ({"status": 0, "error": "timed out after 4 s"}, Reason.TIMEOUT, "timed out after 4 s"),
        ({"status": 0, "error": "something\nelse"}, Reason.STATUS, "something else"),
        ({"status": 0}, Reason.STATUS, "no answer"),
        ({"status": 503, "text": "busy"}, Reason.STATUS, "HTTP status 503"),
        ({"status": 200, "text": ""}, Reason.EMPTY, "the page is empty"),
        ({"status": 200, "reason": "truncated", "error": "cut"}, Reason.TRUNCATED, "cut"),
    ],
)
def test_failures(tmp_path: Path, told: dict[str, object], reason: Reason, detail: str) -> None:
    _, scrapes = read(write(tmp_path / "a.jsonl", META, {**row(1), **told}))
    [taken] = scrapes
    assert taken.failure == Failure(reason, detail)
    assert taken.body == b""
    assert taken.status == told["status"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], ":1: a line of metadata was expected, the file is empty"),
        (["not json"], ":1: a JSON object was expected (recordings are .jsonl, .gz or .xz, pages .prom)"),
        (["[1]"], ":1: a JSON object was expected (recordings are .jsonl, .gz or .xz, pages .prom)"),
        ([row(1)], ":1: a line of metadata was expected before the first scrape"),
        ([{"interval_s": "1"}], ":1: interval_s: a number was expected"),
        ([{"interval_s": 0}], ":1: interval_s: a number above 0 was expected"),
        ([{"phases": {}}], ":1: phases: a list of objects"),
        ([{"phases": [{"label": "x", "start": 1}]}], ":1: end of a phase: a number was expected"),
        ([META, row(1), '{"t": 2'], ":3: a JSON object was expected"),
        ([META, row(1), "[" * 100_000], ":3: a JSON object was expected"),
        ([META, "", row(1), "", {"status": 200}], ":5: t: a number was expected"),
        ([META, '{"t": NaN, "status": 200}'], ":2: t: a number was expected"),
        ([META, '{"t": true, "status": 200}'], ":2: t: a number was expected"),
        ([META, '{"t": 1' + "0" * 400 + ', "status": 200}'], ":2: t: a number was expected"),
        ([META, {"t": 1}], ":2: status: an HTTP status or 0 was expected"),
        ([META, {"t": 1, "status": "200"}], ":2: status: an HTTP status or 0 was expected"),
        ([META, {**row(1), "text": 5}], ":2: text: the page as a string was expected"),
        ([META, {**row(1), "took_s": "fast"}], ":2: took_s: a number was expected"),
        ([META, {**row(1), "reason": "bad luck"}], ":2: reason: 'bad luck' is not known"),
        ([META, {**row(1), "load": 5}], ":2: load: the answer of GET /load as a string was expected"),
        ([META, row(5), row(4)], ":3: t goes back, from 5.0 to 4.0"),
    ],
)
def test_a_fault_is_told_with_file_and_line(tmp_path: Path, rows: list[object], expected: str) -> None:
    assert fault(write(tmp_path / "a.jsonl", *rows)).startswith(expected)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    whole = b"".join(json.dumps(item).encode() + b"\n" for item in [META, *map(row, range(2000))])
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(whole)[:-20])
    (tmp_path / "cut.jsonl.xz").write_bytes(lzma.compress(whole)[:-20])
    (tmp_path / "none.jsonl.gz").write_bytes(whole)
    (tmp_path / "none.jsonl.xz").write_bytes(whole)
    assert fault(tmp_path / "missing.jsonl") == ": cannot be read: No such file or directory"
    for name in ["cut.jsonl.gz", "cut.jsonl.xz", "none.jsonl.gz", "none.jsonl.xz"]:
        assert ": cannot be read: " in fault(tmp_path / name)
    (tmp_path / "empty").mkdir()
    assert "there is none in it" in fault(tmp_path / "empty")
    assert "cannot be read" in fault(tmp_path / "missing.prom")


def test_rows_before_a_fault_are_given(tmp_path: Path) -> None:
    _, scrapes = read(write(tmp_path / "a.jsonl", META, row(1), row(2), "broken"))
    assert [next(scrapes).at, next(scrapes).at] == [1.0, 2.0]
    with pytest.raises(RecordingError, match=r"a\.jsonl:4: "):
        next(scrapes)


def test_a_recording_left_in_the_middle_leaves_no_open_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", META, row(1), row(2))
    _, never_begun = read(path)
    _, begun = read(path)
    next(begun)
    del never_begun, begun
    # An open file would be a warning, and a warning an error.


def pages(folder: Path, *names: str) -> list[Path]:
    paths = [folder / name for name in names]
    for path in paths:
        path.write_text(f"a{{file={json.dumps(path.name)}}} 1\n")
    return paths


def times(path: Path) -> list[float]:
    return [item.at for item in read(path)[1]]


def test_a_folder_of_pages_named_by_their_time(tmp_path: Path) -> None:
    pages(tmp_path, "page-1795972500.5.prom", "page-1795972490.prom", "notes.txt")
    recording, scrapes = read(tmp_path)
    assert [(item.at, item.wall) for item in scrapes] == [(1795972490.0,) * 2, (1795972500.5,) * 2]
    assert recording.name == tmp_path.name
    assert recording.interval_seconds == 10.5


def test_a_folder_of_pages_in_the_order_of_their_numbers_by_the_time_of_the_files(tmp_path: Path) -> None:
    paths = pages(tmp_path, "page-2.prom", "page-10.prom", "page-1.prom")
    for path, at in zip(paths, [1010, 1020, 1000], strict=True):
        os.utime(path, (at, at))
    assert times(tmp_path) == [1000.0, 1010.0, 1020.0]
    _, scrapes = read(tmp_path)
    assert [item.body.split(b'"')[1] for item in scrapes] == [b"page-1.prom", b"page-2.prom", b"page-10.prom"]


@pytest.mark.parametrize("written", [[1000, 1000, 1000], [1020, 1010, 1000], [1000, 1001, 9999]])
def test_a_folder_of_pages_whose_times_say_nothing_is_five_seconds_apart(
    tmp_path: Path, written: list[int]
) -> None:
    for path, at in zip(pages(tmp_path, "a.prom", "b.prom", "c.prom"), written, strict=True):
        os.utime(path, (at, at))
    begin = float(written[0])
    assert times(tmp_path) == [begin, begin + 5, begin + 10]


def test_a_single_page(tmp_path: Path) -> None:
    [path] = pages(tmp_path, "42.prom")
    os.utime(path, (1000, 1000))
    recording, scrapes = read(path)
    assert recording.name == "42"
    [taken] = scrapes
    assert (taken.at, taken.wall, taken.status, taken.body) == (1000.0, 1000.0, 200, b'a{file="42.prom"} 1\n')
    path.write_text("")
    [taken] = read(path)[1]
    assert taken.failure == Failure(Reason.EMPTY, "the page is empty")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.xz"])
def test_what_is_written_is_read_back_identical(tmp_path: Path, name: str) -> None:
    scrapes = [
        scrape(1.0),
        scrape(2.25, b'a{x="\xc3\xbc\xe2\x98\x83\\n"} 1\r\n'),
        scrape(3.0, b"\xff\xfe\x00 not text \xed\xa0\x80\xf0\x9f\x98\x80\n"),
        scrape(4.0, failure=Failure(Reason.REFUSED, "no connection: Connection refused"), status=0),
        scrape(5.0, failure=Failure(Reason.TIMEOUT, "still connecting", while_connecting=True), status=0),
        scrape(5.0, failure=Failure(Reason.TRUNCATED, "the connection ended"), status=200),
        scrape(6.0, failure=Failure(Reason.STATUS, "HTTP 503 Busy"), status=503),
    ]
    with Writer(tmp_path / name, META) as writer:
        for item in scrapes:
            writer.write(item)
    recording, taken = read(tmp_path / name)
    assert list(taken) == scrapes
    assert {key: recording.meta[key] for key in META} == META


@given(st.binary(min_size=1))
@settings(max_examples=100, deadline=None)
def test_any_body_is_read_back(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "a.jsonl"
    with Writer(path, {}) as writer:
        writer.write(scrape(1.0, body))
    assert [item.body for item in read(path)[1]] == [body]


def test_each_scrape_is_in_the_file_once_written(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.jsonl", META) as writer:
        writer.write(scrape(1.0))
        assert list(read(tmp_path / "a.jsonl")[1]) == [scrape(1.0)]


def test_a_clock_that_jumps_while_recording_does_not_turn_time_back(tmp_path: Path) -> None:
    walls = [1000.0, 1001.2, 1002.0, 5002.0, 400.0, 1004.9]
    with Writer(tmp_path / "a.jsonl", META) as writer:
        for number, wall in enumerate(walls):
            writer.write(Scrape(50.0 + number, wall, 0.0, 200, b"a 1\n"))
    assert times(tmp_path / "a.jsonl") == [1000.0, 1001.2, 1002.0, 1003.0, 1004.0, 1004.9]


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot be written: No such file"):
        Writer(tmp_path / "missing" / "a.jsonl", META)
    with pytest.raises(RecordingError, match="cannot be written: "):
        Writer(tmp_path / "a.jsonl", {"name": object()})


@pytest.mark.parametrize("name", ["full.jsonl", "full.jsonl.gz", "full.jsonl.xz"])
def test_a_disk_that_is_full(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(RecordingError, match="cannot be written: No space left"):  # noqa: SIM117
        with Writer(tmp_path / name, META) as writer:
            writer.write(scrape(1.0))


def kept(times_taken: Iterable[float], interval_seconds: float) -> list[float]:
    return [item.at for item in thin((scrape(at) for at in times_taken), interval_seconds)]


def test_thinning_keeps_what_is_an_interval_after_the_last_kept() -> None:
    assert kept([0, 1, 2, 3, 4, 5, 6, 9, 10, 11, 20, 21], 5) == [0, 5, 10, 20]
    assert kept([0, 4.74, 4.76, 9.5, 9.52], 5) == [0, 4.76, 9.52]
    assert kept([0, 1, 2], 1) == [0, 1, 2]
    assert kept([0, 0.5, 1], 0) == [0, 0.5, 1]
    assert kept([], 5) == []


def test_requests_in_flight_travel_beside_the_page(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    read_at = [replace(scrape(1.0), load=0), scrape(2.0), replace(scrape(3.0), load=12)]
    with Writer(path, META) as writer:
        for one in read_at:
            writer.write(one)
    assert list(read(path)[1]) == read_at
    assert json.loads(path.read_text().splitlines()[3])["load"] == '{"server_load":12}'
    assert "load" not in json.loads(path.read_text().splitlines()[2])


def test_an_answer_of_load_that_tells_nothing_is_none(tmp_path: Path) -> None:
    _, scrapes = read(write(tmp_path / "a.jsonl", META, row(1, load="Not Found")))
    assert [one.load for one in scrapes] == [None]


def test_the_front_end_in_rust_is_known_from_the_metadata(tmp_path: Path) -> None:
    _, scrapes = read(write(tmp_path / "a.jsonl", {**META, "rust_frontend_version": "0.3.1"}, row(1)))
    assert [one.server_info.rust_frontend_version for one in scrapes] == ["0.3.1"]
