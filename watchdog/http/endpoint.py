"""Where and how to reach a server: its URL, who we say we are, whom we trust."""

from dataclasses import dataclass
from pathlib import Path

from watchdog.http.url import redact_url


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how to fetch; `url` has no user info but may have query secrets, hence only a redacted repr.

    `bearer_token` is the token itself, for who has it from an environment variable.
    """

    url: str
    bearer_token_file: Path | None = None
    bearer_token: str | None = None
    username: str | None = None
    password_file: Path | None = None
    password: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_verify: bool = False

    def __repr__(self) -> str:
        return f"Endpoint({redact_url(self.url)!r})"
