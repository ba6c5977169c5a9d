"""Queries to a Prometheus: what is sent, and what is said of an answer that is of no use or not whole."""

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.servers import Connection, Script, Server, answer, closed_port, hang, request, serving
from watchdog.errors import SourceError
from watchdog.http.endpoint import Endpoint
from watchdog.scrape.prometheus import PrometheusSource, QueryLimits

AT = 1_700_000_000.0
TARGET = {"instance": "a:8000", "job": "vllm"}
SAMPLES = [
    {"metric": {"__name__": "up", **TARGET}, "values": [[AT - 15, "1"], [AT, "1"]]},
    {"metric": {"__name__": "vllm:num_requests_running", **TARGET}, "values": [[AT - 15, "3"], [AT, "4"]]},
]


def told(kind: str, rows: Sequence[object], **more: object) -> bytes:
    body = {"status": "success", "data": {"resultType": kind, "result": rows}, **more}
    return answer(json.dumps(body).encode(), "200 OK", "Content-Type: application/json")


def prometheus(jobs: list[str], samples: Sequence[object], **more: object) -> Script:
    """Answers a question for jobs and one for samples."""

    def step(connection: Connection) -> None:
        while True:
            query = parse_qs(urlsplit(connection.read_request().split()[1].decode()).query)["query"][0]
            rows = [{"metric": {"job": job}, "value": [AT, "1"]} for job in jobs]
            is_jobs = query.startswith("group")
            connection.peer.sendall(told("vector", rows) if is_jobs else told("matrix", samples, **more))

    return [step]


def source(server: Server, match: str = "", **limits: float) -> PrometheusSource:
    url = server.url.removesuffix("/metrics")
    return PrometheusSource(Endpoint(url), match, "team-a", QueryLimits(**limits))  # type: ignore[arg-type]


def queries(server: Server) -> list[str]:
    return [parse_qs(urlsplit(head.split()[1]).query)["query"][0] for head in server.requests]


def test_without_matchers_the_jobs_with_a_vllm_are_read() -> None:
    with Server(prometheus(["vllm", "a.b"], SAMPLES)) as server:
        asked = source(server)
        fleet = asked.fleet(AT)
        asked.close()
    jobs, samples = queries(server)
    assert "num_requests_running" in jobs
    assert samples.endswith('job=~"a\\\\.b|vllm"}[720s]')
    assert list(fleet.servers) == ["a:8000"]
    assert all("X-Scope-OrgID: team-a" in head for head in server.requests)


@pytest.mark.parametrize("match", ['job="vllm"', '{job="vllm"}', ' { job="vllm", } '])
def test_matchers_are_taken_with_and_without_braces(match: str) -> None:
    with Server(prometheus([], SAMPLES)) as server:
        asked = source(server, match)
        asked.fleet(AT, 60)
        asked.close()
    assert [each.rpartition('", ')[2] for each in queries(server)] == ['job="vllm"}[60s]']


def test_a_prometheus_without_any_vllm_has_no_servers() -> None:
    with Server(prometheus([], SAMPLES)) as server:
        asked = source(server)
        assert asked.fleet(AT).servers == {}
        asked.close()


def test_a_path_before_the_api_stays_and_a_token_is_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with Server(prometheus([], SAMPLES)) as server:
        url = server.url.replace("/metrics", "/prometheus/")
        asked = PrometheusSource(Endpoint(url, bearer_token_file=tmp_path / "token"), 'job="vllm"')
        asked.fleet(AT)
        asked.close()
    assert server.requests[0].startswith("GET /prometheus/api/v1/query?query=")
    assert "Authorization: Bearer secret" in server.requests[0]


def test_what_an_answer_says_of_itself_is_kept_once() -> None:
    with Server(prometheus([], SAMPLES, warnings=["store s3 is away"], isPartial=True)) as server:
        asked = source(server, 'job="vllm"')
        asked.fleet(AT)
        asked.fleet(AT)
        asked.close()
    assert asked.warnings == [
        "store s3 is away",
        "the answer is partial: a part of the storage did not answer",
    ]


ERROR = json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error: unexpected"}).encode()
FORM = "not of the query API's form"
LARGE = told("matrix", [*SAMPLES, {"metric": {"__name__": "x" * 5000}, "values": []}])


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (serving(answer(ERROR, "400 Bad Request")), "HTTP 400, parse error: unexpected"),
        (serving(answer(b"too many samples", "422 Unprocessable")), "narrow it with --match"),
        (serving(answer(b"no", "401 Unauthorized")), "--bearer-token-file"),
        (serving(answer(b"<html>", "404 Not Found")), "what stands before /api/v1/query"),
        (serving(answer(b"<html>hello")), "no answer of the query API"),
        (serving(answer(b"[" * 4900)), "no answer of the query API"),
        (serving(told("vector", [])), "of the type matrix"),
        (
            serving(told("matrix", [{"metric": {"__name__": "up"}, "values": [[1, 2]]}])),
            "not of the query API's form",
        ),
        (
            serving(told("matrix", [{"metric": {"__name__": "up"}, "values": [[1, "x"]]}])),
            "not of the query API's form",
        ),
        (serving(told("matrix", [{"metric": {}, "values": []}])), "not of the query API's form"),
        (serving(LARGE), "larger than 5000 bytes; narrow it with --match"),
        ([request, hang], "no complete answer within 0.3 s"),
        (serving(answer(b"", "302 Found", "Location: http://other/")), "not followed"),
    ],
)
def test_an_answer_of_no_use_is_told_in_a_sentence(script: Script, words: str) -> None:
    with Server(script) as server:
        asked = source(server, 'job="vllm"', deadline_seconds=0.3, max_answer_bytes=5000)
        with pytest.raises(SourceError) as error:
            asked.fleet(AT)
        asked.close()
    assert words in str(error.value)
    assert str(error.value).startswith(f"http://127.0.0.1:{server.port}")


def test_no_secret_of_the_address_is_told() -> None:
    with closed_port() as port:
        asked = PrometheusSource(Endpoint(f"http://127.0.0.1:{port}/?token=secret"), 'job="vllm"')
        with pytest.raises(SourceError, match="refused") as error:
            asked.fleet(AT)
        asked.close()
    assert "secret" not in str(error.value)
