"""GETs from one server under one deadline each: a whole answer, or a reason why there is none."""

import socket
import ssl
import threading
from collections.abc import Mapping
from http.client import BadStatusLine, HTTPException
from typing import NamedTuple
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError, LocationParseError

from watchdog.http.answer import Answering, Exchange, Requests
from watchdog.http.client import (
    CertificateFileError,
    SecretFileError,
    authorization,
    check_certificate_files,
    open_session,
    out_of_resources,
    system_words,
    underlying,
)
from watchdog.http.endpoint import Endpoint
from watchdog.http.url import redact_url, split_user_info
from watchdog.http.wire import Adapter, Stage, Wire
from watchdog.model import NO_LABELS, Failure, Reason
from watchdog.text import one_line

READ_BYTES = 64 * 1024
# Of URLs that are asked again; those of queries with a time in them are not.
MOST_PREPARED = 32
MOST_DETAIL_CHARACTERS = 300
# What OpenSSL calls an answer in plain text, by its version.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})


class Answer(NamedTuple):
    """A whole answer; `headers` knows its names in any case."""

    headers: Mapping[str, str]
    body: bytes
    status: int = 200


class RefusedError(Exception):
    """An answer, or a request, that comes to nothing for a reason we know; `detail` is a sentence about it."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Getter:
    """Fetches from one server, over one connection where it stays open; one exchange at a time.

    `what` is what its answers are called in failures; `headers` go with each request.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        max_header_bytes: int = 64 * 1024,
        headers: Mapping[str, str] = NO_LABELS,
        what: str = "page",
    ) -> None:
        self.url, self._user, self._password = split_user_info(endpoint.url)
        self.status = 0
        """The HTTP status of the last exchange; 0 where no answer came."""
        self._endpoint = endpoint
        self._max_header_bytes = max_header_bytes
        self._headers = headers
        self._what = what
        self._wire = Wire()
        self._adapter = Adapter(self._wire)
        self._session = open_session(endpoint, self._adapter)
        self._requests: dict[str, requests.PreparedRequest] = {}
        self._texts = Requests()
        self._lock = threading.Lock()

    def get(
        self, url: str, accept: str, seconds: float, max_body_bytes: int, any_status: bool = False
    ) -> Answer:
        """Returns the whole answer within `seconds`.

        Raises whatever the libraries raise, and RefusedError for an answer that is of no use: `failure` says what it
        means. A status other than 200 is one, unless `any_status` asks for what stands in it.
        """
        with self._lock:
            return self._exchange(url, accept, seconds, max_body_bytes, any_status)

    def failure(self, error: Exception, seconds: float) -> Failure:
        """What an error of `get`, which had `seconds`, means."""
        if isinstance(error, RefusedError):
            reason, detail = error.reason, error.detail
        elif isinstance(error, SecretFileError):
            reason, detail = Reason.AUTH_CONFIG, str(error)
        elif isinstance(error, CertificateFileError):
            reason, detail = Reason.TLS, str(error)
        elif self._wire.stopped:
            reason, detail = Reason.TIMEOUT, "the fetch was stopped"
        else:
            reason, detail = _told(list(underlying(error)), self._wire.stage, seconds, self._what)
        connecting = self._wire.stage in {Stage.RESOLVING, Stage.CONNECTING}
        return Failure(reason, _one_line(detail), reason is Reason.TIMEOUT and connecting)

    def close(self) -> None:
        """Closes the connection; an exchange under way in another thread ends at once, as failed."""
        self._wire.stop()
        self._session.close()

    def _exchange(
        self, url: str, accept: str, seconds: float, max_body_bytes: int, any_status: bool
    ) -> Answer:
        self.status = 0
        self._wire.begin(seconds, self._max_header_bytes)
        host, port = _host_and_port(url)
        headers = {"Accept": accept, "X-Prometheus-Scrape-Timeout-Seconds": f"{seconds:g}"}
        headers |= dict(self._headers) | authorization(self._endpoint, self._user, self._password)
        check_certificate_files(self._endpoint)
        self._wire.aim(host, port)
        if not self._wire.peer_is_current:
            self._adapter.drop()
        while True:
            try:
                return self._request(url, headers, max_body_bytes, any_status)
            except Exception as error:
                self._adapter.drop()
                if not self._closed_by_peer(error):
                    raise
            # With nothing kept any more the next attempt is on a fresh connection, and the last.
            self._wire.begin_attempt()

    def _closed_by_peer(self, error: Exception) -> bool:
        """Tells whether a connection kept from the last exchange was closed, before any answer to this one."""
        wire = self._wire
        closed = any(isinstance(cause, ConnectionError) for cause in underlying(error))
        return closed and not wire.fresh and not wire.received_bytes and not wire.stopped

    def _request(self, url: str, headers: Mapping[str, str], max_body_bytes: int, any_status: bool) -> Answer:
        request = self._requests.get(url)
        if request is None:
            if len(self._requests) >= MOST_PREPARED:
                self._requests.clear()
            request = self._requests[url] = self._session.prepare_request(requests.Request("GET", url))
        pool = self._adapter.pool(self._session, request)
        exchange = Exchange(pool, self._wire, self._texts, request, headers)
        answer = exchange.answer
        try:
            self.status = answer.status
            _check_head(answer, max_body_bytes, any_status, self._what)
            body = _read(answer, max_body_bytes, self._what)
        finally:
            exchange.finish()
        self._wire.remaining_seconds()  # Stopped from outside, a body without a length looks whole.
        return Answer(answer.headers, body, self.status)


