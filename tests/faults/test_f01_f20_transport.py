"""What a network and the server at its end can do to a scrape, and that it ends on time and as told."""

import gc
import gzip
import os
import resource
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.servers import (
    Script,
    Server,
    answer,
    chunked,
    closed_port,
    deaf_port,
    drip,
    flood,
    hang,
    request,
    reset,
    send,
    serving,
    wait_for_a_byte,
    wait_for_client,
)
from tests.waiting import until
from watchdog.http import wire
from watchdog.http.endpoint import Endpoint
from watchdog.model import Failure, Reason, Scrape
from watchdog.scrape.fetch import Fetcher, FetchLimits

PAGE = b"vllm:num_requests_running 1\n" * 10
DEADLINE_SECONDS = 0.5
# A busy machine may be late to wake a thread; what drips takes many times as long.
SLACK_SECONDS = 0.8
CAP_BYTES = 1024 * 1024


def limits(**changed: Any) -> FetchLimits:
    return FetchLimits(**{"deadline_seconds": 5.0, **changed})


def fetch(url: str, *, endpoint: dict[str, Any] | None = None, **limit: Any) -> Scrape:
    fetcher = Fetcher(Endpoint(url, **(endpoint or {})), limits(**limit))
    try:
        return fetcher.fetch(1.0, 2.0)
    finally:
        fetcher.close()


def fetch_from(*script: Any, **options: Any) -> Scrape:
    with Server(list(script)) as server:
        return fetch(server.url, **options)


def failure_of(scrape: Scrape) -> Failure:
    assert scrape.failure is not None
    assert scrape.body == b""
    assert "\n" not in scrape.failure.detail
    return scrape.failure


def reason_of(scrape: Scrape) -> Reason:
    return failure_of(scrape).reason


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def nothing_left() -> Iterator[None]:
    """Check that no thread and no open file is left behind."""
    gc.collect()
    threads, files = set(threading.enumerate()), open_files()
    yield
    assert set(threading.enumerate()) <= threads
    assert open_files() <= files


def is_at(took_seconds: float, deadline_seconds: float) -> bool:
    """Not before the deadline, and after it only as much as a machine that others use too may add."""
    return deadline_seconds - 0.05 <= took_seconds < deadline_seconds + SLACK_SECONDS


def assert_ends_at_the_deadline(url: str, **options: Any) -> Scrape:
    scrape = fetch(url, deadline_seconds=DEADLINE_SECONDS, **options)
    assert reason_of(scrape) is Reason.TIMEOUT
    assert is_at(scrape.took_seconds, DEADLINE_SECONDS)
    return scrape


def test_f01_connection_refused() -> None:
    with closed_port() as port, nothing_left():
        scrape = fetch(f"http://127.0.0.1:{port}/metrics")
    assert reason_of(scrape) is Reason.REFUSED
    assert scrape.status == 0


def test_f02_connect_hangs_until_the_deadline() -> None:
    with deaf_port() as port, nothing_left():
        scrape = assert_ends_at_the_deadline(f"http://127.0.0.1:{port}/metrics")
    assert failure_of(scrape).while_connecting


def test_f02_each_address_gets_its_part_of_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with deaf_port() as deaf, Server(serving(answer(PAGE))) as server:
        addresses = [("127.0.0.1", deaf), ("127.0.0.1", server.port)]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        scrape = fetch("http://two.addresses.test/metrics", deadline_seconds=1.0)
    assert scrape.body == PAGE


def test_f03_header_drip_ends_at_the_deadline() -> None:
    with nothing_left(), Server([request, drip(answer(PAGE), 0.05)]) as server:
        scrape = assert_ends_at_the_deadline(server.url)
    assert not failure_of(scrape).while_connecting


def test_f03_silence_after_the_request_ends_at_the_deadline() -> None:
    with nothing_left(), Server([request, hang]) as server:
        assert not failure_of(assert_ends_at_the_deadline(server.url)).while_connecting


