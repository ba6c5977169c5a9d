"""Whose series a page shows: one server's, or several servers' beside each other."""

from tests.pages import history_of, page
from watchdog.history.layout import Layout
from watchdog.history.owners import owners_of
from watchdog.model import Series


def layout(*texts: str) -> Layout:
    return history_of([(0.0, "".join(texts))]).frames[-1].layout


def replica(labels: str, **values: float) -> str:
    return page(f'model_name="m",engine="0",{labels}', **values)


def test_one_server_is_told_by_model_and_engine() -> None:
    both = layout(
        page('model_name="m",engine="0"', num_requests_running=1.0),
        page('model="n"', num_requests_running=2.0),
    )
    assert both.subjects == (("m", "0"), ("n", ""))
    assert both.owners.marks == ()
    assert both.owners.parted("0") == ("0", "")


def test_replicas_on_one_page_are_told_apart_by_a_label_of_all_their_series() -> None:
    one = replica('ReplicaId="a",WorkerId="1"', num_requests_running=1.0, prompt_tokens_total=5.0)
    two = replica('ReplicaId="b",WorkerId="2"', num_requests_running=2.0, prompt_tokens_total=7.0)
    both = layout(one, two)
    assert both.owners.marks == ("ReplicaId",)
    assert both.subjects == (("m", "0@a"), ("m", "0@b"))
    assert both.owners.parted("0@b") == ("0", "b")


def test_without_an_engine_the_server_stands_for_it() -> None:
    both = layout(*(page(f'pod="{pod}"', num_requests_running=1.0) for pod in "xy"))
    assert both.subjects == (("", "x"), ("", "y"))
    assert both.owners.parted("x") == ("", "x")


def test_where_no_label_tells_all_servers_apart_those_that_differ_do_together() -> None:
    places = ('job="a",pod="1"', 'job="a",pod="2"', 'job="b",pod="1"')
    three = layout(*(replica(place, num_requests_running=1.0) for place in places))
    assert three.owners.marks == ("job", "pod")
    assert [engine for _, engine in three.subjects] == ["0@a,1", "0@a,2", "0@b,1"]


def test_a_label_that_counters_lack_tells_no_servers_apart() -> None:
    gauges = [page(f'model_name="m",pid="{pid}"', num_requests_running=1.0) for pid in (7, 8)]
    assert layout(*gauges, page('model_name="m"', prompt_tokens_total=5.0)).subjects == (("m", ""),)


def test_what_has_no_server_is_every_servers() -> None:
    pages = [replica(f'pod="{pod}"', num_requests_running=1.0) for pod in "xy"]
    config = 'vllm:cache_config_info{engine="0",block_size="16"} 1.0\n'
    both = history_of([(0.0, "".join(pages) + config)])
    assert both.frames[-1].layout.by_name["vllm:cache_config_info"] == (2,)
    assert both.subjects() == (("m", "0@x"), ("m", "0@y"))


def test_an_empty_page_has_no_owner() -> None:
    assert owners_of(()).each == ()
    assert owners_of((Series("process_open_fds", {}),)).each == ((None, None),)