def _host_and_port(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise RefusedError(Reason.PROTOCOL, "the URL cannot be read") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise RefusedError(Reason.PROTOCOL, "the URL must be http:// or https:// with a host")
    return host, port or (443 if parts.scheme == "https" else 80)


def _check_head(response: Answering, max_body_bytes: int, any_status: bool, what: str) -> None:
    """Refuses an answer whose body we do not want to see."""
    status, headers = response.status, response.headers

    if 300 <= status < 400:
        target = redact_url(headers.get("Location", "nowhere"))
        raise RefusedError(Reason.REDIRECT, f"HTTP {status} to {target}, not followed")
    if status != 200 and not any_status:
        raise RefusedError(Reason.STATUS, f"HTTP {status} {response.reason}")
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    transfer = headers.get("Transfer-Encoding", "chunked").strip().lower()
    if encoding not in {"", "identity"} or transfer != "chunked":
        raise RefusedError(
            Reason.ENCODING, f"the {what} is encoded as {encoding}, {transfer} although plain was asked for"
        )
    length = headers.get("Content-Length", "0").strip()
    if not (length.isascii() and length.isdigit()):
        raise RefusedError(Reason.PROTOCOL, "a Content-Length that is not a number")
    # Its digits first: Python takes its time over a number of thousands of them.
    if len(length.lstrip("0")) > 18 or int(length) > max_body_bytes:
        raise RefusedError(Reason.TOO_LARGE, f"the {what} is larger than {max_body_bytes} bytes")


def _read(response: Answering, max_body_bytes: int, what: str) -> bytes:
    """Reads the body; raises RefusedError as soon as it is longer than it may be."""
    parts: list[bytes] = []
    size_bytes = 0
    try:
        # A body whose length was told, and is not too large, comes in one piece.
        while part := response.read(response.length or READ_BYTES):
            size_bytes += len(part)
            if size_bytes > max_body_bytes:
                detail = f"the {what} is larger than {max_body_bytes} bytes"
                raise RefusedError(Reason.TOO_LARGE, detail)
            parts.append(part)
        is_cut = not response.is_whole
    except (HTTPException, ConnectionError):
        is_cut = True
    if is_cut:
        detail = f"the connection closed within the {what}, after {size_bytes} bytes"
        raise RefusedError(Reason.TRUNCATED, detail)
    return b"".join(parts)


def _told(
    causes: list[BaseException], stage: Stage, deadline_seconds: float, what: str
) -> tuple[Reason, str]:
    """Returns the reason and a sentence for what went wrong, by the most telling cause."""
    lack = next(filter(out_of_resources, causes), None)
    if lack is not None:
        return Reason.RESOURCES, f"{system_words(lack)} while {stage}"
    if any(isinstance(cause, TimeoutError) for cause in causes):
        reason = Reason.DNS if stage is Stage.RESOLVING else Reason.TIMEOUT
        return reason, f"no complete {what} within {deadline_seconds:g} s, still {stage}"
    if stage is Stage.RESOLVING:
        return _told_by(causes, (socket.gaierror, UnicodeError), Reason.DNS, "the name does not resolve")
    if stage is Stage.HANDSHAKE or any(isinstance(cause, ssl.SSLError) for cause in causes):
        return Reason.TLS, _told_of_tls(causes, stage)
    if stage is Stage.CONNECTING:
        return _told_by(causes, (OSError,), Reason.REFUSED, "no connection")
    return _told_of_answer(causes, stage)


def _told_of_tls(causes: list[BaseException], stage: Stage) -> str:
    if any(isinstance(cause, ssl.SSLError) and cause.reason in _NOT_TLS for cause in causes):
        return "the server does not speak TLS on this port: use http://"
    return _told_by(causes, (ssl.SSLError, OSError), Reason.TLS, f"failed {stage}")[1]


def _told_of_answer(causes: list[BaseException], stage: Stage) -> tuple[Reason, str]:
    """Returns what is wrong with an answer, or with the lack of one on a connection that stood."""
    for cause in causes:
        if isinstance(cause, BadStatusLine) and str(cause).startswith("\x15\x03"):
            return Reason.TLS, "the server speaks TLS on this port: use https://"
        if isinstance(cause, ConnectionError):
            return Reason.TRUNCATED, f"the server closed the connection, {stage}"
    if any(isinstance(cause, LocationParseError | requests.exceptions.InvalidURL) for cause in causes):
        return Reason.PROTOCOL, "the URL cannot be read"
    return _told_by(causes, (HTTPException, HTTPError), Reason.PROTOCOL, f"not valid HTTP, {stage}")


def _told_by(
    causes: list[BaseException], kinds: tuple[type[BaseException], ...], reason: Reason, what: str
) -> tuple[Reason, str]:
    # The innermost is the one that knows: libraries wrap it in words about themselves and the URL.
    known = [cause for cause in causes if isinstance(cause, kinds)]
    return reason, f"{what}: {system_words(known[-1] if known else causes[-1])}"


def _one_line(detail: str) -> str:
    return one_line(" ".join(detail.split()), MOST_DETAIL_CHARACTERS)
