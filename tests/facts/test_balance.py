"""How engines of one model share its work, from numbers given by hand."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages import history_of, page
from watchdog.facts.balance import Load, chance_of_share, facts, fleet_facts, of_one_server, sister_facts
from watchdog.facts.fact import by_name
from watchdog.history.owners import Owners
from watchdog.model import Lookup, Subject

ALL = {
    "engines": 2,
    "engines_first_tokens": 40,
    "fewest_chance_ratio": pytest.approx(0.0107, abs=0.0001),
    "least_engine_share_ratio": 0.1,
    "greatest_engine_share_ratio": 0.9,
    "engine_running_greatest": 9,
    "engine_running_mean": 5,
    "engine_running_least": 1,
    "fullest_chance_ratio": pytest.approx(0.00068, abs=0.00001),
    "engine_kv_usage_least_ratio": 0.1,
    "engine_waiting_greatest": 7,
    "engine_waiting_least": 0,
    "stranded_requests": 7,
    "pressed_pool_ratio": 0.3,
    "preempted_greatest_ratio": 0.2,
}
FIRST = {
    "first_tokens": 30.0,
    "generation_tokens_per_second": 70.0,
    "prompt_tokens_per_second": 20.0,
    "running_mean": 9.0,
    "running_last": 10.0,
    "kv_usage_mean_ratio": 0.4,
    "kv_usage_recent_min_ratio": 0.3,
    "waiting_recent_min": 7.0,
    "preemptions": 5.0,
    "finished_requests": 15.0,
}
SECOND = {
    "first_tokens": 10.0,
    "generation_tokens_per_second": 6.0,
    "prompt_tokens_per_second": 4.0,
    "running_mean": 1.0,
    "running_last": 0.0,
    "kv_usage_mean_ratio": 0.1,
    "kv_usage_recent_min_ratio": 0.9,
    "waiting_recent_min": 0.0,
    "preemptions": 0.0,
    "finished_requests": 0.0,
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
        (
            "running_mean",
            {
                "engine_running_greatest",
                "engine_running_mean",
                "engine_running_least",
                "fullest_chance_ratio",
            },
        ),
        ("kv_usage_mean_ratio", {"engine_kv_usage_least_ratio"}),
        ("first_tokens", {"engines_first_tokens", "fewest_chance_ratio"}),
    ],
)
def test_what_one_engine_lacks_is_left_out(missing: str, facts_gone: set[str]) -> None:
    lacking = {name: value for name, value in SECOND.items() if name != missing}
    assert told(FIRST, lacking) == {name: value for name, value in ALL.items() if name not in facts_gone}


def test_what_the_free_engine_lacks_takes_nothing_from_the_pressed_one() -> None:
    lacking = {name: SECOND[name] for name in ("running_mean", "waiting_recent_min")}
    found = told(FIRST, lacking)
    assert (found["pressed_pool_ratio"], found["preempted_greatest_ratio"]) == (0.3, 0.2)


def test_where_queues_are_unknown_batches_are_compared_without_them() -> None:
    lacking = {name: value for name, value in SECOND.items() if name != "waiting_recent_min"}
    found = told(FIRST, lacking)
    assert found["fullest_chance_ratio"] == pytest.approx(0.0504, abs=0.0001)  # nine and one
    gone = {"engine_waiting_greatest", "engine_waiting_least", "stranded_requests", "pressed_pool_ratio"}
    assert not gone & found.keys()


def test_a_queue_whose_pool_is_unknown_presses_nothing_that_is_known() -> None:
    lacking = {name: value for name, value in FIRST.items() if name != "kv_usage_recent_min_ratio"}
    assert "pressed_pool_ratio" not in told(lacking, SECOND)
    assert told(SECOND, SECOND)["pressed_pool_ratio"] == 0
    assert told(FIRST, FIRST)["stranded_requests"] == 0


def test_where_tokens_do_not_tell_the_shares_requests_do() -> None:
    def shares(first: Mapping[str, float], second: Mapping[str, float]) -> list[float | None]:
        found = told(first, second)
        return [found.get("least_engine_share_ratio"), found.get("greatest_engine_share_ratio")]

    still = {"generation_tokens_per_second": 0.0, "prompt_tokens_per_second": 0.0}
    assert shares(FIRST | still, SECOND | still) == [0.25, 0.75]
    unknown = {name: value for name, value in SECOND.items() if name != "generation_tokens_per_second"}
    assert shares(FIRST, unknown) == [0.25, 0.75]
    idle = {"first_tokens": 0.0}
    assert told(FIRST | idle, SECOND | idle)["engines_first_tokens"] == 0
    assert shares(FIRST | idle | still, SECOND | idle | still) == [None, None]


def test_a_share_of_one_is_all_of_it() -> None:
    found = told(FIRST, SECOND | {"generation_tokens_per_second": 0.0, "prompt_tokens_per_second": 0.0})
    assert found["least_engine_share_ratio"] == 0
    assert found["greatest_engine_share_ratio"] == 1


def test_targets_of_one_model_are_compared_as_engines_are_and_by_their_hit_ratios() -> None:
    loads = [Load.of(one.get) for one in (FIRST, SECOND)]
    apart = ALL | {"targets": 2, "connected_targets": 0, "fleet_kv_transfers_per_second": 0}
    assert by_name(fleet_facts(loads, [0.9, 0.2, 0.5])) == apart | {"hit_ratio_spread": 0.7}
    assert by_name(fleet_facts(loads, [0.9])) == apart


def test_kv_transfers_are_those_of_all_targets_that_have_a_connector() -> None:
    loads = [Load(kv_transfers_per_second=one) for one in (0.0, 2.5, None)]
    found = by_name(fleet_facts(loads, []))
    assert (found["connected_targets"], found["fleet_kv_transfers_per_second"]) == (2, 2.5)


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


@pytest.mark.parametrize(
    ("parts", "chance"),
    [
        ([8.0, 0.0], 2 / 2**8),  # all on one of two
        ([0.0] * 3 + [12.0], 4 / 4**12),
        ([5.0, 5.0], 1.0),
        ([0.0, 0.0], 1.0),
    ],
)
def test_the_chance_of_an_uneven_placement(parts: list[float], chance: float) -> None:
    assert chance_of_share(max(parts), parts) == pytest.approx(chance)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=200))
def test_a_chance_is_a_chance_whatever_the_parts(parts: list[float]) -> None:
    assert 0 <= chance_of_share(min(parts), parts) <= 1
    assert 0 <= chance_of_share(max(parts), parts) <= 1


@given(st.integers(2, 100), st.floats(0.1, 1000))
def test_the_more_engines_the_likelier_one_of_them_gets_nothing(engines: int, mean: float) -> None:
    def chance(count: int) -> float:
        parts = [0.0] + [mean * count / (count - 1)] * (count - 1)
        return chance_of_share(0.0, parts)

    assert chance(engines + 1) >= chance(engines) * 0.999


def test_room_on_a_sister_is_where_no_request_waits() -> None:
    def room(*engines: Mapping[str, float]) -> dict[str, float]:
        """The room that each engine finds on the others."""
        loads = {Subject("t", "m", str(number)): Load.of(one.get) for number, one in enumerate(engines)}
        return {subject.engine: value for subject, (_, value) in sister_facts(loads)}

    full = {"kv_usage_mean_ratio": 0.98, "waiting_recent_min": 4.0}
    free, freer = ({"kv_usage_mean_ratio": ratio, "waiting_recent_min": 0.0} for ratio in (0.3, 0.1))
    assert room(full, free, freer) == {"0": 0.1, "1": 0.1, "2": 0.3}
    assert room(full, free) == {"0": 0.3}, "a queue is no room, and none is its own sister"
    assert room(full, {"kv_usage_mean_ratio": 0.1}, {"waiting_recent_min": 0.0}) == {}, "unknown is no room"
    assert room(free) == room() == {}
