"""Who may ask: a bearer token or a name and password from files, read again at each request."""

import base64
import binascii
import hashlib
import hmac
from pathlib import Path
from typing import NamedTuple

from watchdog.settings.model import WebSettings

MAX_HEADER_CHARACTERS = 8192
MAX_SECRET_BYTES = 8192
OPEN_PATHS = frozenset({"/healthz", "/-/healthy", "/readyz", "/-/ready"})


class Refusal(NamedTuple):
    """Why a caller is turned away: status, words for the caller, and the way to sign in."""

    status: int
    message: str
    challenge: str


class Door:
    """Checks callers against the settings. Without any set, everyone may pass."""

    def __init__(self, settings: WebSettings) -> None:
        self._token_file = settings.bearer_token_file
        self._username = settings.username
        self._password_file = settings.password_file

    def refusal(self, path: str, authorization: str | None) -> Refusal | None:
        """None where the caller may pass; `authorization` is the header as sent, None without one."""
        if path in OPEN_PATHS or (self._token_file is None and self._username is None):
            return None
        try:
            secrets = self._secrets()
        except (OSError, ValueError):
            # Closed, not open: a mount that is late must not let everyone in.
            return Refusal(503, "the watchdog's credentials file cannot be read or is empty", "")
        if authorization is None:
            return Refusal(401, "credentials are required", self._challenge())
        given = _given(authorization)
        # Every comparison is made, so that time tells nothing of which one failed.
        matches = [hmac.compare_digest(_digest(given), _digest(secret)) for secret in secrets]
        return None if any(matches) else Refusal(401, "these credentials are not valid", self._challenge())

    def _secrets(self) -> list[bytes]:
        secrets = []
        if self._token_file is not None:
            secrets.append(b"bearer " + _read(self._token_file))
        if self._username is not None and self._password_file is not None:
            secrets.append(b"basic " + self._username.encode() + b":" + _read(self._password_file))
        return secrets

    def _challenge(self) -> str:
        return 'Basic realm="vllm-watchdog", charset="UTF-8"' if self._username is not None else "Bearer"


def _given(authorization: str) -> bytes:
    """The header in the form of our secrets; empty for anything that is not of that form."""
    if len(authorization) > MAX_HEADER_CHARACTERS:
        return b""
    scheme, _, credentials = authorization.partition(" ")
    value = credentials.strip().encode("latin-1", "replace")
    if scheme.lower() == "bearer":
        return b"bearer " + value
    if scheme.lower() != "basic":
        return b""
    try:
        return b"basic " + base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _read(path: Path) -> bytes:
    """A secret from its file without the blanks around it; raises OSError or ValueError (empty, too long)."""
    with path.open("rb") as file:
        secret = file.read(MAX_SECRET_BYTES + 1).strip()
    if not secret or len(secret) > MAX_SECRET_BYTES:
        raise ValueError
    return secret


def _digest(secret: bytes) -> bytes:
    """All of one length: comparing the secrets themselves would tell their length."""
    return hashlib.sha256(secret).digest()
