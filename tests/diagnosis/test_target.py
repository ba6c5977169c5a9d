"""One target's step as a whole: verdicts, what is carried from scrape to scrape, and what it costs at worst."""

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pages import LABELS, failed, line, page, scrape
from tests.watching import diagnosis, firing, lead, shipped_rules, watch
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.diagnosis.verdict import LEAST_SECONDS_TO_JUDGE
from watchdog.history.layout import MOST_ENGINES, MOST_NAME_CHARACTERS
from watchdog.model import (
    Failure,
    Key,
    Reason,
    Scrape,
    ServerInfo,
    Snapshot,
    State,
    Subject,
    Target,
    Truth,
    Verdict,
)
from watchdog.rule.rule_set import RuleSet, load
from watchdog.signals.catalogue import signal_names

RULE = """
id: {id}
title: Made
severity: {severity}
scope: {scope}
for: {wait}
keep_firing_for: 0s
parameters: {{}}
when: ["{when}"]
explains: []
cause: "{cause}"
remedies:
  - {{action: "Look.", why: a, price: b}}
false_positives: [none]
references: [none]
tests: []
"""


def rules(
    folder: Path,
    when: str = "waiting_last > 0",
    scope: str = "engine",
    severity: str = "warning",
    wait: str = "0s",
    cause: str = "because",
) -> RuleSet:
    """One made rule, `made`."""
    text = RULE.format(id="made", when=when, scope=scope, severity=severity, wait=wait, cause=cause)
    (folder / "made.yaml").write_text(text)
    return load([folder], signal_names(), allow_untested=True)


def of(made: RuleSet) -> TargetDiagnosis:
    return TargetDiagnosis(Target("server", "http://server/metrics"), made)


def text(at: float, waiting: float = 0.0, labels: str = LABELS, running: float = 1.0) -> str:
    return page(
        labels,
        num_requests_running=running,
        num_requests_waiting=waiting,
        kv_cache_usage_perc=0.1,
        generation_tokens_total=at,
        prompt_tokens_total=at,
    )


def run(one: TargetDiagnosis, scrapes: Iterable[Scrape]) -> Snapshot:
    for each in scrapes:
        snapshot = one.observe(each)
    return snapshot


def test_healthy_is_said_only_after_enough_was_seen() -> None:
    verdicts = [one.verdict for one in watch(scrape(float(at), text(at)) for at in range(0, 26, 5))]
    starting, healthy = Verdict.STARTING, Verdict.HEALTHY
    assert verdicts == [starting, starting, starting, healthy, healthy, healthy]
    assert LEAST_SECONDS_TO_JUDGE == 15


def test_a_restart_begins_with_starting_again(tmp_path: Path) -> None:
    one = of(rules(tmp_path))
    assert run(one, (scrape(float(at), text(at + 100)) for at in range(0, 31, 5))).verdict is Verdict.HEALTHY
    assert one.observe(scrape(35.0, text(1))).verdict is Verdict.STARTING


@pytest.mark.parametrize(
    ("severity", "verdict", "leads"),
    [
        ("critical", Verdict.CRITICAL, "made"),
        ("warning", Verdict.DEGRADED, "made"),
        ("info", Verdict.STARTING, None),
    ],
)
def test_the_verdict_is_as_bad_as_what_leads(
    tmp_path: Path, severity: str, verdict: Verdict, leads: str | None
) -> None:
    snapshot = of(rules(tmp_path, severity=severity)).observe(scrape(0.0, text(0, waiting=1)))
    assert snapshot.verdict is verdict
    assert lead(snapshot) == leads
    assert [one.key.rule for one in snapshot.firing] == ["made"]


def test_a_target_that_cannot_be_read_is_unknown_and_never_healthy(tmp_path: Path) -> None:
    one = of(rules(tmp_path))
    run(one, (scrape(float(at), text(at)) for at in range(0, 31, 5)))
    snapshot = one.observe(failed(35.0, Reason.TIMEOUT))
    assert (snapshot.verdict, snapshot.up, snapshot.readings) == (Verdict.UNKNOWN, False, ())
    assert snapshot.scrape_samples == 0
    assert snapshot.failure is not None
    assert one.observe(scrape(40.0, "process_open_fds 3\n")).verdict is Verdict.UNKNOWN


