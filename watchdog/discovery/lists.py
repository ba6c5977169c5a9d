"""Servers from lists in Prometheus' form: in files, and over HTTP."""

from collections.abc import Mapping
from glob import glob
from pathlib import Path
from typing import NamedTuple

from watchdog.discovery.finder import AskingFinder, Said
from watchdog.discovery.found import Found
from watchdog.discovery.groups import read_json, read_yaml, servers
from watchdog.errors import SourceError
from watchdog.http.get import Answer, Getter
from watchdog.http.url import redact_url
from watchdog.notify.announcements import Ledger
from watchdog.settings.discovery import FileDiscoverySettings, HttpDiscoverySettings

MOST_FILE_BYTES = 16 * 1024 * 1024


class _Read(NamedTuple):
    """What a file said when it was last read well, and what it looked like then."""

    stamp: tuple[int, ...]
    found: list[Found]


class FileFinder(AskingFinder):
    """Reads target files again where they have changed; of a file that is bad, its last good content stays."""

    def __init__(self, settings: FileDiscoverySettings, ledger: Ledger) -> None:
        super().__init__(settings, settings.refresh_seconds, ledger)
        self._files = settings
        self._read: dict[str, _Read] = {}

    def find(self) -> Said:
        """The servers of all files, of a bad one those of before."""
        paths = sorted({path for pattern in self._files.files for path in glob(pattern)})  # noqa: PTH207 - a pattern may begin with a slash
        if not paths:
            raise SourceError(f"no such file: {', '.join(self._files.files)}")
        for path in self._read.keys() - set(paths):
            del self._read[path]
        faults = [fault for path in paths if (fault := self._look_at(path))]
        found = [each for path in paths if path in self._read for each in self._read[path].found]
        if any(path not in self._read for path in paths):
            # Nobody knows which of those of an earlier life are of a file that was never read in this one.
            names = {each.name for each in found}
            found += [each for each in self.found if each.name not in names]
        return Said(found, "; ".join(faults))

    def _look_at(self, path: str) -> str:
        """Reads a file where it has changed; what is wrong with it, empty where nothing is."""
        try:
            state = Path(path).stat()
            stamp = (state.st_mtime_ns, state.st_size, state.st_ino)
            if path in self._read and self._read[path].stamp == stamp:
                return ""
            with Path(path).open("rb") as file:
                body = file.read(MOST_FILE_BYTES + 1)
            if len(body) > MOST_FILE_BYTES:
                return f"{path} is larger than {MOST_FILE_BYTES} bytes"
            read = read_json if path.lower().endswith(".json") else read_yaml
            self._read[path] = _Read(stamp, servers(read(body), self._files))
        except OSError as error:
            return f"{path} cannot be read: {error.strerror or type(error).__name__}"
        except SourceError as error:
            return f"{path}: {error}"
        return ""


class HttpFinder(AskingFinder):
    """Asks for a list over HTTP."""

    def __init__(self, settings: HttpDiscoverySettings, ledger: Ledger) -> None:
        super().__init__(settings, settings.refresh_seconds, ledger)
        self._list = settings
        headers: Mapping[str, str] = {
            "X-Prometheus-Refresh-Interval-Seconds": f"{settings.refresh_seconds:g}"
        }
        self._getter = Getter(settings.endpoint_at(settings.url), headers=headers, what="list")

    def find(self) -> Said:
        """The servers of the list."""
        settings = self._list
        try:
            answer = self._getter.get(
                self._getter.url, "application/json", settings.deadline_seconds, settings.max_body_bytes
            )
        except Exception as error:  # whatever libraries raise, a person is told what it means
            detail = self._getter.failure(error, settings.deadline_seconds).detail
            raise SourceError(f"{redact_url(settings.url)}: {detail}") from None
        try:
            return Said(servers(read_json(_checked(answer)), settings))
        except SourceError as error:
            raise SourceError(f"{redact_url(settings.url)}: {error}") from None

    def stop(self) -> None:
        """Looks no more; a question under way ends."""
        self._stopped = True
        self._getter.close()
        super().stop()


def _checked(answer: Answer) -> bytes:
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise SourceError(f"Content-Type {kind or 'none'}, where a list has application/json")
    return answer.body
