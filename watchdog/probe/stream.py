"""One streaming completion and its times: to the first byte, to the first token, and the gaps after it."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import requests

from watchdog.http.client import authorization, check_certificate_files, open_session, underlying
from watchdog.http.endpoint import Endpoint
from watchdog.http.post import MAX_HEADER_BYTES, failure_words
from watchdog.http.url import split_user_info
from watchdog.http.wire import Adapter, Wire
from watchdog.probe.completion import MARK
from watchdog.text import one_line

READ_BYTES = 64 * 1024
# A stream of the few tokens that are asked for; a line is one event.
MAX_STREAM_BYTES = 8 * 1024 * 1024
MAX_EVENT_BYTES = 1024 * 1024
_NANOSECONDS = 1e9
_GREATEST = 10**9


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: a prompt, how many tokens at most, and whether as a chat.

    `ignore_eos` asks vLLM to go on past an end of text; other servers may refuse the word.
    """

    model: str
    prompt: str
    output_tokens: int
    chat: bool = False
    ignore_eos: bool = False

    def body(self) -> bytes:
        """The request of the OpenAI API, marked as ours."""
        asked: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.output_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "user": MARK,
        }
        if self.chat:
            asked["messages"] = [{"role": "user", "content": self.prompt}]
        else:
            asked["prompt"] = self.prompt
        if self.ignore_eos:
            asked["ignore_eos"] = True
        return json.dumps(asked).encode()


@dataclass(frozen=True, slots=True)
class Split:
    """A server's own account of one request, as llama.cpp and Ollama give it; None for what it leaves out."""

    load_seconds: float | None = None
    prompt_tokens: int | None = None
    prompt_seconds: float | None = None
    output_tokens: int | None = None
    output_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Streamed:
    """What came of a streaming completion; times in seconds from the moment its connection was ready.

    `connect_seconds` is what the connection took before, TLS included; None where an open one was used again.
    `gaps` lie between events that carry tokens; `tokens` are the server's own counts (`usage`), None where it
    gives none. `detail` says why there is no whole answer, empty where there is one.
    """

    status: int
    detail: str = ""
    timed_out: bool = False
    connect_seconds: float | None = None
    first_byte_seconds: float | None = None
    first_token_seconds: float | None = None
    total_seconds: float | None = None
    gaps: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    split: Split | None = None

    @property
    def answered(self) -> bool:
        """Whether tokens came and the stream ended by itself."""
        return not self.detail and self.first_token_seconds is not None


