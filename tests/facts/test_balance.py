"""How engines of one model share its work, from numbers given by hand."""

from collections.abc import Mapping

import pytest

from tests.pages import history_of, page
from watchdog.facts.balance import Load, facts, fleet_facts, of_one_server
from watchdog.facts.fact import by_name
from watchdog.history.owners import Owners
from watchdog.model import Lookup, Subject

ALL = {
    "engines": 2,
    "engines_first_tokens": 40,
    "least_engine_share_ratio": 0.25,
    "greatest_engine_share_ratio": 0.75,
    "engine_running_greatest": 9,
    "engine_running_mean": 5,
    "engine_running_least": 1,
    "engine_kv_usage_least_ratio": 0.1,
    "engine_waiting_greatest": 7,
    "engine_waiting_least": 0,
}
FIRST = {
    "first_tokens": 30.0,
    "generation_tokens_per_second": 1.0,
    "running_mean": 9.0,
    "kv_usage_mean_ratio": 0.4,
    "waiting_recent_min": 7.0,
}
SECOND = {
    "first_tokens": 10.0,
    "generation_tokens_per_second": 9.0,
    "running_mean": 1.0,
    "kv_usage_mean_ratio": 0.1,
    "waiting_recent_min": 0.0,
}


def told(*engines: Mapping[str, float]) -> dict[str, float]:
    return by_name(facts([Load.of(one.get) for one in engines]))


def test_two_engines_are_held_against_each_other() -> None:
    assert told(FIRST, SECOND) == ALL


def test_one_engine_is_compared_with_nothing() -> None:
    assert told() == {"engines": 0}
    assert told(FIRST) == {"engines": 1}


@pytest.mark.parametrize(
    ("missing", "facts_gone"),
    [
        ("running_mean", {"engine_running_greatest", "engine_running_mean", "engine_running_least"}),
        ("kv_usage_mean_ratio", {"engine_kv_usage_least_ratio"}),
        ("waiting_recent_min", {"engine_waiting_greatest", "engine_waiting_least"}),
    ],
)
def test_what_one_engine_lacks_is_left_out(missing: str, facts_gone: set[str]) -> None:
    lacking = {name: value for name, value in SECOND.items() if name != missing}
    assert told(FIRST, lacking) == {name: value for name, value in ALL.items() if name not in facts_gone}


def test_where_requests_do_not_tell_the_shares_tokens_do() -> None:
    def shares(first: Mapping[str, float], second: Mapping[str, float]) -> list[float | None]:
        found = told(first, second)
        return [found.get("least_engine_share_ratio"), found.get("greatest_engine_share_ratio")]

    idle = {"first_tokens": 0.0}
    assert shares(FIRST | idle, SECOND | idle) == [0.1, 0.9]
    assert told(FIRST | idle, SECOND | idle)["engines_first_tokens"] == 0
    unknown = {name: value for name, value in SECOND.items() if name != "first_tokens"}
    assert shares(FIRST, unknown) == [0.1, 0.9]
    assert "engines_first_tokens" not in told(FIRST, unknown)
    still = {"generation_tokens_per_second": 0.0}
    assert shares(FIRST | idle | still, SECOND | idle | still) == [None, None]


def test_a_share_of_one_is_all_of_it() -> None:
    found = told(FIRST, SECOND | {"first_tokens": 0.0})
    assert found["least_engine_share_ratio"] == 0
    assert found["greatest_engine_share_ratio"] == 1


def test_targets_of_one_model_are_compared_as_engines_are_and_by_their_hit_ratios() -> None:
    loads = [Load.of(one.get) for one in (FIRST, SECOND)]
    assert by_name(fleet_facts(loads, [0.9, 0.2, 0.5])) == ALL | {"targets": 2, "hit_ratio_spread": 0.7}
    assert by_name(fleet_facts(loads, [0.9])) == ALL | {"targets": 2}


def test_engines_of_another_model_are_not_compared() -> None:
    lookup: Lookup = FIRST.get
    alone = {Subject("t", "a", "0"): lookup}
    pair = {Subject("t", "b", engine): lookup for engine in ("0", "1")}
    one_server = Owners(())
    assert of_one_server(alone | pair, one_server) == pair
    assert of_one_server(pair | alone, one_server) == pair
    assert of_one_server({}, one_server) == {}


def test_engines_of_two_servers_on_one_page_are_not_compared() -> None:
    lookup: Lookup = FIRST.get
    labels = [f'model_name="m",engine="0",ReplicaId="{one}"' for one in "ab"]
    lines = "".join(page(one, num_requests_running=1.0) for one in labels)
    layout = history_of([(0.0, lines)]).frames[-1].layout
    engines = {Subject("t", *names): lookup for names in layout.subjects}
    assert [subject.engine for subject in engines] == ["0@a", "0@b"]
    assert len(of_one_server(engines, layout.owners)) == 1