def test_what_fires_while_the_target_is_gone_stays_and_is_marked_unknown(tmp_path: Path) -> None:
    one = of(rules(tmp_path))
    one.observe(scrape(0.0, text(0, waiting=1)))
    for at in range(5, 2000, 5):
        snapshot = one.observe(failed(float(at)))
    [incident] = snapshot.incidents
    assert incident.state is State.FIRING
    assert incident.unknown
    assert snapshot.verdict is Verdict.DEGRADED


def test_a_page_that_cannot_be_parsed_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    one = of(rules(tmp_path))
    for at, body in ((0.0, "<html>"), (5.0, ""), (10.0, "\0")):
        snapshot = one.observe(scrape(at, body))
        assert not snapshot.up
    assert snapshot.failures == {Reason.PARSE: 1, Reason.EMPTY: 1, Reason.UTF8: 1}
    assert snapshot.last_success_wall is None
    assert snapshot.scrapes == 3
    last = one.observe(scrape(15.0, text(15), wall=777.0))
    assert last.failures == snapshot.failures
    assert (last.last_success_wall, last.failure, last.scrapes) == (777.0, None, 4)


def test_the_limits_of_a_page_are_the_settings(tmp_path: Path) -> None:
    made = rules(tmp_path)
    few = TargetDiagnosis(Target("server", "http://server"), made, max_series=3)
    assert few.observe(scrape(0.0, text(0))).failures == {Reason.TOO_LARGE: 1}
    short = TargetDiagnosis(Target("server", "http://server"), made, max_line_bytes=20)
    assert short.observe(scrape(0.0, text(0))).failures == {Reason.TOO_LARGE: 1}


def test_facts_are_kept_until_newer_ones_are_told(tmp_path: Path) -> None:
    one = of(rules(tmp_path))
    first = ServerInfo("0.23.0", 4096, ("a",))
    assert one.observe(scrape(0.0, text(0), server_info=first)).vllm.version == "0.23.0"
    assert one.observe(scrape(5.0, text(5))).vllm.version == "0.23.0"
    assert one.observe(failed(10.0)).vllm.version == "0.23.0"
    snapshot = one.observe(scrape(15.0, text(15), server_info=ServerInfo(version="0.24.0")))
    assert snapshot.vllm.version == "0.24.0"
    assert snapshot.vllm.models == ("m",)
    bare = of(rules(tmp_path))
    bare.observe(scrape(0.0, "process_open_fds 3\n", server_info=first))
    assert bare.observe(scrape(5.0, "process_open_fds 3\n")).vllm.models == ("a",)


def test_a_fall_between_two_good_pages_is_a_jump_and_after_a_failure_it_is_none(tmp_path: Path) -> None:
    made = rules(tmp_path, when="counter_jumps > 0", scope="target")
    pages = [scrape(0.0, text(100)), scrape(5.0, text(1))]
    assert firing(run(of(made), pages)) == {"made"}
    pages.insert(1, failed(2.0))
    assert firing(run(of(made), pages)) == set()
    # One good page after the failure, and the next fall is a jump again.
    pages[2:2] = [scrape(3.0, text(101))]
    assert firing(run(of(made), pages)) == {"made"}


def test_a_cause_may_quote_the_failure_the_last_words_the_blind_rules_and_the_version(tmp_path: Path) -> None:
    cause = "{failure} | {last_words} | {version} | {blind}"
    made = rules(tmp_path, when="vllm_seen >= 0", scope="target", cause=cause)
    one = of(made)
    first = one.observe(scrape(0.0, text(100), server_info=ServerInfo(version="0.24.0")))
    assert first.incidents[0].cause == "none | nothing | 0.24.0 | none; 0 series are missing"
    down = one.observe(replace(failed(5.0), failure=Failure(Reason.TIMEOUT, "no page within 4 s")))
    assert down.incidents[0].cause.startswith("timeout: no page within 4 s | nothing | 0.24.0")
    again = one.observe(scrape(10.0, text(1)))
    # What led before the restart is what is remembered of the process.
    assert again.incidents[0].cause.startswith("none | made | 0.24.0")
    assert one.observe(scrape(15.0, text(0))).incidents[0].cause.startswith("none | made (2 times) |")


def test_what_fired_before_a_restart_is_not_that_the_server_was_away(tmp_path: Path) -> None:
    away = RULE.format(
        id="away", when="failed_scrapes > 0", scope="target", severity="critical", wait="0s", cause="away"
    )
    (tmp_path / "away.yaml").write_text(away)
    one = of(rules(tmp_path, when="vllm_seen >= 0", scope="target", cause="before: {last_words}"))
    one.observe(scrape(0.0, text(100)))
    down = one.observe(failed(5.0))
    assert down.lead is not None
    assert down.lead.rule == "away"
    back = one.observe(scrape(10.0, text(1)))
    assert [each.cause for each in back.incidents if each.key.rule == "made"] == ["before: made"]


