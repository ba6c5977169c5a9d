"""What the watching itself knows: since when, what connections did when progress stopped, which rules are blind."""

from watchdog.facts.fact import by_name
from watchdog.facts.watching import Watching
from watchdog.model import BlindRule, Subject

ENGINE, OTHER = Subject("t", "m", "0"), Subject("t", "m", "1")


def test_an_engine_was_seen_since_its_present_life_began() -> None:
    one = Watching()
    assert by_name(one.engine_facts(ENGINE, 40.0, 100.0)) == {"seconds_seen": 60}
    assert by_name(one.engine_facts(ENGINE, None, 100.0)) == {}


def test_what_connections_did_is_remembered_until_the_next_life() -> None:
    one = Watching()
    one.note(ENGINE, 5.0)
    one.note(ENGINE, None)
    assert by_name(one.engine_facts(ENGINE, None, 9.0)) == {"open_files_drop_seen": 5}
    assert by_name(one.engine_facts(OTHER, None, 9.0)) == {}
    one.note(ENGINE, -1.0)
    assert by_name(one.engine_facts(ENGINE, None, 9.0)) == {"open_files_drop_seen": -1}
    one.forget(ENGINE)
    one.forget(OTHER)
    assert by_name(one.engine_facts(ENGINE, None, 9.0)) == {}


def test_how_much_prompts_grew_is_that_of_the_last_step() -> None:
    one = Watching()
    one.note_prompts(ENGINE, 900.0, 300.0)
    assert by_name(one.engine_facts(ENGINE, None, 9.0)) == {"prompt_growth_ratio": 3}
    one.note_prompts(ENGINE, 900.0, None)
    assert by_name(one.engine_facts(ENGINE, None, 9.0)) == {}
    one.note_prompts(ENGINE, 900.0, 300.0)
    one.forget(ENGINE)
    assert by_name(one.engine_facts(ENGINE, None, 9.0)) == {}


def test_a_rule_that_is_blind_for_two_engines_is_one_blind_rule() -> None:
    blind = [BlindRule(rule, engine, ("x",)) for rule in ("a", "b") for engine in (ENGINE, OTHER)]
    assert by_name(Watching.facts(blind)) == {"blind_rules": 2}
    assert by_name(Watching.facts([])) == {"blind_rules": 0}
