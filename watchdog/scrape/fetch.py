"""One page from one server, within one deadline, or the reason why there is none."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import BadStatusLine, HTTPException
from typing import NamedTuple
from urllib.parse import urlsplit

import requests
from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError, IncompleteRead, LocationParseError, ProtocolError

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
from watchdog.http.url import beside, redact_url, split_user_info
from watchdog.http.wire import Adapter, Stage, Wire
from watchdog.model import Failure, Reason, Scrape, ServerInfo
from watchdog.scrape.load import LoadAsking, requests_in_flight
from watchdog.text import one_line

ACCEPT = "text/plain;version=0.0.4"
READ_BYTES = 64 * 1024
# Enough for a server with hundreds of adapters; what it says of itself is not worth a longer wait.
FACTS_BYTES = 1024 * 1024
FACTS_SECONDS = 2.0
MOST_MODELS = 200
MOST_FACT_CHARACTERS = 200
MOST_DETAIL_CHARACTERS = 300
# What OpenSSL calls an answer in plain text, by its version.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What a fetch may take at most; `deadline_seconds` is for all of it, from the name to the last byte."""

    deadline_seconds: float = 4.0
    max_body_bytes: int = 16 * 1024 * 1024
    max_header_bytes: int = 64 * 1024


class _Answer(NamedTuple):
    """A whole answer; `headers` knows its names in any case."""

    headers: Mapping[str, str]
    body: bytes


