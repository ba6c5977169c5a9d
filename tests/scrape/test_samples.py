"""Raw samples back into scrapes: whose they are, when, and what stood on the page."""

import json
from collections.abc import Mapping
from math import nan
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.history.names import wanted
from watchdog.model import Reason
from watchdog.scrape.answer import Row
from watchdog.scrape.continued import Continued
from watchdog.scrape.exposition import SeriesCache, parse
from watchdog.scrape.samples import Looks, ScrapedServer, fleet_of

AT = 1_700_000_000.0
ENGINE = {"model_name": "m", "engine": "0"}


def row(name: str, target: Mapping[str, str], *values: float, **labels: str) -> Row:
    """A series with a sample every 15 s, the last at AT; NaN leaves one out but for `up`."""
    times = [AT - 15 * (len(values) - 1 - number) for number in range(len(values))]
    samples = [
        [at, str(value)]
        for at, value in zip(times, values, strict=True)
        if str(value) != "nan" or name == "up"
    ]
    return made({"__name__": name, **target, **labels}, samples)


def made(labels: Mapping[str, str], samples: list[list[Any]]) -> Row:
    return json.dumps(labels).encode(), json.dumps(samples, separators=(",", ":")).encode()[1:-1]


def earlier(one: Row, seconds: float) -> Row:
    metric, values = one
    return made(
        json.loads(metric), [[at - seconds, value] for at, value in json.loads(f"[{values.decode()}]")]
    )


def server(target: Mapping[str, str], *up: float) -> list[Row]:
    running = [each if each == 1 else nan for each in up]
    return [row("up", target, *up), row("vllm:num_requests_running", target, *running, **ENGINE)]


def pod(instance: str, **more: str) -> dict[str, str]:
    return {"instance": instance, "job": "vllm", **more}


def lines(found: ScrapedServer) -> list[str]:
    return [each.body.decode() for each in found.scrapes()]


def test_each_target_has_its_own_scrapes_and_a_failed_one_is_a_failure() -> None:
    fleet = fleet_of([*server(pod("a:8000"), 1, 0, 1), *server(pod("b:8000"), 1, 1)])
    assert list(fleet.servers) == ["a:8000", "b:8000"]
    scrapes = list(fleet.servers["a:8000"].scrapes())
    assert [each.at for each in scrapes] == [AT - 30, AT - 15, AT]
    assert [each.failure.reason if each.failure else None for each in scrapes] == [
        None,
        Reason.NOT_SCRAPED,
        None,
    ]
    assert lines(fleet.servers["b:8000"])[0] == 'vllm:num_requests_running{model_name="m",engine="0"} 1\n'
    assert fleet.servers["a:8000"].pace_seconds == 15


def test_a_label_that_the_target_had_displaced_gets_its_name_back() -> None:
    target = pod("a:8000", engine="blue")
    rows = [
        row("up", target, 1),
        row("vllm:num_requests_running", target, 3, exported_engine="0", model_name="m"),
    ]
    [found] = fleet_of(rows).servers.values()
    assert lines(found) == ['vllm:num_requests_running{engine="0",model_name="m"} 3\n']


def test_what_is_no_vllm_is_left_out_and_a_server_that_is_down_is_not() -> None:
    router = {"instance": "r:80", "job": "pods"}
    rows = [
        *server(pod("a:8000"), 1, 1),
        row("up", pod("b:8000"), 0, 0),
        row("up", router, 1, 1),
        row("up", {"instance": "x:80", "job": "pods"}, 0, 0),
    ]
    assert list(fleet_of(rows).servers) == ["a:8000", "b:8000"]


def test_of_a_pair_that_scrapes_the_same_server_one_is_taken() -> None:
    rows = [
        *server(pod("a:8000", prometheus_replica="p-0"), 1, 1),
        *server(pod("a:8000", prometheus_replica="p-1"), 1, 1, 1),
        *server(pod("b:8000", prometheus_replica="p-0"), 1, 1),
    ]
    fleet = fleet_of(rows)
    assert {name: len(each.times) for name, each in fleet.servers.items()} == {"a:8000": 3, "b:8000": 2}
    assert "more than one Prometheus" in fleet.notes[0]


def test_where_no_up_was_kept_the_labels_of_a_gauge_tell_the_target() -> None:
    rows = [
        row("vllm:num_requests_running", pod("a:8000"), 1, 2, **ENGINE),
        row("process_open_fds", pod("a:8000"), 30, 31),
        row("vllm:num_requests_running", pod("b:8000"), 5, 5, **ENGINE),
    ]
    fleet = fleet_of(rows)
    assert list(fleet.servers) == ["a:8000", "b:8000"]
    assert "process_open_fds{} 30" in lines(fleet.servers["a:8000"])[0]


def test_staleness_and_a_scrape_of_which_nothing_was_kept() -> None:
    rows = [
        row("up", pod("a:8000"), 1, 1, nan),
        row("vllm:num_requests_running", pod("a:8000"), 4, nan, nan, **ENGINE),
    ]
    [found] = fleet_of(rows).servers.values()
    assert found.times == [AT - 30, AT - 15]
    assert lines(found)[1] == "up 1\n"


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        ([pod("1:80", pod="v-0"), pod("2:80", pod="v-1")], ["v-0", "v-1"]),
        (
            [pod("1:80", pod="v-0", namespace="a"), pod("2:80", pod="v-0", namespace="b")],
            ["v-0 a", "v-0 b"],
        ),
        ([pod("1:80"), pod("2:80")], ["1:80", "2:80"]),
        ([{"instance": "1:80", "job": "a/x"}, {"instance": "1:80", "job": "b"}], ["1:80 a_x", "1:80 b"]),
        ([{"job": "a"}, {"job": "b"}], ["a", "b"]),
    ],
)
def test_a_server_has_the_name_that_people_look_for(targets: list[dict[str, str]], names: list[str]) -> None:
    rows = [each for target in targets for each in server(target, 1)]
    assert list(fleet_of(rows).servers) == names


