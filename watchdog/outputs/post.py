"""One POST under one total deadline: the answer, or why there is none, as a value."""

import base64
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from watchdog import __version__
from watchdog.logs import escape
from watchdog.scrape.wire import Adapter, Wire
from watchdog.settings import Credentials, Endpoint
from watchdog.settings_values import split_user_info

MAX_ANSWER_BYTES = 64 * 1024
MAX_HEADER_BYTES = 64 * 1024
_TOLD_CHARACTERS = 200


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
        self._url, self._user, self._password = split_user_info(endpoint.url)
        self._status_is_enough = status_is_enough
        self._wire = Wire()

    def post(self, body: bytes, timeout_seconds: float) -> Answer:
        """Posts `body`; never raises, and takes `timeout_seconds` at most."""
        try:
            self._wire.begin(timeout_seconds, MAX_HEADER_BYTES)
            parts = urlsplit(self._url)
            self._wire.resolve(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
            return self._exchange(body)
        except Exception as error:  # whatever libraries raise: a post that failed is an answer
            if self._wire.stopped:
                return Answer(0, "stopped")
            return Answer(
                0, _told(error, f"no whole answer within {timeout_seconds:g} s, {self._wire.stage}")
            )

    def abort(self) -> None:
        """Ends the post under way, from another thread, and refuses further ones."""
        self._wire.stop()

    def _exchange(self, body: bytes) -> Answer:
        with (
            _session(self._endpoint, self._wire) as session,
            session.post(
                self._url,
                data=body,
                headers=self._headers(),
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
            return Answer(status, _shown(status, content, html), html, content)

    def _headers(self) -> Mapping[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "Connection": "close"}
        authorization = self._authorization()
        return headers | ({"Authorization": authorization} if authorization else {})

    def _authorization(self) -> str:
        """Who we are, read from its files at each post, as secrets are rotated; empty where nobody asks."""
        endpoint = self._endpoint
        if endpoint.bearer_token_file is not None:
            return f"Bearer {_secret(endpoint.bearer_token_file)}"
        password = endpoint.password.get_secret_value() if endpoint.password else self._password
        if endpoint.password_file is not None:
            password = _secret(endpoint.password_file)
        user = endpoint.username or self._user
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""


def endpoint_at(url: str, credentials: Credentials) -> Endpoint:
    """`url` with the credentials that the settings give beside it."""
    names = {field.name for field in fields(Endpoint)} - {"url"}
    return Endpoint(url=url, **{name: getattr(credentials, name) for name in names})


class _SecretError(Exception):
    pass


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002
        """Never follow: the library would read a redirect's body, however long, to prepare the next step."""
        return None


def _session(endpoint: Endpoint, wire: Wire) -> requests.Session:
    session = _Session()
    session.trust_env = False
    adapter = Adapter(wire)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    session.headers["User-Agent"] = f"vllm-watchdog/{__version__}"
    session.verify = str(endpoint.ca_file) if endpoint.ca_file else not endpoint.insecure_skip_verify
    if endpoint.cert_file is not None:
        pair = (str(endpoint.cert_file), str(endpoint.key_file))
        session.cert = pair if endpoint.key_file else pair[0]
    return session


def _start_of(response: requests.Response) -> bytes:
    """What the receiver says, as far as it is of use; the rest goes with the connection."""
    parts: list[bytes] = []
    wanted = MAX_ANSWER_BYTES
    while wanted > 0 and (part := response.raw.read(min(wanted, 16 * 1024), decode_content=False)):
        parts.append(part)
        wanted -= len(part)
    return b"".join(parts)


def _shown(status: int, content: bytes, html: bool) -> str:
    if html:
        return f"status {status} with an HTML page"
    text = escape(content[:_TOLD_CHARACTERS].decode("utf-8", "replace").strip())
    return f"status {status}" + (f": {text}" if text else "")


def _secret(path: Path) -> str:
    text = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    if not text or not text.isprintable() or not text.isascii():
        raise _SecretError(f"{path} holds no secret, or more than one line")
    return text


def _told(error: Exception, late: str) -> str:
    """The cause in few words; the texts of requests hold the URL, so they are not used."""
    if isinstance(error, _SecretError):
        return escape(str(error))
    causes = _causes(error)
    if any(isinstance(cause, TimeoutError) for cause in causes):
        return late
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return f"TLS: {escape(str(getattr(cause, 'verify_message', '') or cause.reason or 'broken'))}"
        if isinstance(cause, socket.gaierror):
            return "the host name does not resolve"
    spoken = [cause for cause in causes if isinstance(cause, OSError) and cause.strerror]
    if spoken:
        place = f": {spoken[-1].filename}" if spoken[-1].filename else ""
        return escape(f"{spoken[-1].strerror}{place}")
    return f"the exchange broke ({type(causes[-1]).__name__})"


def _causes(error: Exception) -> list[BaseException]:
    """The error and what it wraps; requests and urllib3 hide causes in several places."""
    causes: list[BaseException] = []
    waiting: list[Any] = [error]
    while waiting and len(causes) < 20:
        each = waiting.pop(0)
        if isinstance(each, BaseException) and each not in causes:
            causes.append(each)
            waiting += [*each.args, getattr(each, "reason", None), each.__cause__, each.__context__]
    return causes