class _RefusedError(Exception):
    """An answer, or a request, that comes to nothing for a reason we know."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Fetcher:
    """Fetches the pages of one server, over one connection where it stays open; one fetch at a time."""

    def __init__(self, endpoint: Endpoint, limits: FetchLimits) -> None:
        self._endpoint = endpoint
        self._limits = limits
        self._url, self._user, self._password = split_user_info(endpoint.url)
        self._server_info = ServerInfo()
        self._status = 0
        self._wire = Wire()
        self._adapter = Adapter(self._wire)
        self._session = open_session(endpoint, self._adapter)
        self._requests: dict[str, requests.PreparedRequest] = {}
        self._load_asking = LoadAsking()
        self._lock = threading.Lock()

    def fetch(self, at: float, wall: float, suspects_api_server: bool = False) -> Scrape:
        """Returns the page, or why there is none; never raises, and takes the deadline's time at most.

        `at` and `wall` are handed on; what `server_info` last read comes with every scrape. `GET /load` is read beside
        a page on which nothing moved, or where the API server is suspected, and about once a minute otherwise.
        """
        began = time.monotonic()
        body, failure = b"", None
        try:
            with self._lock:
                limits = self._limits
                answer = self._exchange(self._url, ACCEPT, limits.deadline_seconds, limits.max_body_bytes)
                _check_page(answer)
                body = answer.body
        except Exception as error:  # Whatever libraries raise: a scrape that failed is data.
            failure = self._failure(error)
        took_seconds, status = time.monotonic() - began, self._status
        load = None
        if failure is not None:
            self._load_asking.begin_again()
        elif self._load_asking.is_due(body, at, suspects_api_server):
            load = self._load(began + self._limits.deadline_seconds)
        return Scrape(at, wall, took_seconds, status, body, failure, self._server_info, load)

    def server_info(self) -> ServerInfo:
        """Returns what the server says beside its page, as far as it says it within two seconds."""
        ends_at = time.monotonic() + min(FACTS_SECONDS, self._limits.deadline_seconds)
        told = self._json("version", ends_at)
        max_model_len, models = _models(self._json("v1/models", ends_at))
        self._server_info = ServerInfo(
            _version(told, "version"), max_model_len, models, _version(told, "rust_frontend_version")
        )
        return self._server_info

    def close(self) -> None:
        """Closes the connection; a fetch under way in another thread ends at once, as failed."""
        self._wire.stop()
        self._session.close()

    def _load(self, ends_at: float) -> int | None:
        load = requests_in_flight(self._body_of("load", ends_at))
        if 400 <= self._status < 500:
            self._load_asking.refused()
        return load

    def _json(self, path: str, ends_at: float) -> object:
        try:
            told: object = json.loads(self._body_of(path, ends_at))
        except (ValueError, RecursionError):
            return None
        return told

    def _body_of(self, path: str, ends_at: float) -> bytes:
        """What a path beside the page answers, empty where it does not in time."""
        seconds = ends_at - time.monotonic()
        if seconds <= 0:
            return b""
        try:
            with self._lock:
                return self._exchange(beside(self._url, path), "application/json", seconds, FACTS_BYTES).body
        except Exception:  # Best effort: a server that does not tell is as good as any other.
            return b""

    def _exchange(self, url: str, accept: str, seconds: float, max_body_bytes: int) -> _Answer:
        self._status = 0
        self._wire.begin(seconds, self._limits.max_header_bytes)
        host, port = _host_and_port(url)
        headers = {"Accept": accept, "X-Prometheus-Scrape-Timeout-Seconds": f"{seconds:g}"}
        headers |= authorization(self._endpoint, self._user, self._password)
        check_certificate_files(self._endpoint)
        self._wire.resolve(host, port)
        if not self._wire.peer_is_current:
            self._adapter.drop()
        while True:
            try:
                return self._request(url, headers, max_body_bytes)
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

    def _request(self, url: str, headers: Mapping[str, str], max_body_bytes: int) -> _Answer:
        request = self._requests.get(url)
        if request is None:
            request = self._requests[url] = self._session.prepare_request(requests.Request("GET", url))
        response = self._adapter.exchange(self._session, request, headers)
        try:
            self._status = response.status
            _check_head(response, max_body_bytes)
            body = _read(response, max_body_bytes)
        finally:
            # Once it is read whole, its connection is back in the pool; of what is left nobody wants to know.
            response.close()
            response.release_conn()
        self._wire.remaining_seconds()  # Stopped from outside, a body without a length looks whole.
        return _Answer(response.headers, body)

    def _failure(self, error: Exception) -> Failure:
        if isinstance(error, _RefusedError):
            reason, detail = error.reason, error.detail
        elif isinstance(error, SecretFileError):
            reason, detail = Reason.AUTH_CONFIG, str(error)
        elif isinstance(error, CertificateFileError):
            reason, detail = Reason.TLS, str(error)
        elif self._wire.stopped:
            reason, detail = Reason.TIMEOUT, "the fetch was stopped"
        else:
            reason, detail = _told(list(underlying(error)), self._wire.stage, self._limits.deadline_seconds)
        connecting = self._wire.stage in {Stage.RESOLVING, Stage.CONNECTING}
        return Failure(reason, _one_line(detail), reason is Reason.TIMEOUT and connecting)


def _host_and_port(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _RefusedError(Reason.PROTOCOL, "the URL cannot be read") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise _RefusedError(Reason.PROTOCOL, "the URL is none of http:// or https:// with a host")
    return host, port or (443 if parts.scheme == "https" else 80)


def _check_head(response: BaseHTTPResponse, max_body_bytes: int) -> None:
    """Refuses an answer whose body we do not want to see."""
    status, headers = response.status, response.headers

    if 300 <= status < 400:
        target = redact_url(headers.get("Location", "nowhere"))
        raise _RefusedError(Reason.REDIRECT, f"HTTP {status} to {target}, not followed")
    if status != 200:
        raise _RefusedError(Reason.STATUS, f"HTTP {status} {response.reason}")
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    transfer = headers.get("Transfer-Encoding", "chunked").strip().lower()
    if encoding not in {"", "identity"} or transfer != "chunked":
        raise _RefusedError(
            Reason.ENCODING, f"the page is encoded as {encoding}, {transfer} although plain was asked for"
        )
    length = headers.get("Content-Length", "0").strip()
    if not (length.isascii() and length.isdigit()):
        raise _RefusedError(Reason.PROTOCOL, "a Content-Length that is no number")
    # Its digits first: Python takes its time over a number of thousands of them.
    if len(length.lstrip("0")) > 18 or int(length) > max_body_bytes:
        raise _RefusedError(Reason.TOO_LARGE, f"the page is larger than {max_body_bytes} bytes")


def _read(response: BaseHTTPResponse, max_body_bytes: int) -> bytes:
    """Reads the body; raises _RefusedError as soon as it is longer than it may be."""
    parts: list[bytes] = []
    size_bytes = 0
    try:
        while part := response.read(READ_BYTES, decode_content=False):
            size_bytes += len(part)
            if size_bytes > max_body_bytes:
                detail = f"the page is larger than {max_body_bytes} bytes"
                raise _RefusedError(Reason.TOO_LARGE, detail)
            parts.append(part)
    except ProtocolError as error:
        detail = f"the connection ended in the middle of the page, after {size_bytes} bytes"
        if isinstance(error, IncompleteRead) or any(map(_is_cut, underlying(error))):
            raise _RefusedError(Reason.TRUNCATED, detail) from None
        raise
    return b"".join(parts)


def _is_cut(cause: BaseException) -> bool:
    return isinstance(cause, ConnectionError | HTTPException) and not isinstance(cause, TimeoutError)


def _check_page(answer: _Answer) -> None:
    """Refuses a page that is not whole though nothing on the way said so."""
    headers, body = answer
    if not body:
        raise _RefusedError(Reason.EMPTY, "the page is empty")
    counted = "Content-Length" in headers or "Transfer-Encoding" in headers
    if not counted and not body.endswith(b"\n"):
        raise _RefusedError(Reason.TRUNCATED, "the page has no length and ends in the middle of a line")
    openmetrics = headers.get("Content-Type", "").strip().lower().startswith("application/openmetrics-text")
    if openmetrics and not body.rstrip().endswith(b"# EOF"):
        raise _RefusedError(Reason.TRUNCATED, "the OpenMetrics page does not end with # EOF")


def _told(causes: list[BaseException], stage: Stage, deadline_seconds: float) -> tuple[Reason, str]:
    """Returns the reason and a sentence for what went wrong, by the most telling cause."""
    lack = next(filter(out_of_resources, causes), None)
    if lack is not None:
        return Reason.RESOURCES, f"{system_words(lack)} while {stage}"
    if any(isinstance(cause, TimeoutError) for cause in causes):
        reason = Reason.DNS if stage is Stage.RESOLVING else Reason.TIMEOUT
        return reason, f"no whole page within {deadline_seconds:g} s, still {stage}"
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
    return _told_by(causes, (HTTPException, HTTPError), Reason.PROTOCOL, f"not HTTP as we know it, {stage}")


def _told_by(
    causes: list[BaseException], kinds: tuple[type[BaseException], ...], reason: Reason, what: str
) -> tuple[Reason, str]:
    # The innermost is the one that knows: libraries wrap it in words about themselves and the URL.
    known = [cause for cause in causes if isinstance(cause, kinds)]
    return reason, f"{what}: {system_words(known[-1] if known else causes[-1])}"


def _one_line(detail: str) -> str:
    return one_line(" ".join(detail.split()), MOST_DETAIL_CHARACTERS)


def _version(told: object, of: str) -> str | None:
    version = told.get(of) if isinstance(told, dict) else None
    return _text(version) if isinstance(version, str) and version else None


def _models(told: object) -> tuple[int | None, tuple[str, ...]]:
    """Returns the greatest max_model_len and the models' ids; an adapter has no length of its own."""
    listed = told.get("data") if isinstance(told, dict) else None
    models = [model for model in listed if isinstance(model, dict)] if isinstance(listed, list) else []
    lengths = [model.get("max_model_len") for model in models]
    known = [
        length
        for length in lengths
        if isinstance(length, int) and not isinstance(length, bool) and length > 0
    ]
    names = tuple(_text(model["id"]) for model in models if isinstance(model.get("id"), str))
    return max(known, default=None), names[:MOST_MODELS]


def _text(text: str) -> str:
    return one_line(" ".join(text.split()), MOST_FACT_CHARACTERS)