@pytest.mark.parametrize("length", [-1, None], ids=["announced", "open"])
def test_f04_body_drip_ends_at_the_deadline_and_its_bytes_are_dropped(length: int | None) -> None:
    begin = answer(PAGE, length=length)
    with nothing_left(), Server([request, send(begin[:-100]), drip(PAGE, 0.05)]) as server:
        assert assert_ends_at_the_deadline(server.url).status == 200


def test_f04_chunks_of_one_byte_end_at_the_deadline() -> None:
    head = answer(b"", "200 OK", "Transfer-Encoding: chunked", length=None)
    with nothing_left(), Server([request, send(head), flood(b"1\r\n#\r\n" * 10_000)]) as server:
        assert_ends_at_the_deadline(server.url)


@pytest.mark.parametrize(
    "head",
    [
        answer(b"", "200 OK", length=None),
        answer(b"", "200 OK", "Transfer-Encoding: chunked", length=None),
    ],
    ids=["open", "chunked"],
)
def test_f05_infinite_body_is_cut_at_the_cap_in_bounded_memory(head: bytes) -> None:
    piece = b"#" * 65536 if b"chunked" not in head else b"10000\r\n" + b"#" * 65536 + b"\r\n"
    with nothing_left(), Server([request, send(head), flood(piece)]) as server:
        tracemalloc.start()
        scrape = fetch(server.url, max_body_bytes=4 * CAP_BYTES)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert reason_of(scrape) is Reason.TOO_LARGE
    assert peak_bytes < 2 * 4 * CAP_BYTES


def test_f05_infinite_body_of_a_redirect_is_not_read() -> None:
    head = answer(b"", "302 Found", "Location: /elsewhere", length=None)
    with nothing_left(), Server([request, send(head), flood(b"#" * 65536)]) as server:
        scrape = fetch(server.url)
    assert reason_of(scrape) is Reason.REDIRECT
    assert scrape.took_seconds < 2.0


@pytest.mark.parametrize("announced", [True, False])
def test_f06_body_exactly_at_the_cap_is_taken(announced: bool) -> None:
    body = b"#" * (CAP_BYTES - 1) + b"\n"
    scrape = fetch_from(
        request, send(answer(body, length=-1 if announced else None)), max_body_bytes=CAP_BYTES
    )
    assert scrape.body == body


@pytest.mark.parametrize("announced", [True, False])
def test_f06_one_byte_more_than_the_cap_is_refused(announced: bool) -> None:
    body = b"#" * CAP_BYTES + b"\n"
    response = answer(body, length=-1 if announced else None)
    assert reason_of(fetch_from(request, send(response), max_body_bytes=CAP_BYTES)) is Reason.TOO_LARGE


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "GZIP", "identity, gzip"])
def test_f07_an_encoding_we_did_not_ask_for_is_refused(encoding: str) -> None:
    response = answer(gzip.compress(PAGE), "200 OK", f"Content-Encoding: {encoding}")
    assert reason_of(fetch_from(request, send(response))) is Reason.ENCODING


def test_f07_a_transfer_encoding_other_than_chunked_is_refused() -> None:
    response = answer(gzip.compress(PAGE), "200 OK", "Transfer-Encoding: gzip, chunked", length=None)
    assert reason_of(fetch_from(request, send(response))) is Reason.ENCODING


def test_f07_gzip_bomb_is_not_inflated() -> None:
    bomb = gzip.compress(bytes(50 * 1024 * 1024))
    with Server([request, send(answer(bomb, "200 OK", "Content-Encoding: gzip"))]) as server:
        tracemalloc.start()
        scrape = fetch(server.url)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert reason_of(scrape) is Reason.ENCODING
    assert peak_bytes < CAP_BYTES


def test_f07_identity_named_by_the_server_is_no_encoding() -> None:
    assert fetch_from(request, send(answer(PAGE, "200 OK", "Content-Encoding: identity"))).body == PAGE


