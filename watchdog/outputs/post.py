"""One POST under one total deadline: the answer, or why there is none, as a value."""

import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth

import watchdog
from watchdog.logs import escape
from watchdog.settings import Credentials, Endpoint

MAX_ANSWER_BYTES = 64 * 1024
_USER_AGENT = f"vllm-watchdog/{watchdog.__version__}"
# A total of a few bytes less than nothing is still a deadline.
_LEAST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a post: `status` 0 where no whole answer came; `detail` holds neither URL nor secret."""

    status: int
    detail: str
    html: bool = False
    content: bytes = b""

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
        self._status_is_enough = status_is_enough
        self._cut: _Cut | None = None
        self._aborted = False

    def post(self, body: bytes, timeout_seconds: float) -> Answer:
        """Posts `body`; never raises, and takes `timeout_seconds` at most once the host name is known."""
        cut = _Cut(max(timeout_seconds, _LEAST_SECONDS))
        self._cut = cut
        if self._aborted:
            return Answer(0, "stopped")
        try:
            with cut, _session(cut) as session:
                answer = self._exchange(session, cut, body)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            answer = Answer(0, _short(error))
        if cut.fired and not self._aborted:
            # A connection that was cut looks like a normal end of the answer.
            return Answer(0, f"no whole answer within {timeout_seconds:g} s")
        return answer

    def abort(self) -> None:
        """Ends the post under way and refuses further ones."""
        self._aborted = True
        if self._cut is not None:
            self._cut.fire()

    def _exchange(self, session: requests.Session, cut: "_Cut", body: bytes) -> Answer:
        endpoint = self._endpoint
        with session.post(
            endpoint.url,
            data=body,
            headers=self._headers(),
            auth=self._basic(),
            timeout=cut.remaining_seconds(),
            allow_redirects=False,
            stream=True,
            verify=_verification(endpoint),
            cert=_client_certificate(endpoint),
        ) as response:
            enough = self._status_is_enough and response.ok and not response.is_redirect
            content = b"" if enough else _read(response, cut)
            html = "html" in response.headers.get("Content-Type", "").lower()
            if 300 <= response.status_code < 400:
                return Answer(response.status_code, f"redirect ({response.status_code}), not followed")
            return Answer(response.status_code, _told(response.status_code, content, html), html, content)

    def _headers(self) -> Mapping[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "Connection": "close",
            "User-Agent": _USER_AGENT,
        }
        if self._endpoint.bearer_token_file is not None:
            headers["Authorization"] = f"Bearer {_secret(self._endpoint.bearer_token_file)}"
        return headers

    def _basic(self) -> HTTPBasicAuth | None:
        endpoint = self._endpoint
        if endpoint.username is None:
            return None
        password = endpoint.password.get_secret_value() if endpoint.password else ""
        if endpoint.password_file is not None:
            password = _secret(endpoint.password_file)
        # As bytes: requests would take text for Latin-1.
        return HTTPBasicAuth(endpoint.username.encode(), password.encode())


def endpoint_at(url: str, credentials: Credentials) -> Endpoint:
    """`url` with the credentials that the settings give beside it."""
    names = {field.name for field in fields(Endpoint)} - {"url"}
    return Endpoint(url=url, **{name: getattr(credentials, name) for name in names})


class _Cut:
    """Shuts the connection down at the deadline: a timeout of requests is one of each read, not in all."""

    def __init__(self, seconds: float) -> None:
        self.fired = False
        self._ends_at = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._timer = threading.Timer(seconds, self.fire)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._forget()

    def remaining_seconds(self) -> float:
        return max(self._ends_at - time.monotonic(), _LEAST_SECONDS)

    def watch(self, connection: socket.socket) -> None:
        """Keeps a duplicate: it stays valid where TLS takes the socket over, also during the handshake."""
        with self._lock:
            self._forget()
            self._connection = connection.dup()
            if self.fired:
                self._shut()

    def fire(self) -> None:
        with self._lock:
            self.fired = True
            self._shut()

    def _shut(self) -> None:
        if self._connection is not None:
            try:
                self._connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it is gone already

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Connection(urllib3.connection.HTTPConnection):
    cut: _Cut

    def _new_conn(self) -> socket.socket:
        connection = super()._new_conn()
        self.cut.watch(connection)
        return connection


class _TlsConnection(urllib3.connection.HTTPSConnection):
    cut: _Cut

    def _new_conn(self) -> socket.socket:
        connection = super()._new_conn()
        self.cut.watch(connection)
        return connection

    def connect(self) -> None:
        super().connect()
        # Who asked not to verify is told so once, when the settings are read, not at each post.
        self.is_verified = True


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection
    cut: _Cut

    def _new_conn(self) -> Any:
        connection = super()._new_conn()
        connection.cut = self.cut  # type: ignore[attr-defined]
        return connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection
    cut: _Cut

    def _new_conn(self) -> Any:
        connection = super()._new_conn()
        connection.cut = self.cut  # type: ignore[attr-defined]
        return connection


class _Adapter(HTTPAdapter):
    """Hands the deadline down to the connections it makes."""

    def __init__(self, cut: _Cut) -> None:
        self._cut = cut
        super().__init__(max_retries=0)

    def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
        super().init_poolmanager(*arguments, **keywords)
        kinds = {"http": _Pool, "https": _TlsPool}
        self.poolmanager.pool_classes_by_scheme = {
            scheme: type(kind.__name__, (kind,), {"cut": self._cut}) for scheme, kind in kinds.items()
        }


def _session(cut: _Cut) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", _Adapter(cut))
    session.mount("https://", _Adapter(cut))
    return session


def _read(response: requests.Response, cut: _Cut) -> bytes:
    """What the receiver says, as far as it is of use; the rest is dropped with the connection."""
    parts: list[bytes] = []
    wanted = MAX_ANSWER_BYTES
    while wanted > 0 and not cut.fired:
        part = response.raw.read1(min(wanted, 16 * 1024), decode_content=False)
        if not part:
            break
        parts.append(part)
        wanted -= len(part)
    return b"".join(parts)


def _told(status: int, content: bytes, html: bool) -> str:
    text = "" if html else escape(content[:200].decode("utf-8", "replace").strip())
    kind = " with an HTML page" if html else ""
    return f"status {status}{kind}" + (f": {text}" if text else "")


def _verification(endpoint: Endpoint) -> bool | str:
    if endpoint.insecure_skip_verify:
        return False
    return str(endpoint.ca_file) if endpoint.ca_file else True


def _client_certificate(endpoint: Endpoint) -> str | tuple[str, str] | None:
    if endpoint.cert_file is None:
        return None
    return (str(endpoint.cert_file), str(endpoint.key_file)) if endpoint.key_file else str(endpoint.cert_file)


def _secret(path: Path) -> str:
    text = path.read_text(encoding="utf-8").strip()
    if not text or not text.isprintable():
        raise _SecretError(f"{path} holds no usable secret")
    return text


class _SecretError(ValueError):
    pass


def _short(error: BaseException) -> str:
    """The cause in few words; the texts of requests hold the URL, so they are not used."""
    if isinstance(error, _SecretError):
        return str(error)
    if isinstance(error, requests.exceptions.Timeout):
        return "no answer in time"
    chain = _causes(error)
    for cause in chain:
        if isinstance(cause, ssl.SSLError):
            return f"TLS: {escape(str(getattr(cause, 'verify_message', '') or cause.reason or 'broken'))}"
        if isinstance(cause, socket.gaierror):
            return "the host name is not known"
    spoken = [cause for cause in chain if isinstance(cause, OSError) and cause.strerror]
    if spoken:
        place = f": {spoken[-1].filename}" if spoken[-1].filename else ""
        return escape(f"{spoken[-1].strerror}{place}")
    return f"the exchange broke ({type(chain[-1]).__name__})"


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what it wraps, innermost last; requests and urllib3 hide causes in three places."""
    chain: list[BaseException] = []
    waiting: list[Any] = [error]
    while waiting and len(chain) < 20:
        each = waiting.pop(0)
        if isinstance(each, BaseException) and each not in chain:
            chain.append(each)
            waiting += [each.__cause__, each.__context__, getattr(each, "reason", None), *each.args]
    return chain