def test_blind_rules_are_named_with_what_they_miss(tmp_path: Path) -> None:
    made = rules(tmp_path, when="itl_p50_seconds > 1")
    snapshot = of(made).observe(scrape(0.0, text(0)))
    [blind] = snapshot.blind
    assert (blind.rule, blind.subject) == ("made", Subject("server", "m", "0"))
    assert blind.missing == ("vllm:inter_token_latency_seconds_bucket",)
    has_it = text(0) + line("time_per_output_token_seconds_bucket", 0.0, LABELS + ',le="+Inf"')
    assert of(made).observe(scrape(0.0, has_it)).blind == ()  # an older name will do
    assert of(made).observe(failed(0.0)).blind == ()


def test_the_count_of_blind_rules_is_a_signal_of_the_target(tmp_path: Path) -> None:
    (tmp_path / "blind.yaml").write_text(
        RULE.format(
            id="blind", when="itl_p50_seconds > 1", scope="engine", severity="info", wait="0s", cause="x"
        )
    )
    made = rules(tmp_path, when="blind_rules == 1", scope="target", cause="{blind}")
    both = text(0) + text(0, labels='model_name="m",engine="1"')
    snapshot = of(made).observe(scrape(0.0, both))
    assert [incident.cause for incident in snapshot.firing] == ["blind; 1 series is missing"]


def test_each_engine_is_judged_by_itself(tmp_path: Path) -> None:
    both = text(0) + text(0, waiting=3, labels='model_name="m",engine="1"')
    snapshot = of(rules(tmp_path)).observe(scrape(0.0, both))
    assert [incident.key for incident in snapshot.firing] == [("made", "server", "m", "1")]
    assert [one.subject.engine for one in snapshot.readings] == ["0", "1"]


def test_a_rule_of_the_whole_target_reads_the_sum_of_its_engines(tmp_path: Path) -> None:
    made = rules(tmp_path, when="waiting_last == 5", scope="target")
    both = text(0, waiting=2) + text(0, waiting=3, labels='model_name="m",engine="1"')
    snapshot = of(made).observe(scrape(0.0, both))
    assert [incident.key for incident in snapshot.firing] == [("made", "server", "", "")]


def test_other_rules_count_from_the_next_scrape_and_end_what_theirs_are_not(tmp_path: Path) -> None:
    one = of(rules(tmp_path))
    one.observe(scrape(0.0, text(0, waiting=1)))
    (tmp_path / "made.yaml").rename(tmp_path / "other.yaml")
    (tmp_path / "other.yaml").write_text(
        (tmp_path / "other.yaml").read_text().replace("id: made", "id: other")
    )
    one.replace_rules(load([tmp_path], signal_names(), allow_untested=True), wall=3.0)
    snapshot = one.observe(scrape(5.0, text(5, waiting=1)))
    assert firing(snapshot) == {"other"}
    ends = [(each.incident.key.rule, each.incident.state) for each in snapshot.transitions]
    assert ("made", State.RESOLVED) in ends


def test_incidents_of_an_earlier_life_go_on(tmp_path: Path) -> None:
    made = rules(tmp_path, wait="10s")
    first = of(made)
    for at in (0.0, 5.0):
        snapshot = first.observe(scrape(at, text(at, waiting=1)))
    [pending] = snapshot.incidents
    assert (pending.key, pending.held_seconds) == (Key("made", "server", "m", "0"), 5.0)
    second = of(made)
    second.restore(snapshot.incidents, 1000.0)
    assert second.observe(scrape(1000.0, text(0, waiting=1))).incidents[0].state is State.PENDING
    fired = second.observe(scrape(1005.0, text(1, waiting=1))).incidents[0]
    assert (fired.state, fired.pending_since) == (State.FIRING, 0.0)


def test_a_restart_is_not_compared_with_the_process_before(tmp_path: Path) -> None:
    made = rules(tmp_path, when="known(running_mean_baseline)")
    one = of(made)
    assert firing(run(one, (scrape(float(at), text(at + 500)) for at in range(0, 61, 5)))) == {"made"}
    assert firing(run(one, (scrape(float(at), text(at - 60)) for at in range(65, 101, 5)))) == set()