def test_f08_body_shorter_than_announced_is_truncated() -> None:
    scrape = fetch_from(request, send(answer(PAGE, length=len(PAGE) + 10)))
    assert reason_of(scrape) is Reason.TRUNCATED
    assert scrape.status == 200


@pytest.mark.parametrize("length", [1000, None], ids=["announced", "open"])
def test_f08_reset_in_the_middle_of_the_body_is_truncated(length: int | None) -> None:
    scrape = fetch_from(request, send(answer(PAGE, length=length)), reset)
    # What arrived just before a reset may be lost with it: then not even the head was there.
    assert reason_of(scrape) is Reason.TRUNCATED


@pytest.mark.parametrize("script", [[request], [request, reset], [reset]], ids=["close", "reset", "at once"])
def test_f08_closed_without_an_answer(script: Script) -> None:
    with nothing_left(), Server(script) as server:
        scrape = fetch(server.url)
    # A reset may come so soon that the connection is never there.
    assert reason_of(scrape) in {Reason.TRUNCATED, Reason.REFUSED if script == [reset] else Reason.TRUNCATED}
    assert server.connections == 1


@pytest.mark.parametrize(
    "response",
    [
        chunked(PAGE[:56], PAGE[56:], final=False),
        chunked(PAGE)[:-60],
        answer(b"zz\r\n" + PAGE, "200 OK", "Transfer-Encoding: chunked", length=None),
        answer(PAGE[:-5], length=None),
        answer(PAGE, "200 OK", "Content-Type: application/openmetrics-text; version=1.0.0", length=None),
    ],
    ids=["no final chunk", "cut in a chunk", "no chunk", "cut in a line", "OpenMetrics without EOF"],
)
def test_f09_body_without_its_end_is_truncated(response: bytes) -> None:
    assert reason_of(fetch_from(request, send(response))) is Reason.TRUNCATED


def test_f09_a_whole_chunked_body_and_one_that_ends_with_the_connection_are_taken() -> None:
    assert fetch_from(request, send(chunked(PAGE[:56], PAGE[56:]))).body == PAGE
    assert fetch_from(request, send(answer(PAGE, length=None))).body == PAGE


@pytest.mark.parametrize("response", [answer(b""), answer(b"", length=None), chunked()])
def test_f10_empty_page_is_a_failure(response: bytes) -> None:
    scrape = fetch_from(request, send(response))
    assert reason_of(scrape) is Reason.EMPTY
    assert scrape.status == 200


@pytest.mark.parametrize("target", ["/again", "http://127.0.0.1:1/x", "file:///etc/passwd", "http://[", ""])
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
def test_f11_redirect_is_not_followed(status: str, target: str) -> None:
    with Server(serving(answer(b"", status, f"Location: {target}"))) as server:
        scrape = fetch(server.url)
    assert reason_of(scrape) is Reason.REDIRECT
    assert len(server.requests) == 1


def test_f11_secrets_in_a_redirect_are_not_told() -> None:
    location = "Location: http://user:hunter2@login.test/?next=metrics&token=hunter3"
    detail = failure_of(fetch_from(request, send(answer(b"", "302 Found", location)))).detail
    assert "login.test" in detail
    assert "hunter" not in detail


@pytest.mark.parametrize("status", [201, 204, 206, 304, 400, 401, 403, 404, 429, 500, 503])
def test_f12_only_200_is_taken_and_the_body_of_others_is_not_told(status: int) -> None:
    body = b"" if status in {204, 304} else b"secret"
    scrape = fetch_from(request, send(answer(body, f"{status} Something")))
    assert reason_of(scrape) is (Reason.REDIRECT if status == 304 else Reason.STATUS)
    assert scrape.status == status
    assert str(status) in failure_of(scrape).detail
    assert "secret" not in failure_of(scrape).detail


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


def tls_context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    return context


def fetch_tls(certificate: trustme.LeafCert, **endpoint: Any) -> Scrape:
    with Server(serving(answer(PAGE)), tls=tls_context(certificate)) as server:
        return fetch(server.url, endpoint=endpoint)


