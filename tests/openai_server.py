"""A loopback server that speaks the streaming API of OpenAI and has a metrics page like vLLM's."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.pages import histogram, page

LABELS = 'model_name="m",engine="0"'


@dataclass
class Engine:
    """What the server pretends to be, and what it counted; all times in seconds."""

    prefill_seconds_per_token: float = 0.0
    gap_seconds: float = 0.0
    queue_seconds: float = 0.0
    block_size: int = 16
    caches_prefixes: bool = True
    has_page: bool = True
    waiting: int = 0
    running: int = 0
    kv_usage: float = 0.1
    awake: bool = True
    hangs: bool = False
    page_moves: bool = True
    key: str | None = None
    timings: dict[str, float] | None = None
    ollama: dict[str, int] | None = None
    ever: int = 1000
    tokens_a_word: int = 1
    longest_prompt: int = 1_000_000
    bodies: list[dict[str, Any]] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)
    seen: list[list[str]] = field(default_factory=list)
    counted: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, amount: float) -> None:
        self.counted[name] = self.counted.get(name, 0.0) + amount

    def cached(self, words: list[str]) -> int:
        """Words of the longest prefix seen before, in whole blocks; remembers the prompt."""
        found = 0
        if self.caches_prefixes:
            self.add("queries", len(words))
            for earlier in self.seen:
                alike = next(
                    (at for at, (a, b) in enumerate(zip(words, earlier, strict=False)) if a != b),
                    min(len(words), len(earlier)),
                )
                found = max(found, alike // self.block_size * self.block_size)
            self.add("hits", found)
        self.seen.append(words)
        return found

    def text(self) -> str:
        counted = self.counted if self.page_moves else {}
        tokens = self.ever + counted.get("tokens", 0.0)
        requests = counted.get("requests", 0.0)
        return (
            page(
                LABELS,
                num_requests_running=self.running,
                num_requests_waiting=self.waiting,
                kv_cache_usage_perc=self.kv_usage,
                generation_tokens_total=tokens,
                prompt_tokens_total=counted.get("prompt", 0.0),
                prefix_cache_queries_total=counted.get("queries", 0.0),
                prefix_cache_hits_total=counted.get("hits", 0.0),
            )
            + histogram("time_to_first_token_seconds", {0.1: requests}, requests * 0.05, LABELS)
            + histogram("request_queue_time_seconds", {0.3: requests}, requests * self.queue_seconds, LABELS)
            + f'vllm:engine_sleep_state{{{LABELS},sleep_state="awake"}} {int(self.awake)}\n'
            + f'vllm:cache_config_info{{{LABELS},block_size="{self.block_size}",'
            f'enable_prefix_caching="{self.caches_prefixes}"}} 1\n'
        )


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, engine: Engine) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.engine = engine
        self.closing = threading.Event()


class OpenAIServer:
    """Serves one engine on a free port until it is left."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._http = _Http(engine)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: "_Http"
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        engine = self.server.engine
        if self.path == "/metrics" and engine.has_page:
            self._whole(engine.text().encode(), kind="text/plain; version=0.0.4")
        elif self.path == "/v1/models" and self._may():
            self._whole(json.dumps({"data": [{"id": "m", "max_model_len": 4096}]}).encode())
        else:
            self._whole(b"{}", 404)

    def do_POST(self) -> None:
        engine = self.server.engine
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        engine.bodies.append(asked)
        engine.heads.append(dict(self.headers))
        if not self._may():
            self._whole(b'{"error": "Unauthorized"}', 401)
            return
        if self.path == "/api/generate":
            self._whole(json.dumps(engine.ollama or {}).encode())
            return
        if engine.hangs:
            self.server.closing.wait(60)
            return
        prompt = asked.get("prompt") or asked["messages"][0]["content"]
        words = [word for word in prompt.split() for _ in range(engine.tokens_a_word)]
        if len(words) > engine.longest_prompt:
            self._whole(b'{"error": {"message": "the prompt is too long"}}', 400)
            return
        cached = engine.cached(words)
        self.server.closing.wait(engine.prefill_seconds_per_token * (len(words) - cached))
        engine.add("tokens", asked["max_tokens"])
        engine.add("prompt", len(words))
        engine.add("requests", 1)
        usage = {"prompt_tokens": len(words), "completion_tokens": asked["max_tokens"]}
        if asked.get("stream"):
            self._stream(asked, usage)
        else:
            self._whole(json.dumps({"choices": [{"text": "x"}], "usage": usage}).encode())

    def _may(self) -> bool:
        key = self.server.engine.key
        return key is None or self.headers.get("Authorization") == f"Bearer {key}"

    def _stream(self, asked: dict[str, Any], usage: dict[str, int]) -> None:
        engine = self.server.engine
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for position, event in enumerate(_events(asked, usage, engine.timings)):
            if position:
                self.server.closing.wait(engine.gap_seconds)
            data = f"data: {event}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _whole(self, body: bytes, status: int = 200, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _events(asked: dict[str, Any], usage: dict[str, int], timings: dict[str, float] | None) -> Iterator[str]:
    is_chat = "messages" in asked
    if is_chat:
        yield json.dumps({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    for _ in range(asked["max_tokens"]):
        yield json.dumps({"choices": [{"delta": {"content": "x"}} if is_chat else {"text": "x"}]})
    yield json.dumps({"choices": [], "usage": usage} | ({"timings": timings} if timings else {}))
    yield "[DONE]"
