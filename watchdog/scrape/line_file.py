"""A file of lines, compressed as its name says, in which every line stays readable however its writer ends."""

import gzip
import lzma
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

from watchdog.errors import RecordingError

# A page may have 16 MiB and JSON may double it.
MAX_LINE_BYTES = 64 * 1024 * 1024
# Pages repeat each other from line to line, which the fastest preset finds as well as the slowest does.
_XZ_PRESET = 0

_OPENERS: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open}
_DAMAGED = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)


class CutError(RecordingError):
    """The file ends, or is damaged, behind lines that are whole."""


class LineFile:
    """Writes lines; the file is replaced where it exists.

    Each line is compressed by itself and handed to the system in one write, so that a kill leaves all lines
    before it. They are compressed together as well, into a nameless file, which takes the place of the
    loose ones at the end: a tenth of their size or less. Every method raises OSError where the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb", buffering=0)
        self._packed: _Packed | None = None
        # A device or a pipe is written as it comes.
        if path.suffix in (".xz", ".gz") and path.is_file():
            self._packed = _Packed(path)

    def append(self, line: bytes) -> None:
        """Adds a line, which is in the file when this returns."""
        left = memoryview(_compressed(line, self._path.suffix))
        try:
            while left:
                left = left[self._file.write(left) or 0 :]
            if self._packed is not None and not self._packed.append(line):
                self._packed = None
        except BaseException:
            # Broken off in between, the packed lines may not be the same.
            self.abandon()
            raise

    def abandon(self) -> None:
        """Closes the file as it is."""
        self._file.close()
        if self._packed is not None:
            self._packed.close()
            self._packed = None

    def close(self) -> None:
        """Puts the lines that were compressed together in the place of the loose ones, and closes the file."""
        packed, self._packed = self._packed, None
        self._file.close()
        if packed is not None:
            packed.replace(self._path.resolve())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Packed:
    """The same lines compressed together; what goes wrong with it costs disk, and no line."""

    def __init__(self, path: Path) -> None:
        self._suffix = path.suffix
        self._file: IO[bytes] | None = None
        self._packer: IO[bytes] | None = None
        with suppress(OSError):
            self._file = tempfile.TemporaryFile(dir=path.resolve().parent)  # noqa: SIM115 - closed in close
            self._packer = _packer(self._file, path.suffix)

    def append(self, line: bytes) -> bool:
        """Adds a line; False where that is not possible any more."""
        try:
            if self._packer is None:
                return False
            self._packer.write(line)
        except OSError:
            self.close()
            return False
        return True

    def replace(self, path: Path) -> None:
        """Becomes the file at `path`, or leaves that as it is."""
        beside = path.with_name(f".{path.name}.packed")
        try:
            if self._packer is None or self._file is None:
                return
            self._packer.close()
            self._file.seek(0)
            with beside.open("wb") as whole:
                shutil.copyfileobj(self._file, whole)
            beside.chmod(path.stat().st_mode & 0o777)
            beside.replace(path)
        except OSError:
            return
        finally:
            self.close()
            with suppress(OSError):
                beside.unlink(missing_ok=True)

    def close(self) -> None:
        """Drops it."""
        for each in (self._packer, self._file):
            if each is not None:
                with suppress(OSError):
                    each.close()
        self._packer = self._file = None


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Gives the lines of a file with their numbers, from 1.

    Raises CutError where it breaks off behind a whole line, RecordingError where it cannot be read at all.
    """
    number = 0
    try:
        with _reader(path) as file:
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                if len(line) == MAX_LINE_BYTES:
                    raise RecordingError(f"{path}:{number}: a line of {MAX_LINE_BYTES} bytes or more")
                yield number, line
    except (OSError, *_DAMAGED) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        # A file that could not even be opened has no line that is at fault.
        place = f"{path}:{number + 1}" if path.is_file() else str(path)
        kind = CutError if number and isinstance(error, _DAMAGED) else RecordingError
        raise kind(f"{place}: cannot be read: {reason}") from None


def _reader(path: Path) -> IO[bytes]:
    file: IO[bytes] = _OPENERS.get(path.suffix, open)(path, "rb")
    return file


def _packer(file: IO[bytes], suffix: str) -> IO[bytes]:
    options = {"preset": _XZ_PRESET} if suffix == ".xz" else {}
    packer: IO[bytes] = _OPENERS[suffix](file, "wb", **options)
    return packer


def _compressed(line: bytes, suffix: str) -> bytes:
    """One line by itself; files of such pieces, one behind the other, are valid ones of both kinds."""
    if suffix == ".xz":
        return lzma.compress(line, preset=_XZ_PRESET)
    return gzip.compress(line) if suffix == ".gz" else line
