"""Restarts: counted, dated, told from two servers behind one address, and bounded."""

from watchdog.facts.fact import by_name
from watchdog.facts.restarts import MOST_REMEMBERED, Restarts
from watchdog.history.history import Reset

FIRST, SECOND = ("m", "0"), ("m", "1")


def reset(engine: tuple[str, str] = FIRST, at: float = 0.0) -> Reset:
    return Reset(*engine, at)


def facts(one: Restarts, at: float) -> dict[str, float]:
    return by_name(one.facts(at))


def test_without_a_restart_there_is_no_date() -> None:
    one = Restarts()
    one.note((), 10.0, True, "nothing")
    assert facts(one, 10.0) == {"restarts": 0, "counter_jumps": 0}
    assert by_name(one.engine_facts(FIRST, 10.0)) == {}
    assert one.last_words == []


def test_a_restart_is_counted_once_however_many_engines_it_took() -> None:
    one = Restarts()
    one.note([reset(FIRST), reset(SECOND)], 100.0, True, "nothing")
    assert facts(one, 130.0) == {"restarts": 1, "counter_jumps": 0, "seconds_since_restart": 30}
    assert by_name(one.engine_facts(SECOND, 130.0)) == {"seconds_since_restart": 30}


def test_each_engine_has_its_own_date_and_the_target_the_last() -> None:
    one = Restarts()
    one.note([reset(FIRST)], 100.0, True, "nothing")
    one.note([reset(SECOND)], 200.0, True, "nothing")
    assert by_name(one.engine_facts(FIRST, 210.0)) == {"seconds_since_restart": 110}
    assert by_name(one.engine_facts(SECOND, 210.0)) == {"seconds_since_restart": 10}
    assert facts(one, 210.0)["seconds_since_restart"] == 10
    assert facts(one, 210.0)["restarts"] == 2


def test_restarts_are_forgotten_after_half_an_hour_and_an_engine_keeps_its_date() -> None:
    one = Restarts()
    one.note([reset()], 5000.0, True, "nothing")
    one.note((), 6800.0, False, "nothing")
    assert facts(one, 6800.0)["restarts"] == 1
    one.note((), 6800.5, False, "nothing")
    assert facts(one, 6800.5) == {"restarts": 0, "counter_jumps": 0}
    assert by_name(one.engine_facts(FIRST, 12_200.0)) == {"seconds_since_restart": 7200}


def test_a_fall_without_a_failed_scrape_is_a_jump_for_two_minutes() -> None:
    one = Restarts()
    one.note([reset()], 5000.0, False, "nothing")
    assert facts(one, 5000.0) == {"restarts": 1, "counter_jumps": 1, "seconds_since_restart": 0}
    one.note((), 5120.0, False, "nothing")
    assert facts(one, 5120.0)["counter_jumps"] == 1
    one.note((), 5120.5, False, "nothing")
    assert facts(one, 5120.5)["counter_jumps"] == 0


def test_jumps_one_after_the_other_are_two_servers_and_no_crashes() -> None:
    one = Restarts()
    one.note([reset()], 0.0, True, "nothing")
    for at in (10.0, 20.0):
        one.note([reset()], at, False, "nothing")
    assert facts(one, 20.0)["restarts"] == 3
    one.note([reset()], 30.0, False, "nothing")
    assert facts(one, 30.0)["counter_jumps"] == 3
    assert facts(one, 30.0)["restarts"] == 1  # the one that was away
    assert facts(one, 30.0)["seconds_since_restart"] == 30


def test_the_last_five_words_are_kept_the_oldest_first() -> None:
    one = Restarts()
    for number in range(7):
        one.note([reset()], 10.0 * number, True, f"words {number}")
    one.note((), 80.0, True, "no restart, no words")
    assert one.last_words == [f"words {number}" for number in range(2, 7)]


def test_engines_whose_names_never_come_back_do_not_pile_up() -> None:
    one = Restarts()
    one.note([reset(FIRST)], 0.0, False, "nothing")
    for number in range(2 * MOST_REMEMBERED):
        one.note(
            [reset(("m", f"new {number}")), *([reset(FIRST)] * (number == 500))], 1.0 + number, False, ""
        )
    assert len(one.by_engine) == MOST_REMEMBERED
    assert by_name(one.engine_facts(("m", "new 2047"), 2050.0)) == {"seconds_since_restart": 2}
    assert by_name(one.engine_facts(FIRST, 2050.0)) == {}
    one.note([reset(("m", "new 1100"))], 3000.0, False, "")
    one.note([reset(("m", f"other {number}")) for number in range(100)], 3001.0, False, "")
    assert by_name(one.engine_facts(("m", "new 1100"), 3002.0)) == {"seconds_since_restart": 2}


def test_a_process_is_as_old_as_its_start_time_says() -> None:
    one = Restarts()
    one.began(60.0, 100.0)
    assert by_name(one.facts(130.0))["process_age_seconds"] == 90
    assert by_name(one.engine_facts(("m", "0"), 130.0))["process_age_seconds"] == 90
    one.began(-5.0, 135.0)
    assert "process_age_seconds" not in by_name(one.facts(135.0))
    one.began(float("nan"), 140.0)
    assert "process_age_seconds" not in by_name(one.facts(140.0))
