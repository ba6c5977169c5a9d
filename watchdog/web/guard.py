"""Stands before every request: host names, credentials, sizes; and puts the safe headers on every answer."""

import ipaddress
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from watchdog.settings.model import WebSettings
from watchdog.text import one_line
from watchdog.web.answers import SAFE_HEADERS, error_response
from watchdog.web.auth import Door

MAX_QUERY_BYTES = 4096
MAX_PATH_CHARACTERS = 4096

# What Alertmanager may send in one post: it gives up for good what it is answered 413 to.
STORM_PATH = "/alertmanager"
STORM_BYTES = 8 * 1024 * 1024
# Names that no stranger can register, so no page on the web can be made to point them at us.
_PRIVATE_ENDINGS = (".localhost", ".local", ".internal", ".svc")


class Hosts:
    """The host names we answer to. Any other is refused, else a web page could read us by DNS rebinding.

    IP addresses, names without a dot and names under private endings pass: rebinding needs a public name.
    """

    def __init__(self, settings: WebSettings) -> None:
        external = urlsplit(settings.external_url).hostname if settings.external_url else None
        self._external = (external or "").lower()
        names = [settings.host, external or "", *settings.allowed_hosts]
        self._names = frozenset(name.lower() for name in names if name)
        self._endings = tuple(name[1:] for name in self._names if name.startswith("*."))
        self._any = "*" in self._names

    def allows(self, header: str) -> bool:
        """Whether a request with this Host header may pass; an empty one is not a browser's."""
        name = _host_name(header).lower().rstrip(".")
        if self._any or not header or name in self._names:
            return True
        return _is_address(name) or _is_private(name) or name.endswith(self._endings)

    def is_own_origin(self, origin: str, host: str) -> bool:
        """Whether an Origin header names the very address that was asked, or ours behind a proxy."""
        try:
            parts = urlsplit(origin.lower())
        except ValueError:
            return False
        own = parts.netloc == host.lower() or (bool(self._external) and parts.hostname == self._external)
        return bool(parts.netloc) and own


class Guard:
    """ASGI middleware; see the module's sentence."""

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self._app = app
        self._hosts = Hosts(settings)
        self._door = Door(settings)
        self._max_body_bytes = settings.max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, or hand it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sender = _safe_sender(send, is_head=scope["method"] == "HEAD")
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        refusal = self._refusal(scope)
        # Nobody is left to be answered, and nothing of ours went wrong.
        with suppress(ClientDisconnect):
            await (refusal or self._app)(scope, receive, sender)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = _headers(scope["headers"])
        if {"content-length", "transfer-encoding"} <= headers.keys():
            # A proxy that goes by the other one would take the rest for another caller's request.
            text = "a body has a Content-Length or a Transfer-Encoding, not both"
            return error_response(400, text, headers={"connection": "close"})
        if not self._hosts.allows(headers.get("host", "")):
            return error_response(
                400,
                f"this host name is not allowed: '{one_line(_host_name(headers['host']), 100)}'; "
                "add it to web.allowed_hosts if it is ours",
                "host_not_allowed",
            )
        if len(scope["query_string"]) > MAX_QUERY_BYTES or len(scope["path"]) > MAX_PATH_CHARACTERS:
            return error_response(414, f"the path or the query is longer than {MAX_QUERY_BYTES} bytes")
        refusal = self._door.refusal(scope["path"], headers.get("authorization"))
        if refusal is not None:
            challenge = {"www-authenticate": refusal.challenge} if refusal.challenge else {}
            return error_response(refusal.status, refusal.message, headers=challenge)
        if scope["method"] not in {"GET", "HEAD"} and self._is_from_other_site(scope["method"], headers):
            return error_response(403, "a page of another site must not make this request", "cross_site")
        return self._size_refusal(scope["path"], headers)

    def _is_from_other_site(self, method: str, headers: Mapping[str, str]) -> bool:
        """Browsers say so; without this a stranger's page could post with the credentials a browser remembers.

        Over plain HTTP, to a name that is not localhost, they send no Sec-Fetch-Site, and only Origin shows it.
        """
        if (site := headers.get("sec-fetch-site")) is not None:
            return site not in {"same-origin", "none"}
        origin = headers.get("origin")
        # To ask beforehand changes nothing.
        if origin is None or method == "OPTIONS":
            return False
        return not self._hosts.is_own_origin(origin, headers.get("host", ""))

    def _size_refusal(self, path: str, headers: Mapping[str, str]) -> ASGIApp | None:
        most = max(self._max_body_bytes, STORM_BYTES) if path == STORM_PATH else self._max_body_bytes
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and len(length) < 20 and int(length) <= most:
            return None
        return error_response(413, f"a request body may have {most} bytes at most")


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> Mapping[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs}


def _host_name(header: str) -> str:
    if header.startswith("["):
        return header.partition("]")[0].strip("[")
    return header.rpartition(":")[0] if header.count(":") == 1 else header


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_private(name: str) -> bool:
    plain = name.replace("-", "").replace("_", "")
    return (bool(plain) and plain.isalnum()) or name.endswith(_PRIVATE_ENDINGS)


def _safe_sender(send: Send, is_head: bool) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": _with_safe_headers(message.get("headers", ()))}
        elif is_head and message["type"] == "http.response.body":
            if message.get("more_body", False):
                return
            message = {**message, "body": b""}
        await send(message)

    return sender


def _with_safe_headers(headers: Iterable[Any]) -> list[tuple[bytes, bytes]]:
    given = list(headers)
    names = {name.lower() for name, _ in given}
    added = ((name.encode(), value.encode()) for name, value in SAFE_HEADERS.items())
    return given + [(name, value) for name, value in added if name not in names]
