"""Serves a recording on loopback at its own pace, so that it can be watched like any vLLM."""

import json
import socket
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from watchdog.model import Scrape, ServerInfo
from watchdog.replay.rounds import carried_on, gains
from watchdog.scrape.load import answer_of
from watchdog.scrape.recording import read
from watchdog.settings.values import parse_vllm_args

RECORDING = Path(__file__).with_name("kv-pool-exhausted.jsonl.xz")
# Calm to learn from before things go wrong, yet short enough for a visitor.
CALM_SECONDS = 20.0
CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"


class ReplayServer:
    """A small HTTP server whose `/metrics` is the page of the moment; at the recording's end it begins again.

    Counters go on from where the round before ended, so that a new round is no restart of the server.
    `begin_seconds` is where in the recording to start, `speed` its pace, `clock` seconds that only grow.
    """

    def __init__(
        self,
        scrapes: Sequence[Scrape],
        begin_seconds: float = 0.0,
        speed: float = 1.0,
        port: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not scrapes:
            raise ValueError("a recording without a scrape cannot be served")
        self._scrapes = scrapes
        self._offsets = [scrape.wall - scrapes[0].wall for scrape in scrapes]
        self._begin_seconds = begin_seconds
        self.has_load = any(scrape.load is not None for scrape in scrapes)
        """Whether the recording holds answers of `GET /load`."""
        self._gains = gains(self._at(0.0).body, scrapes[-1].body)
        self._speed = speed
        self._clock = clock
        self._started = clock()
        self._http = _Server(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._http.serve_forever, name="replay-server", daemon=True)

    @property
    def url(self) -> str:
        """The address of the metrics page."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/metrics"

    @property
    def server_info(self) -> ServerInfo:
        """What the recorded server said beside its page."""
        return self._scrapes[0].server_info

    @property
    def scrapes(self) -> Sequence[Scrape]:
        """What a visitor sees in one round."""
        return self._scrapes[bisect_left(self._offsets, self._begin_seconds) :]

    @property
    def round_seconds(self) -> float:
        """How long until it begins again, in seconds of the recording."""
        # The last page lasts as long as the one before it did.
        last = self._offsets[-1] - self._offsets[-2] if len(self._offsets) > 1 else 1.0
        return self._offsets[-1] - self._begin_seconds + last

    def current(self) -> Scrape:
        """The scrape a visitor sees now."""
        rounds, passed = divmod((self._clock() - self._started) * self._speed, self.round_seconds)
        scrape = self._at(passed)
        return replace(scrape, body=carried_on(scrape.body, self._gains, int(rounds)))

    def _at(self, passed_seconds: float) -> Scrape:
        """What was recorded so long after the round's beginning."""
        index = bisect_right(self._offsets, self._begin_seconds + passed_seconds) - 1
        return self._scrapes[max(index, 0)]

    def start(self) -> Self:
        """Begins to serve from a thread of its own; the recording's time starts now."""
        self._started = self._clock()
        self._thread.start()
        return self

    def close(self) -> None:
        """Stops serving, gives the port back, and ends the connections that clients keep."""
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()
        self._http.hang_up()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def demo_server(port: int = 0) -> ReplayServer:
    """The embedded recording, from a little before its incident on; it is not started yet."""
    recording, scrapes = read(RECORDING)
    longest = _longest_request(recording.meta)
    pages = tuple(
        replace(each, server_info=replace(each.server_info, max_model_len=longest)) for each in scrapes
    )
    incident = next(phase for phase in recording.phases if phase.label == recording.name)
    return ReplayServer(pages, max(0.0, incident.start - CALM_SECONDS - pages[0].wall), port=port)


def _longest_request(meta: Mapping[str, object]) -> int | None:
    """What `/v1/models` of the recorded server said, by its launch flags; None where these do not tell."""
    flags = parse_vllm_args(meta.get("flags"))
    length = flags.get("--max-model-len", "") if isinstance(flags, dict) else ""
    return int(length) if length.isdecimal() else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A service that is told to stop does not wait for a client that keeps its connection.
    block_on_close = False

    def __init__(self, address: tuple[str, int], replay: ReplayServer) -> None:
        self.replay = replay
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Notes the connection."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forgets the connection."""
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Ends every connection."""
        for connection in tuple(self._open):
            # It may have ended by itself.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: a client that left is no event."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """Answers as vLLM's API server does."""
        replay = self.server.replay
        path = self.path.split("?")[0].rstrip("/")
        if path == "/metrics":
            self._page(replay.current())
        elif path == "/version":
            info = replay.server_info
            front_end = info.rust_frontend_version
            told = {"version": info.version} | ({"rust_frontend_version": front_end} if front_end else {})
            self._json(told)
        elif path == "/v1/models":
            names = replay.server_info.models or ("recorded",)
            limit = replay.server_info.max_model_len
            models = [{"id": name, "object": "model", "max_model_len": limit} for name in names]
            self._json({"object": "list", "data": models})
        elif path == "/load" and replay.has_load:
            self._load(replay.current().load)
        elif path == "/health":
            self._send(200, "text/plain", b"")
        else:
            self._send(404, "application/json", b'{"detail":"Not Found"}')

    def _page(self, scrape: Scrape) -> None:
        if scrape.status == 0:
            # What nobody answered then is not answered now.
            self.close_connection = True
        else:
            self._send(scrape.status, CONTENT_TYPE, scrape.body)

    def _load(self, load: int | None) -> None:
        # Where it was not read beside that page nobody knows what it would have been; it is there all the same.
        if load is None:
            self._send(503, "text/plain", b"not recorded at this moment")
        else:
            self._send(200, "application/json", answer_of(load).encode())

    def _json(self, body: object) -> None:
        self._send(200, "application/json", json.dumps(body).encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Says nothing."""