class CompletionStreams:
    """Asks one endpoint for streaming completions, one at a time, over a connection that is kept."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._url, self._user, self._password = split_user_info(endpoint.url)
        self._wire = Wire()
        self._session = open_session(endpoint, Adapter(self._wire))

    def ask(self, question: Question, deadline_seconds: float) -> Streamed:
        """The answer to a question, as a value; never raises, and takes the deadline's time at most."""
        times = _Times()
        try:
            check_certificate_files(self._endpoint)
            self._wire.begin(deadline_seconds, MAX_HEADER_BYTES)
            parts = urlsplit(self._url)
            self._wire.resolve(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
            return self._exchange(question, times)
        except Exception as error:  # whatever libraries raise: a request that failed is an answer
            if times.done:
                # All was said; what ends the connection afterwards takes nothing from it.
                return times.result(200)
            late = any(isinstance(cause, TimeoutError) for cause in underlying(error))
            text = failure_words(error, f"no whole answer within {deadline_seconds:g} s, {self._wire.stage}")
            return times.result(0, text, late)

    def close(self) -> None:
        """Closes the connection; ends a request under way from another thread."""
        self._wire.stop()
        self._session.close()

    def _exchange(self, question: Question, times: "_Times") -> Streamed:
        headers = {"Content-Type": "application/json", "X-Request-Id": f"{MARK}-{token_hex(8)}"}
        times.sent_at = began = time.monotonic()
        with self._session.post(
            self._url,
            data=question.body(),
            headers=headers | authorization(self._endpoint, self._user, self._password),
            timeout=self._wire.remaining_seconds(),
            allow_redirects=False,
            stream=True,
        ) as response:
            # What the connection took is no time of the server's: the clock starts when it was ready.
            if self._wire.fresh and self._wire.connected_at is not None:
                times.sent_at = self._wire.connected_at
                times.connect_seconds = self._wire.connected_at - began
            times.first_byte_at = time.monotonic()
            if response.status_code != 200:
                start = response.raw.read(400, decode_content=False)
                text = one_line(start.decode("utf-8", "replace").strip(), 200)
                return times.result(response.status_code, f"status {response.status_code}: {text}")
            for line in _lines(response):
                times.take(line, time.monotonic())
        if times.first_token_at is None:
            return times.result(200, "the answer holds no token")
        return times.result(200)


def _lines(response: requests.Response) -> Iterator[bytes]:
    """The lines of a body as they arrive; raises ValueError for a stream beyond the limits."""
    rest, total = b"", 0
    while part := response.raw.read1(READ_BYTES, decode_content=False):
        total += len(part)
        *whole, rest = (rest + part).split(b"\n")
        if total > MAX_STREAM_BYTES or len(rest) > MAX_EVENT_BYTES:
            raise ValueError("a stream longer than requested")
        yield from whole
    if rest:
        yield rest


@dataclass(slots=True)
class _Times:
    """What was seen of a stream so far; times are monotonic seconds."""

    sent_at: float = 0.0
    connect_seconds: float | None = None
    first_byte_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    gaps: list[float] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    done: bool = False

    def take(self, line: bytes, at: float) -> None:
        """Takes a line of the stream: an event of the API, or nothing of use."""
        text = line.strip()
        if not text.startswith(b"data:"):
            return
        data = text.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            self.done = True
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict):
            return
        if "error" in event:
            self.fault = one_line(str(event["error"]), 200)
        for name, into in (("usage", self.usage), ("timings", self.timings)):
            if isinstance(event.get(name), dict):
                into.update(event[name])
        if _has_token(event):
            self._token(at)

    def _token(self, at: float) -> None:
        if self.last_token_at is None:
            self.first_token_at = at
        else:
            self.gaps.append(at - self.last_token_at)
        self.last_token_at = at

    def result(self, status: int, detail: str = "", late: bool = False) -> Streamed:
        """All that is known now."""
        details = self.usage.get("prompt_tokens_details")
        return Streamed(
            status=status,
            detail=detail or self.fault,
            timed_out=late,
            connect_seconds=self.connect_seconds,
            first_byte_seconds=self._since(self.first_byte_at),
            first_token_seconds=self._since(self.first_token_at),
            total_seconds=self._since(self.last_token_at),
            gaps=tuple(self.gaps),
            prompt_tokens=_count(self.usage.get("prompt_tokens")),
            output_tokens=_count(self.usage.get("completion_tokens")),
            cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
            split=_llama_cpp_split(self.timings) if self.timings else None,
        )

    def _since(self, at: float | None) -> float | None:
        return None if at is None else max(0.0, at - self.sent_at)


def _has_token(event: dict[str, Any]) -> bool:
    """Whether an event carries generated text: the role that opens a chat and the usage at the end do not."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return any(delta.get(name) for name in ("content", "reasoning", "reasoning_content", "tool_calls"))
    # A token may be half a letter: its text is empty, its event is none the less.
    return isinstance(choice.get("text"), str) and (bool(choice["text"]) or not choice.get("finish_reason"))


def _llama_cpp_split(timings: dict[str, Any]) -> Split:
    return Split(
        prompt_tokens=_count(timings.get("prompt_n")),
        prompt_seconds=_seconds(timings.get("prompt_ms"), 1000.0),
        output_tokens=_count(timings.get("predicted_n")),
        output_seconds=_seconds(timings.get("predicted_ms"), 1000.0),
    )


def ollama_split(answer: object) -> Split | None:
    """The split in an answer of Ollama's own API, whose times are nanoseconds; None where it holds none."""
    if not isinstance(answer, dict) or "eval_duration" not in answer:
        return None
    return Split(
        load_seconds=_seconds(answer.get("load_duration"), _NANOSECONDS),
        prompt_tokens=_count(answer.get("prompt_eval_count")),
        prompt_seconds=_seconds(answer.get("prompt_eval_duration"), _NANOSECONDS),
        output_tokens=_count(answer.get("eval_count")),
        output_seconds=_seconds(answer.get("eval_duration"), _NANOSECONDS),
    )


def _count(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _GREATEST
    return value if is_count else None  # type: ignore[return-value]


def _seconds(value: object, per_second: float) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e18:
        return None
    return value / per_second
