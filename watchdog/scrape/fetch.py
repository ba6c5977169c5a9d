"""One page from one server, within one deadline, or the reason why there is none."""

import json
import time
from dataclasses import dataclass

from watchdog.http.endpoint import Endpoint
from watchdog.http.get import Answer, Getter, RefusedError
from watchdog.http.url import beside
from watchdog.model import Reason, Scrape, ServerInfo
from watchdog.scrape.load import LoadAsking, requests_in_flight
from watchdog.text import one_line

ACCEPT = "text/plain;version=0.0.4"
# Enough for a server with hundreds of adapters; what it says of itself is not worth a longer wait.
FACTS_BYTES = 1024 * 1024
FACTS_SECONDS = 2.0
MOST_MODELS = 200
MOST_FACT_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What a fetch may take at most; `deadline_seconds` is for all of it, from the name to the last byte."""

    deadline_seconds: float = 4.0
    max_body_bytes: int = 16 * 1024 * 1024
    max_header_bytes: int = 64 * 1024


class Fetcher:
    """Fetches the pages of one server, over one connection where it stays open; one fetch at a time."""

    def __init__(self, endpoint: Endpoint, limits: FetchLimits) -> None:
        self._limits = limits
        self._getter = Getter(endpoint, limits.max_header_bytes)
        self._server_info = ServerInfo()
        self._load_asking = LoadAsking()

    def fetch(self, at: float, wall: float, suspects_api_server: bool = False) -> Scrape:
        """Returns the page, or why there is none; never raises, and takes the deadline's time at most.

        `at` and `wall` are handed on; what `server_info` last read comes with every scrape. `GET /load` is read beside
        a page on which nothing moved, or where the API server is suspected, and about once a minute otherwise.
        """
        began = time.monotonic()
        body, failure = b"", None
        try:
            limits = self._limits
            answer = self._getter.get(
                self._getter.url, ACCEPT, limits.deadline_seconds, limits.max_body_bytes
            )
            _check_page(answer)
            body = answer.body
        except Exception as error:  # Whatever libraries raise: a scrape that failed is data.
            failure = self._getter.failure(error, self._limits.deadline_seconds)
        took_seconds, status = time.monotonic() - began, self._getter.status
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
        self._getter.close()

    def _load(self, ends_at: float) -> int | None:
        load = requests_in_flight(self._body_of("load", ends_at))
        if 400 <= self._getter.status < 500:
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
            url = beside(self._getter.url, path)
            return self._getter.get(url, "application/json", seconds, FACTS_BYTES).body
        except Exception:  # Best effort: a server that does not tell is as good as any other.
            return b""


def _check_page(answer: Answer) -> None:
    """Refuses a page that is not whole though nothing on the way said so."""
    headers, body = answer.headers, answer.body
    if not body:
        raise RefusedError(Reason.EMPTY, "the page is empty")
    counted = "Content-Length" in headers or "Transfer-Encoding" in headers
    if not counted and not body.endswith(b"\n"):
        raise RefusedError(Reason.TRUNCATED, "the page has no length and ends within a line")
    openmetrics = headers.get("Content-Type", "").strip().lower().startswith("application/openmetrics-text")
    if openmetrics and not body.rstrip().endswith(b"# EOF"):
        raise RefusedError(Reason.TRUNCATED, "the OpenMetrics page does not end with # EOF")


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
