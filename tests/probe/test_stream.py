"""A streaming completion over real HTTP: its times, its counts, and every way in which it fails."""

import json
from pathlib import Path

import pytest

from tests.openai_server import Engine, OpenAIServer
from tests.servers import Script, Server, answer, chunked, closed_port, hang, request, reset, send
from watchdog.http.endpoint import Endpoint
from watchdog.probe.completion import MARK
from watchdog.probe.ollama import OllamaAccount
from watchdog.probe.stream import CompletionStreams, Question, Split, Streamed

QUESTION = Question("m", "one two three", 5)


def ask(url: str, question: Question = QUESTION, deadline: float = 5.0, **endpoint: Path) -> Streamed:
    streams = CompletionStreams(Endpoint(f"{url}/v1/completions", **endpoint))  # type: ignore[arg-type]
    try:
        return streams.ask(question, deadline)
    finally:
        streams.close()


def test_the_times_leave_the_connection_out() -> None:
    with OpenAIServer(Engine(prefill_seconds_per_token=0.02, gap_seconds=0.01)) as server:
        streams = CompletionStreams(Endpoint(f"{server.url}/v1/completions"))
        first, second = streams.ask(QUESTION, 5.0), streams.ask(QUESTION, 5.0)
        streams.close()
    assert first.answered
    assert first.connect_seconds is not None
    assert second.connect_seconds is None
    for each in (first, second):
        assert each.first_byte_seconds is not None
        assert each.first_token_seconds is not None
        assert 0.06 <= each.first_byte_seconds <= each.first_token_seconds
        assert len(each.gaps) == 4
        assert min(each.gaps) > 0
        assert (each.prompt_tokens, each.output_tokens) == (3, 5)


def test_every_request_is_marked() -> None:
    engine = Engine()
    with OpenAIServer(engine) as server:
        ask(server.url)
    assert engine.bodies[0]["user"] == MARK
    assert engine.heads[0]["X-Request-Id"].startswith(f"{MARK}-")


def test_a_chat_begins_with_a_role_that_is_no_token() -> None:
    with OpenAIServer(Engine()) as server:
        seen = ask(server.url, Question("m", "one two", 3, chat=True))
    assert len(seen.gaps) == 2
    assert seen.prompt_tokens == 2


def test_llama_cpp_splits_a_request_by_itself() -> None:
    timings = {"prompt_n": 200, "prompt_ms": 100.0, "predicted_n": 5, "predicted_ms": 50.0}
    with OpenAIServer(Engine(timings=timings)) as server:
        split = ask(server.url).split
    assert split is not None
    assert (split.prompt_tokens, split.prompt_seconds, split.output_seconds) == (200, 0.1, 0.05)


def test_ollama_splits_a_request_by_an_api_of_its_own() -> None:
    told = {"load_duration": 2_000_000_000, "prompt_eval_count": 26, "prompt_eval_duration": 130_000_000}
    told |= {"eval_count": 10, "eval_duration": 500_000_000}
    with OpenAIServer(Engine(ollama=told)) as server:
        account = OllamaAccount(Endpoint(f"{server.url}/api/generate"), "m", 5.0)
        assert account("one two", 10) == Split(2.0, 26, 0.13, 10, 0.5)
    with OpenAIServer(Engine(key="other")) as server:
        assert OllamaAccount(Endpoint(f"{server.url}/api/generate"), "m", 5.0)("one", 1) is None


def event(value: object) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


TOKEN = event({"choices": [{"text": "a"}]})


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ([request, send(answer(b'{"error": "no"}', "401 Unauthorized"))], "status 401"),
        ([request, send(answer(b"", "302 Found", "Location: http://127.0.0.1:1/"))], "status 302"),
        ([request, send(chunked(b"data: [DONE]\n\n"))], "holds no token"),
        ([request, send(chunked(b"data: {not json}\n\ndata: 7\n\n" + event({"choices": 5})))], "no token"),
        ([request, send(chunked(TOKEN, event({"error": "out of memory"})))], "out of memory"),
        ([request, send(chunked(TOKEN, final=False))], "broke"),
        # A reset may come as such or as an end before the answer.
        ([request, reset], "e"),
    ],
)
def test_what_is_no_answer_says_why(script: Script, detail: str) -> None:
    with Server(script) as server:
        seen = ask(server.url.removesuffix("/metrics"))
    assert not seen.answered
    assert detail in seen.detail


def test_a_server_that_hangs_costs_the_deadline_and_no_more() -> None:
    with Server([request, hang]) as server:
        seen = ask(server.url.removesuffix("/metrics"), deadline=0.3)
    assert seen.timed_out
    assert "0.3 s" in seen.detail


def test_a_stream_that_stops_in_the_middle_keeps_what_came() -> None:
    with Server([request, send(chunked(TOKEN, TOKEN, final=False)), hang]) as server:
        seen = ask(server.url.removesuffix("/metrics"), deadline=0.5)
    assert not seen.answered
    assert seen.timed_out
    assert seen.first_token_seconds is not None


def test_nobody_listens() -> None:
    with closed_port() as port:
        assert "refused" in ask(f"http://127.0.0.1:{port}").detail.lower()
