"""One POST under one total deadline: the answer, or why there is none, as a value."""

import socket
import ssl
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import requests

from watchdog.http.client import (
    CertificateFileError,
    SecretFileError,
    authorization,
    check_certificate_files,
    open_session,
    system_words,
    underlying,
)
from watchdog.http.endpoint import Endpoint
from watchdog.http.url import split_user_info
from watchdog.http.wire import Adapter, Wire
from watchdog.text import one_line

MAX_ANSWER_BYTES = 64 * 1024
MAX_HEADER_BYTES = 64 * 1024
_TOLD_CHARACTERS = 200
HEADERS = {"Content-Type": "application/json", "Connection": "close"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a post: `status` 0 where no whole answer came; `detail` holds neither URL nor secret.

    `timed_out` is whether time ran out before a whole answer, `date` what the answer says of its time (unix seconds,
    None where it says nothing that can be read).
    """

    status: int
    detail: str
    html: bool = False
    content: bytes = b""
    timed_out: bool = False
    date: float | None = None

    @property
    def accepted(self) -> bool:
        """A whole answer of the 200 kind."""
        return 200 <= self.status < 300

    @property
    def worth_retrying(self) -> bool:
        """Whether the same post may be taken later: no answer, overload, or the receiver's own fault."""
        return self.status in {0, 408, 425, 429} or self.status >= 500


class Poster:
    """Posts JSON to one receiver, one post at a time; each on a connection of its own.

    With `status_is_enough` an answer of the 200 kind counts once its head is there: a receiver that has
    taken a message is not sent it twice because the rest of its answer hangs.
    """

    def __init__(self, endpoint: Endpoint, status_is_enough: bool = False) -> None:
        self._endpoint = endpoint
        self._url, self._user, self._password = split_user_info(endpoint.url)
        self._status_is_enough = status_is_enough
        self._wire = Wire()

    def post(self, body: bytes, timeout_seconds: float) -> Answer:
        """Posts `body`; never raises, and takes `timeout_seconds` at most."""
        try:
            check_certificate_files(self._endpoint)
            self._wire.begin(timeout_seconds, MAX_HEADER_BYTES)
            parts = urlsplit(self._url)
            self._wire.resolve(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
            return self._exchange(body)
        except Exception as error:  # whatever libraries raise: a post that failed is an answer
            if self._wire.stopped:
                return Answer(0, "stopped")
            late = any(isinstance(cause, TimeoutError) for cause in underlying(error))
            told = failure_words(error, f"no whole answer within {timeout_seconds:g} s, {self._wire.stage}")
            return Answer(0, told, timed_out=late)

    def abort(self) -> None:
        """Ends the post under way, from another thread, and refuses further ones."""
        self._wire.stop()

    def _exchange(self, body: bytes) -> Answer:
        with (
            open_session(self._endpoint, Adapter(self._wire)) as session,
            session.post(
                self._url,
                data=body,
                headers=HEADERS | authorization(self._endpoint, self._user, self._password),
                timeout=self._wire.remaining_seconds(),
                allow_redirects=False,
                stream=True,
            ) as response,
        ):
            status = response.status_code
            if 300 <= status < 400:
                return Answer(status, f"redirect ({status}), not followed")
            content = b"" if self._status_is_enough and status < 300 else _start_of(response)
            if not self._status_is_enough:
                self._wire.remaining_seconds()  # ended from outside, an answer without a length looks whole
            html = "html" in response.headers.get("Content-Type", "").lower()
            date = _unix_seconds(response.headers.get("Date", ""))
            return Answer(status, _shown(status, content, html), html, content, date=date)


def _start_of(response: requests.Response) -> bytes:
    """What the receiver says, as far as it is of use; the rest goes with the connection."""
    parts: list[bytes] = []
    wanted = MAX_ANSWER_BYTES
    while wanted > 0 and (part := response.raw.read(min(wanted, 16 * 1024), decode_content=False)):
        parts.append(part)
        wanted -= len(part)
    return b"".join(parts)


def _unix_seconds(header: str) -> float | None:
    try:
        moment = parsedate_to_datetime(header)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _shown(status: int, content: bytes, html: bool) -> str:
    if html:
        return f"status {status} with an HTML page"
    text = one_line(content[:_TOLD_CHARACTERS].decode("utf-8", "replace").strip())
    return f"status {status}" + (f": {text}" if text else "")


def failure_words(error: Exception, late: str) -> str:
    """The cause in few words; the texts of requests hold the URL, so they are not used."""
    if isinstance(error, SecretFileError | CertificateFileError):
        return one_line(str(error))
    causes = list(underlying(error))
    if any(isinstance(cause, TimeoutError) for cause in causes):
        return late
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return f"TLS: {one_line(system_words(cause))}"
        if isinstance(cause, socket.gaierror):
            return "the host name does not resolve"
    spoken = [cause for cause in causes if isinstance(cause, OSError) and cause.strerror]
    if spoken:
        return one_line(system_words(spoken[-1]))
    return f"the exchange broke ({system_words(causes[-1])})"
