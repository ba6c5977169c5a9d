"""What a person is told to try where a server's page cannot be read."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trustme

from tests.commands import command
from tests.servers import Server, answer, closed_port, request, send, serving, wait_for_a_byte
from watchdog.model import Reason
from watchdog.report.advice import advice


@contextmanager
def served(page: bytes = b"", status: str = "200 OK") -> Iterator[str]:
    with Server(serving(answer(page, status))) as server:
        yield server.url


def told_of(url: str, capsys: pytest.CaptureFixture[str]) -> str:
    ended = command(capsys, "diagnose", url, "--for", "0s")
    assert ended.code == 2
    assert "hints" not in ended.out
    assert "blind" not in ended.out
    return " ".join(ended.out.split())


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with closed_port() as port:
        told = told_of(f"http://127.0.0.1:{port}", capsys)
    assert f"scrape http://127.0.0.1:{port}/metrics failed: no connection" in told
    assert "try Is the server up, and are name and port correct?" in told


def test_the_wrong_path_and_a_page_of_another_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with served(status="404 Not Found") as url:
        assert "HTTP 404 Not Found try Is the path correct?" in told_of(url, capsys)
    with served(b"<html></html>\n") as url:
        assert "try Is this the port of vLLM's API server" in told_of(url, capsys)


def test_the_wrong_scheme_either_way(capsys: pytest.CaptureFixture[str]) -> None:
    with Server([wait_for_a_byte, send(answer(status="400 Bad Request"))]) as server:
        told = told_of(server.url.replace("http:", "https:"), capsys)
    assert "the server does not speak TLS on this port: use http://" in told
    with Server([request]) as server:
        assert "try Does it expect TLS? Try https://." in told_of(server.url, capsys)


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("127.0.0.1", "try Set the target's ca_file to the certificate of its issuer."),
        ("other.test", "try "),
    ],
)
def test_a_certificate_that_is_not_trusted(host: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(host).configure_cert(context)
    with Server(serving(answer()), tls=context) as server:
        assert told in told_of(server.url, capsys)


@pytest.mark.parametrize(
    ("detail", "told"),
    [
        (
            "certificate not accepted, IP address mismatch",
            "Use a name or address that is in its certificate.",
        ),
        ("certificate not accepted, certificate has expired", ""),
        ("ca_file /etc/ca.pem does not exist", ""),
    ],
)
def test_a_fault_of_tls_is_told_by_its_kind(detail: str, told: str) -> None:
    assert advice(Reason.TLS, detail) == told


def test_a_failure_that_says_itself_what_to_do_gets_no_advice() -> None:
    assert advice(Reason.STATUS, "HTTP 500 Internal Server Error") == ""
    assert advice(Reason.STATUS, "no status") == ""
    assert advice(Reason.TOO_LARGE, "the page is larger than 16 bytes") == ""
