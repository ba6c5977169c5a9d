"""`GET /load`: beside which pages it is read, what is made of its answer, and that a page never suffers for it."""

import json

import pytest

from tests.servers import Connection, Script, Server, answer, hang, request, send
from watchdog.http.endpoint import Endpoint
from watchdog.model import Scrape
from watchdog.scrape.fetch import Fetcher, FetchLimits
from watchdog.scrape.load import LoadAsking, answer_of, requests_in_flight


def page(tokens: int) -> bytes:
    return (
        "# HELP vllm:generation_tokens_total Number of generated tokens.\n"
        f'vllm:generation_tokens_total{{engine="0"}} {tokens}\nvllm:num_requests_running{{engine="0"}} 0\n'
    ).encode()


def vllm(pages: list[bytes], load: bytes) -> Script:
    """Gives one page after another, and always this answer to GET /load."""
    left = list(pages)

    def step(connection: Connection) -> None:
        while True:
            path = connection.read_request().split()[1]
            given = load if path == b"/load" else answer(left.pop(0) if len(left) > 1 else left[0])
            connection.peer.sendall(given)

    return [step]


def paths(server: Server) -> list[str]:
    return [head.split()[1] for head in server.requests]


def scrapes(server: Server, times: list[float], suspects: bool = False) -> list[Scrape]:
    fetcher = Fetcher(Endpoint(server.url), FetchLimits(2.0))
    found = [fetcher.fetch(at, at, suspects) for at in times]
    fetcher.close()
    return found


@pytest.mark.parametrize(
    ("body", "number"),
    [
        (b'{"server_load": 7}', 7),
        (b'{"server_load":0}', 0),
        (b'{"server_load": -1}', None),
        (b'{"server_load": true}', None),
        (b'{"server_load": "7"}', None),
        (b'{"server_load": 1e3}', None),
        (b'{"server_load": 9999999999999}', None),
        (b"[7]", None),
        (b"7", None),
        (b"", None),
        (b"[" * 100_000, None),
        (b"\xff\xfe", None),
    ],
)
def test_what_an_answer_tells(body: bytes, number: int | None) -> None:
    assert requests_in_flight(body) == number


def test_an_answer_that_is_written_is_read() -> None:
    assert requests_in_flight(answer_of(31)) == 31


def test_it_is_read_where_nothing_moved_and_a_busy_server_is_left_alone() -> None:
    load = answer(b'{"server_load":3}')
    with Server(vllm([page(5), page(9), page(9), page(12)], load)) as server:
        found = scrapes(server, [0.0, 5.0, 10.0, 15.0])
        assert [scrape.load for scrape in found] == [None, None, 3, None]
        assert paths(server) == ["/metrics", "/metrics", "/metrics", "/load", "/metrics"]
    assert all(scrape.failure is None and scrape.status == 200 for scrape in found)


def test_a_busy_server_is_asked_once_a_minute_and_a_suspected_one_always() -> None:
    load = answer(b'{"server_load":3}')
    moving = [page(number) for number in range(30)]
    times = [5.0 * number for number in range(26)]
    with Server(vllm(moving, load)) as server:
        found = scrapes(server, times)
    assert [scrape.at for scrape in found if scrape.load is not None] == [60.0, 120.0]
    with Server(vllm(moving, load)) as server:
        assert {scrape.load for scrape in scrapes(server, times, suspects=True)} == {3}


def test_a_server_without_it_is_not_asked_again_before_its_next_start() -> None:
    with Server(vllm([page(5)], answer(b"{}", "404 Not Found"))) as server:
        assert {scrape.load for scrape in scrapes(server, [0.0, 5.0, 10.0, 90.0])} == {None}
        assert paths(server).count("/load") == 1
    asking = LoadAsking()
    asking.is_due(page(5), 0.0, False)
    asking.refused()
    assert not asking.is_due(page(5), 5.0, True)
    asking.begin_again()
    assert not asking.is_due(page(5), 10.0, False)
    assert asking.is_due(page(5), 15.0, False)


@pytest.mark.parametrize(
    "load",
    [
        answer(b"no JSON"),
        answer(b"busy", "503 Service Unavailable"),
        answer(b"{}", "307 Temporary Redirect", "Location: http://elsewhere/"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
        b"",
    ],
)
def test_a_page_stays_whole_whatever_comes_of_it(load: bytes) -> None:
    def broken(connection: Connection) -> None:
        request(connection)
        connection.peer.sendall(answer(page(5)))
        if connection.read_request().split()[1] == b"/load":
            connection.peer.sendall(load)
            return
        connection.peer.sendall(answer(page(5)))
        request(connection)
        connection.peer.sendall(load)

    with Server([broken]) as server:
        found = scrapes(server, [0.0, 5.0, 10.0])
    assert all(scrape.body == page(5) and scrape.status == 200 for scrape in found)
    assert all(scrape.failure is None and scrape.load is None for scrape in found)


def test_a_server_that_never_answers_it_costs_no_more_than_the_deadline() -> None:
    silent = [request, send(answer(page(5))), request, send(answer(page(5))), request, hang]
    with Server(silent) as server:
        fetcher = Fetcher(Endpoint(server.url), FetchLimits(0.3))
        fetcher.fetch(0.0, 0.0)
        found = fetcher.fetch(5.0, 5.0)
        fetcher.close()
    assert (found.failure, found.load, found.body) == (None, None, page(5))


def test_the_front_end_in_rust_is_known_by_what_it_says_of_its_version() -> None:
    def versions(connection: Connection) -> None:
        while True:
            told = connection.read_request().split()[1] == b"/version"
            body = {"version": "0.32.0", "rust_frontend_version": "0.3.1"} if told else {}
            connection.peer.sendall(answer(json.dumps(body).encode()))

    with Server([versions]) as server:
        fetcher = Fetcher(Endpoint(server.url), FetchLimits(2.0))
        info = fetcher.server_info()
        fetcher.close()
    assert (info.version, info.rust_frontend_version) == ("0.32.0", "0.3.1")


def test_counters_are_found_wherever_on_the_page_they_move() -> None:
    asking = LoadAsking()
    more = b"# HELP vllm:other Other.\n" + b'vllm:other{a="1"} 2\n' * 200
    twice = page(5) + more + b'vllm:generation_tokens_total{engine="1"} 7\n'
    for at, body in enumerate([page(5), more + page(6), page(7) + more, twice]):
        assert not asking.is_due(body, float(at), False)
    assert asking.is_due(twice, 5.0, False)