def test_f13_tls_with_our_authority_is_taken(authority: trustme.CA, ca_file: Path) -> None:
    assert fetch_tls(authority.issue_cert("127.0.0.1"), ca_file=ca_file).body == PAGE


def test_f13_tls_expired(authority: trustme.CA, ca_file: Path) -> None:
    old = authority.issue_cert("127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    scrape = fetch_tls(old, ca_file=ca_file)
    assert reason_of(scrape) is Reason.TLS
    assert "expired" in failure_of(scrape).detail


def test_f13_tls_wrong_host(authority: trustme.CA, ca_file: Path) -> None:
    scrape = fetch_tls(authority.issue_cert("other.test"), ca_file=ca_file)
    assert reason_of(scrape) is Reason.TLS
    assert "127.0.0.1" in failure_of(scrape).detail


def test_f13_tls_of_an_unknown_authority(authority: trustme.CA) -> None:
    assert reason_of(fetch_tls(authority.issue_cert("127.0.0.1"))) is Reason.TLS


def test_f13_tls_unverified_only_where_told(authority: trustme.CA) -> None:
    assert fetch_tls(authority.issue_cert("other.test"), insecure_skip_verify=True).body == PAGE


def test_f13_plain_server_behind_https_is_not_asked_in_plain() -> None:
    with nothing_left(), Server([wait_for_a_byte, send(answer(b"", "400 Bad Request"))]) as server:
        scrape = fetch(server.url.replace("http:", "https:"))
    assert reason_of(scrape) is Reason.TLS
    assert server.connections == 1


def test_f13_tls_server_behind_http() -> None:
    with Server([request, send(b"\x15\x03\x03\x00\x02\x02\x46")]) as server:
        assert reason_of(fetch(server.url)) is Reason.TLS


def test_f13_tls_handshake_that_hangs_ends_at_the_deadline() -> None:
    with nothing_left(), Server([hang]) as server:
        scrape = assert_ends_at_the_deadline(server.url.replace("http:", "https:"))
    assert not failure_of(scrape).while_connecting


def test_f13_tls_handshake_that_drips_ends_at_the_deadline() -> None:
    # The head of a long record of a handshake, then its bytes one by one.
    with nothing_left(), Server([drip(b"\x16\x03\x03\x20\x00" + b"\x00" * 8192, 0.02)]) as server:
        assert_ends_at_the_deadline(server.url.replace("http:", "https:"))


def test_f13_tls_reset_in_the_handshake() -> None:
    with nothing_left(), Server([wait_for_a_byte, reset]) as server:
        assert reason_of(fetch(server.url.replace("http:", "https:"))) is Reason.TLS


def test_f13_tls_body_drip_ends_at_the_deadline(authority: trustme.CA, ca_file: Path) -> None:
    script = [request, send(answer(PAGE)[:-100]), drip(PAGE, 0.05)]
    context = tls_context(authority.issue_cert("127.0.0.1"))
    with nothing_left(), Server(script, tls=context) as server:
        assert_ends_at_the_deadline(server.url, endpoint={"ca_file": ca_file})


@pytest.mark.parametrize("name", ["ca_file", "cert_file"])
def test_f13_tls_file_that_is_missing_or_none(name: str, tmp_path: Path) -> None:
    with Server(serving(answer(PAGE))) as server:
        url = server.url.replace("http:", "https:")
        missing = fetch(url, endpoint={name: tmp_path / "missing.pem"})
        (tmp_path / "none.pem").write_text("no certificate")
        none = fetch(url, endpoint={name: tmp_path / "none.pem"})
    assert reason_of(missing) is Reason.TLS
    assert "missing.pem" in failure_of(missing).detail
    assert reason_of(none) is Reason.TLS


def test_f14_token_is_read_for_each_scrape_and_stripped(tmp_path: Path) -> None:
    token = tmp_path / "token"
    with Server(serving(answer(PAGE))) as server:
        fetcher = Fetcher(Endpoint(server.url, bearer_token_file=token), limits())
        for text in ["first\n", "  second \r\n"]:
            token.write_text(text)
            assert fetcher.fetch(0.0, 0.0).failure is None
        fetcher.close()
    assert [line for head in server.requests for line in head.split("\r\n") if "Auth" in line] == [
        "Authorization: Bearer first",
        "Authorization: Bearer second",
    ]


@pytest.mark.parametrize("content", [None, "", " \n", "two\nlines", "snow☃man"])
@pytest.mark.parametrize("name", ["bearer_token_file", "password_file"])
def test_f14_token_missing_or_unusable_is_never_sent(name: str, content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
    with Server(serving(answer(PAGE))) as server:
        scrape = fetch(server.url, endpoint={name: file, "username": "u" if "pass" in name else None})
    assert reason_of(scrape) is Reason.AUTH_CONFIG
    assert name in failure_of(scrape).detail
    assert "lines" not in failure_of(scrape).detail.partition("holds")[0]
    assert server.requests == []


def test_f14_a_pipe_in_place_of_a_token_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    scrape = fetch("http://127.0.0.1:1/", endpoint={"bearer_token_file": tmp_path / "pipe"})
    assert reason_of(scrape) is Reason.AUTH_CONFIG


class Names:
    """A resolver whose answer a test changes; an exception is raised, a number of seconds is slept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: str | float | Exception) -> None:
        self.answer = answer
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: str, port: int, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(self.answer, float):
            time.sleep(self.answer)
            raise socket.gaierror(socket.EAI_AGAIN, "too late")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self._real(self.answer, port, *arguments, **keywords)


def test_f15_dns_fails_then_leads_to_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    once = [request, send(answer(b"old 1\n", "200 OK", "Connection: close"))]
    with Server(once) as old:
        with Server(serving(answer(b"new 1\n")), host="127.0.0.2", port=old.port) as new:
            names = Names(monkeypatch, "127.0.0.1")
            fetcher = Fetcher(Endpoint(f"http://vllm.test:{old.port}/metrics"), limits())
            assert fetcher.fetch(0.0, 0.0).body == b"old 1\n"
            names.answer = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            assert reason_of(fetcher.fetch(0.0, 0.0)) is Reason.DNS
            names.answer = "127.0.0.2"
            assert fetcher.fetch(0.0, 0.0).body == b"new 1\n"
            fetcher.close()
        assert (old.connections, new.connections) == (1, 1)


def test_f15_a_kept_connection_needs_no_name_and_follows_it_within_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = threading.active_count()
    with Server(serving(answer(b"old 1\n"))) as old:
        with Server(serving(answer(b"new 1\n")), host="127.0.0.2", port=old.port) as new:
            names = Names(monkeypatch, "127.0.0.1")
            fetcher = Fetcher(Endpoint(f"http://vllm.test:{old.port}/metrics"), limits())
            assert fetcher.fetch(0.0, 0.0).body == b"old 1\n"
            names.answer = "127.0.0.2"
            assert fetcher.fetch(0.0, 0.0).body == b"old 1\n"
            monkeypatch.setattr(wire, "LOOK_AGAIN_SECONDS", 0.0)
            names.answer = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            assert fetcher.fetch(0.0, 0.0).body == b"old 1\n"
            monkeypatch.setattr(wire, "LOOK_BESIDE_SECONDS", 0.05)
            names.answer = 1.0
            scrape = fetcher.fetch(0.0, 0.0)
            assert scrape.body == b"old 1\n"
            assert scrape.took_seconds < 1.0
            fetcher.close()
            names.answer = "127.0.0.1"
            fetcher = Fetcher(Endpoint(f"http://vllm.test:{old.port}/metrics"), limits())
            assert fetcher.fetch(0.0, 0.0).body == b"old 1\n"
            names.answer = "127.0.0.2"
            assert fetcher.fetch(0.0, 0.0).body == b"new 1\n"
            fetcher.close()
        assert (old.connections, new.connections) == (2, 1)
    until(lambda: threading.active_count() <= threads)


def test_f15_dns_that_hangs_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, 1.2)
    fetcher = Fetcher(Endpoint("http://vllm.test/metrics"), limits(deadline_seconds=0.3))
    before = threading.active_count()
    for _ in range(3):
        scrape = fetcher.fetch(0.0, 0.0)
        assert reason_of(scrape) is Reason.DNS
        assert is_at(scrape.took_seconds, 0.3)
        # The resolver cannot be stopped, but there is never more than one thread of it.
        assert threading.active_count() <= before + 1
    assert reason_of(fetcher.fetch(0.0, 0.0)) is Reason.DNS
    fetcher.close()
    deadline = time.monotonic() + 3
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() == before


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "nowhere.invalid"])
def test_f15_dns_of_a_name_that_is_none(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if host == "nowhere.invalid":
        Names(monkeypatch, socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    assert reason_of(fetch(f"http://{host}/metrics")) is Reason.DNS


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\n" + b"X-Header: 1\r\n" * 10_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + (b"X-Long: " + b"x" * 60_000 + b"\r\n") * 50 + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
        b"HTTP/1.1 twohundred OK\r\n\r\n",
        b"HTTP/9.1 200 OK\r\n\r\n" + PAGE,
        b"NONSENSE\r\n\r\n",
        PAGE,
        answer(PAGE, "200 OK", "a line without a colon"),
        answer(PAGE, "200 OK", "Content-Length: many", length=None),
        answer(PAGE, "200 OK", "Content-Length: -5", length=None),
        answer(PAGE, "200 OK", "Content-Length: 280", "Content-Length: 5", length=None),
    ],
    ids=[
        "headers", "long header", "long headers", "continue", "status", "version", "nonsense", "HTTP 0.9",
        "no header", "length", "negative length", "two lengths",
    ],
)  # fmt: skip
def test_f16_what_is_not_http_is_refused_in_bounded_time(response: bytes) -> None:
    with nothing_left(), Server([request, send(response), wait_for_client]) as server:
        scrape = fetch(server.url)
    assert reason_of(scrape) is Reason.PROTOCOL
    assert scrape.took_seconds < 2.0


def test_f16_a_length_of_thousands_of_digits_is_too_large() -> None:
    response = answer(b"", "200 OK", "Content-Length: " + "9" * 10_000, length=None)
    assert reason_of(fetch_from(request, send(response))) is Reason.TOO_LARGE


@pytest.mark.parametrize("end", [[], [reset]], ids=["closed", "reset"])
def test_f17_kept_connection_closed_between_scrapes(end: list[Any]) -> None:
    once = [request, send(answer(PAGE)), *end]
    with nothing_left(), Server(once, once) as server:
        fetcher = Fetcher(Endpoint(server.url), limits())
        assert fetcher.fetch(0.0, 0.0).body == PAGE
        time.sleep(0.1)
        assert fetcher.fetch(0.0, 0.0).body == PAGE
        fetcher.close()
    assert server.connections == 2


@pytest.mark.parametrize("end", [[], [reset]], ids=["closed", "reset"])
def test_f17_kept_connection_closed_on_the_next_request_is_opened_once_more(end: list[Any]) -> None:
    first = [request, send(answer(PAGE)), request, *end]
    with nothing_left(), Server(first, [request, *end], serving(answer(PAGE))) as server:
        fetcher = Fetcher(Endpoint(server.url), limits())
        assert fetcher.fetch(0.0, 0.0).body == PAGE
        # The second connection is new: that it fails is told, a third is not tried.
        assert reason_of(fetcher.fetch(0.0, 0.0)) is Reason.TRUNCATED
        assert server.connections == 2
        assert fetcher.fetch(0.0, 0.0).body == PAGE
        fetcher.close()


def test_f17_reconnect_is_within_the_same_deadline() -> None:
    first = [request, send(answer(PAGE)), request]
    with nothing_left(), Server(first, [request, hang]) as server:
        fetcher = Fetcher(Endpoint(server.url), limits(deadline_seconds=DEADLINE_SECONDS))
        assert fetcher.fetch(0.0, 0.0).body == PAGE
        scrape = fetcher.fetch(0.0, 0.0)
        fetcher.close()
    assert reason_of(scrape) is Reason.TIMEOUT
    assert is_at(scrape.took_seconds, DEADLINE_SECONDS)


def test_f17_connection_is_kept_and_left_whole() -> None:
    with Server(serving(answer(PAGE))) as server:
        fetcher = Fetcher(Endpoint(server.url), limits())
        assert [fetcher.fetch(0.0, 0.0).body for _ in range(5)] == [PAGE] * 5
        fetcher.close()
    assert server.connections == 1


def test_f17_bytes_sent_unasked_do_not_become_the_next_page() -> None:
    with Server([repeat_and_push], serving(answer(PAGE))) as server:
        fetcher = Fetcher(Endpoint(server.url), limits())
        bodies = []
        for _ in range(3):
            bodies.append(fetcher.fetch(0.0, 0.0).body)
            time.sleep(0.05)
        fetcher.close()
    assert bodies == [PAGE] * 3


def repeat_and_push(connection: Any) -> None:
    for step in serving(answer(PAGE) + answer(b"forged 1\n")):
        step(connection)


def test_f18_proxy_variables_are_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Server(serving(answer(b"proxy 1\n"))) as proxy, Server(serving(answer(PAGE))) as server:
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"]:
            monkeypatch.setenv(name, proxy.url.removesuffix("/metrics"))
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password else")
        scrape = fetch(server.url)
    assert scrape.body == PAGE
    assert proxy.connections == 0
    assert "Authorization" not in server.requests[0]


def test_f19_one_fetch_at_a_time() -> None:
    with Server([request, drip(answer(PAGE), 0.001), request, send(answer(PAGE))]) as server:
        fetcher = Fetcher(Endpoint(server.url), limits())
        with ThreadPoolExecutor(4) as pool:
            scrapes = list(pool.map(lambda _: fetcher.fetch(0.0, 0.0), range(2)))
        fetcher.close()
    assert [scrape.body for scrape in scrapes] == [PAGE, PAGE]
    assert server.connections == 1


def test_f20_servers_that_hang_do_not_hold_the_others() -> None:
    """At this stage: a thread that a hanging server holds is free at the deadline."""
    with nothing_left(), Server([request, hang]) as hanging, Server(serving(answer(PAGE))) as serving_one:
        endpoints = [Endpoint((hanging if number % 4 == 0 else serving_one).url) for number in range(40)]
        fetchers = [Fetcher(endpoint, limits(deadline_seconds=1.0)) for endpoint in endpoints]
        began = time.monotonic()
        with ThreadPoolExecutor(20) as pool:
            scrapes = list(pool.map(lambda fetcher: fetcher.fetch(0.0, 0.0), fetchers))
        took_seconds = time.monotonic() - began
        for fetcher in fetchers:
            fetcher.close()
    assert [scrape.failure is None for scrape in scrapes] == [number % 4 != 0 for number in range(40)]
    assert took_seconds < 2.0


def test_f92_out_of_file_descriptors_is_told_and_passes(authority: trustme.CA, ca_file: Path) -> None:
    certificate = authority.issue_cert("127.0.0.1")
    with Server(serving(answer(PAGE)), tls=tls_context(certificate)) as server:
        fetcher = Fetcher(Endpoint(server.url, ca_file=ca_file), limits())
        with no_file_descriptor_left():
            scrape = fetcher.fetch(0.0, 0.0)
        assert reason_of(scrape) is Reason.RESOURCES
        assert fetcher.fetch(0.0, 0.0).body == PAGE
        fetcher.close()


@contextmanager
def no_file_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    with ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with suppress(OSError):
            while True:
                held.enter_context(Path("/dev/null").open("rb"))
        yield