def test_looks_that_overlap_are_joined_and_a_server_keeps_its_name() -> None:
    joined = Continued()
    first = list(joined.new(fleet_of(server(pod("a:8000"), 1, 1))))
    second = list(
        joined.new(fleet_of([*server(pod("a:8000"), 1, 1, 1), *server(pod("a:8000", zone="z"), 1, 1)]))
    )
    assert [(each.name, each.scrape.at) for each in first] == [("a:8000", AT - 15), ("a:8000", AT)]
    assert [(each.name, each.scrape.at) for each in second if each.scrape.at == AT] == [("a:8000 vllm z", AT)]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=20)
NAMES = st.from_regex(r"[a-z][a-z_]{0,10}", fullmatch=True).filter(
    lambda name: name not in {"instance", "job", "le", "engine", "model_name"}
)


@given(st.dictionaries(NAMES, TEXT, max_size=4), st.floats(allow_nan=False))
def test_a_series_comes_back_as_it_was_scraped(labels: dict[str, str], value: float) -> None:
    rows = [
        row("up", pod("a:8000"), 1),
        row("vllm:num_requests_running", pod("a:8000"), value, **ENGINE, **labels),
    ]
    [found] = fleet_of(rows).servers.values()
    [text] = lines(found)
    page = parse(text.encode(), SeriesCache(wanted))
    assert [dict(one.labels) for one in page.series] == [{**ENGINE, **labels}]


def test_what_was_sorted_once_is_sorted_so_again() -> None:
    looks = Looks()
    one, two = server(pod("a:8000"), 1, 1), server(pod("b:8000"), 1, 1)
    assert list(looks.fleet(one).servers) == ["a:8000"]
    assert list(looks.fleet([*one, *two]).servers) == ["a:8000", "b:8000"]
    assert list(looks.fleet(two).servers) == ["b:8000"]
    assert looks.fleet([]).servers == {}


@given(st.randoms())
def test_a_page_keeps_its_shape_in_whatever_order_its_series_come(chance: Random) -> None:
    rows = [
        *server(pod("a:8000"), 1, 1),
        *(row(f"vllm:num_requests_{name}", pod("a:8000"), 1, 2, **ENGINE) for name in "abcde"),
    ]
    [before] = fleet_of(rows).servers.values()
    chance.shuffle(rows)
    [after] = fleet_of(rows).servers.values()
    assert lines(after) == lines(before)


def test_a_target_seen_by_its_up_later_has_the_series_that_were_its_own() -> None:
    looks = Looks()
    target, more = pod("a:8000"), {"zone": "z"}
    series = row("vllm:num_requests_running", {**target, **more}, 4, **ENGINE)
    assert [dict(each.labels) for each in looks.fleet([series]).servers.values()] == [{**target, **more}]
    [found] = looks.fleet([series, row("up", target, 1)]).servers.values()
    assert (found.labels, lines(found)) == (
        target,
        ['vllm:num_requests_running{zone="z",model_name="m",engine="0"} 4\n'],
    )


def test_a_server_that_shows_nothing_of_vllm_any_more_is_still_one() -> None:
    looks = Looks()
    looks.fleet(server(pod("a:8000"), 1))
    bare = [row("up", pod("a:8000"), 1, 1), row("process_open_fds", pod("a:8000"), 30, 31)]
    assert list(looks.fleet(bare).servers) == ["a:8000"]


def test_one_of_a_pair_is_kept_until_it_sees_less_than_the_other() -> None:
    looks = Looks()

    def scrapes(first: list[float], second: list[float]) -> int:
        rows = [
            *server(pod("a:8000", prometheus_replica="p-0"), *first),
            *server(pod("a:8000", prometheus_replica="p-1"), *second),
        ]
        [found] = looks.fleet(rows).servers.values()
        assert found.labels == pod("a:8000")
        return len(found.times)

    assert scrapes([1, 1], [1]) == 2
    assert scrapes([1], [1, 1, 1]) == 1
    assert scrapes([1, 0], [1]) == 1


def test_pairs_are_told_apart_where_no_label_says_that_they_are_one() -> None:
    rows = [
        *server(pod("a:8000", prometheus_replica="p-0"), 1),
        *server(pod("a:8000", prometheus_replica="p-1"), 1),
    ]
    assert len(Looks(replica_labels=()).fleet(rows).servers) == 2


def test_a_pod_that_goes_on_at_another_address_is_one_server() -> None:
    old, new = pod("1:80", pod="v-0"), pod("2:80", pod="v-0")
    rows = [
        *server(new, 1, 1),
        *(earlier(each, 45) for each in server(old, 1, 1)),
        *server(pod("3:80", pod="v-1"), 1, 1),
    ]
    fleet = fleet_of(rows)
    assert list(fleet.servers) == ["v-0", "v-1"]
    assert [each.at for each in fleet.servers["v-0"].scrapes()] == [AT - 60, AT - 45, AT - 15, AT]
    assert [each.at for each in fleet.servers["v-0"].scrapes(AT - 45)] == [AT - 15, AT]
