"""The host memory of the process: a rise that goes on is told from a cache that fills and stops."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from watchdog.facts.fact import by_name
from watchdog.facts.host_memory import GIGABYTE, HostMemory


def watched(sizes_gigabytes: list[float], seconds: float = 60.0) -> dict[str, float]:
    one = HostMemory()
    for place, size in enumerate(sizes_gigabytes):
        one.note(size * GIGABYTE, place * seconds)
    return by_name(one.facts((len(sizes_gigabytes) - 1) * seconds, is_current=True))


@given(st.lists(st.floats(0.3, 1.7), min_size=2, max_size=200), st.sampled_from([15.0, 60.0, 120.0]))
def test_a_rise_without_a_pause_is_counted_from_its_beginning(steps: list[float], seconds: float) -> None:
    sizes = list(accumulate(steps, initial=5.0))
    facts = watched(sizes, seconds)
    assert abs(facts["host_memory_growth_gigabytes"] - (sizes[-1] - 5.0)) < 1e-6
    assert facts["host_memory_growth_seconds"] == len(steps) * seconds


@given(st.integers(1, 60), st.integers(4, 60))
def test_a_cache_that_is_full_is_level_within_minutes(filling: int, full: int) -> None:
    sizes = [5.0 + 4.0 * min(1.0, minute / filling) for minute in range(filling + full + 1)]
    assert watched(sizes)["host_memory_growth_gigabytes"] < 0.5


def test_a_collector_that_holds_it_for_two_minutes_does_not_end_the_rise() -> None:
    sizes = [5.0 + minute - minute % 3 for minute in range(30)]
    assert watched(sizes)["host_memory_growth_gigabytes"] == sizes[-1] - 5.0


def test_memory_that_is_given_back_begins_a_new_rise() -> None:
    assert watched([50.0, 60.0, 49.0, 49.5])["host_memory_growth_gigabytes"] == 0.5


def test_what_the_process_before_a_restart_held_is_remembered() -> None:
    one = HostMemory()
    assert by_name(one.facts(0.0, is_current=True)) == {}
    one.note(100 * GIGABYTE, 0.0)
    assert by_name(one.facts(5.0, is_current=False)) == {"host_memory_last_gigabytes": 100}
    one.begin_again()
    one.note(5 * GIGABYTE, 60.0)
    facts = by_name(one.facts(60.0, is_current=True))
    assert facts["host_memory_before_restart_gigabytes"] == 100
    assert facts["host_memory_last_gigabytes"] == 5
    assert facts["host_memory_growth_gigabytes"] == 0