def test_what_was_before_stays_what_is_compared_with_while_something_is_wrong(tmp_path: Path) -> None:
    made = rules(tmp_path, when="running_mean > 2 * running_mean_baseline")
    one = of(made)
    run(one, (scrape(float(at), text(at)) for at in range(0, 101, 5)))
    # A batch that is larger for much longer than pages are remembered is still held against the time before it.
    snapshot = run(one, (scrape(float(at), text(at, running=9.0)) for at in range(105, 1500, 5)))
    assert firing(snapshot) == {"made"}


@pytest.mark.slow
def test_what_is_kept_of_engines_that_went_goes_with_them(tmp_path: Path) -> None:
    one = of(rules(tmp_path))
    for number in range(300):
        one.observe(scrape(5.0 * number, text(number, labels=f'model_name="m{number}",engine="0"')))
    assert len(one._engines._stretches) < 170
    assert len(one._history._epochs) < 170


@pytest.mark.slow
def test_a_page_of_too_many_engines_says_so_and_is_judged_as_far_as_it_goes() -> None:
    many = "".join(text(0, labels=f'model_name="m{number}",engine="0"') for number in range(MOST_ENGINES + 2))
    snapshot = diagnosis().observe(scrape(0.0, many))
    assert len(snapshot.readings) == MOST_ENGINES
    [note] = snapshot.notes
    assert note.startswith(f"{MOST_ENGINES + 2} models and engines are on the page, 2 of them are not judged")
    assert diagnosis().observe(scrape(0.0, text(0))).notes == ()


def test_notes_are_of_the_last_page_only() -> None:
    one = diagnosis()
    repeated = text(0) + line("num_requests_running", 1.0)
    assert one.observe(scrape(0.0, repeated)).notes
    assert not one.observe(scrape(5.0, text(5))).notes
    assert one.observe(scrape(10.0, repeated)).notes
    assert not one.observe(failed(15.0)).notes


@pytest.mark.slow
def test_thousands_of_engines_that_change_with_every_page_cost_a_bounded_step() -> None:
    shipped_rules()
    one = diagnosis()
    took = []
    for number in range(3):
        engines = range(number * 1000, number * 1000 + 1000)
        many = "".join(text(5.0 * number, 9.0, f'model_name="m{each}",engine="0"') for each in engines)
        began = time.process_time()
        one.observe(scrape(5.0 * number, many))
        took.append(time.process_time() - began)
    # Each engine costs a judgement of every rule; beyond the first of them nothing does.
    assert min(took) < 3.0


def test_a_rule_that_fails_inside_is_unknown_and_counted_and_costs_no_other(tmp_path: Path) -> None:
    good = rules(tmp_path).rules[0]

    def broken(_: object) -> Truth:
        raise RecursionError("too deep")

    bad = replace(good, id="bad", when=(replace(good.when[0], truth=broken),))
    one = of(RuleSet([bad, good], "digest"))
    for at in (0.0, 5.0):
        snapshot = one.observe(scrape(at, text(at, waiting=1)))
    assert firing(snapshot) == {"made"}
    assert snapshot.rule_errors == {"bad": 2}
    assert snapshot.blind == ()


def test_a_rule_that_begins_to_fail_freezes_its_incident(tmp_path: Path) -> None:
    good = rules(tmp_path).rules[0]
    one = of(RuleSet([good], "digest"))
    one.observe(scrape(0.0, text(0, waiting=1)))

    def broken(_: object) -> Truth:
        raise ZeroDivisionError

    one.replace_rules(RuleSet([replace(good, when=(replace(good.when[0], truth=broken),))], "other"))
    for at in range(5, 1000, 5):
        snapshot = one.observe(scrape(float(at), text(at)))
    [incident] = snapshot.incidents
    assert (incident.state, incident.unknown) == (State.FIRING, True)


def test_a_name_too_long_for_a_model_is_judged_by_nobody_and_told() -> None:
    fits, too_long = "a" * (MOST_NAME_CHARACTERS - 1), "b" * MOST_NAME_CHARACTERS
    both = "".join(text(0, labels=f'model_name="{name}",engine="0"') for name in (fits, too_long))
    snapshot = diagnosis().observe(scrape(0.0, both))
    assert [readings.subject.model_name for readings in snapshot.readings] == [fits]
    assert "1 of them are not judged" in snapshot.notes[0]
    assert too_long not in str(snapshot)
