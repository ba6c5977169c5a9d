"""Files of lines: what a kill, a cut or a full disk leaves of them."""

import gzip
import lzma
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watchdog.errors import RecordingError
from watchdog.scrape.line_file import CutError, LineFile, lines_of

LINES = [b'{"meta": 1}\n', *(b'{"t": %d, "text": "%s"}\n' % (t, b"a 1 " * 50) for t in range(9))]
NAMES = ["a.jsonl", "a.jsonl.gz", "a.jsonl.xz"]
UNPACKED: dict[str, Callable[[bytes], bytes]] = {
    "a.jsonl": bytes,
    "a.jsonl.gz": gzip.decompress,
    "a.jsonl.xz": lzma.decompress,
}


def read(path: Path) -> list[bytes]:
    """The whole lines before the cut."""
    lines: list[bytes] = []
    with suppress(RecordingError):
        for number, line in lines_of(path):
            assert number == len(lines) + 1
            lines.append(line)
    return [line for line in lines if line.endswith(b"\n")]


def written(path: Path) -> bytes:
    """The file as it is while it is written, without its end."""
    file = LineFile(path)
    for line in LINES:
        file.append(line)
    content = path.read_bytes()
    file.abandon()
    assert path.read_bytes() == content
    return content


@pytest.mark.parametrize("name", NAMES)
def test_each_line_is_there_once_it_is_written_for_other_programs_too(tmp_path: Path, name: str) -> None:
    with LineFile(tmp_path / name) as file:
        for count, line in enumerate(LINES, 1):
            file.append(line)
            assert UNPACKED[name]((tmp_path / name).read_bytes()) == b"".join(LINES[:count])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(share=st.floats(0, 1))
def test_a_file_cut_anywhere_is_read_up_to_there(
    tmp_path_factory: pytest.TempPathFactory, name: str, share: float
) -> None:
    path = tmp_path_factory.mktemp("cut") / name
    content = written(path)
    path.write_bytes(content[: int(share * len(content))])
    kept = read(path)
    assert kept == LINES[: len(kept)]
    assert len(kept) >= int(share * len(LINES)) - 1


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_file_cut_at_each_byte_of_a_border_is_read_up_to_there(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    content = written(path)
    with LineFile(path) as file:
        for line in LINES[:2]:
            file.append(line)
        two = path.stat().st_size
    for more in range(1, 16):
        path.write_bytes(content[: two + more])
        assert read(path) == LINES[:2]
        with pytest.raises(CutError):
            list(lines_of(path))


@pytest.mark.parametrize("name", NAMES[1:])
def test_at_its_end_a_file_is_as_small_as_if_compressed_at_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    loose = len(written(path))
    path.chmod(0o640)
    with LineFile(path) as file:
        for line in LINES:
            file.append(line)
    assert UNPACKED[name](path.read_bytes()) == b"".join(LINES)
    assert path.stat().st_size < loose / 3
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_packed_stays_as_it_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    (tmp_path / f".{name}.packed").mkdir()
    with LineFile(path) as file:
        for line in LINES:
            file.append(line)
    assert UNPACKED[name](path.read_bytes()) == b"".join(LINES)
