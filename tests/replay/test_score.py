"""The score of labelled recordings, on time lines made by hand."""

import pytest

from watchdog.model import Verdict
from watchdog.replay.replay import Moment
from watchdog.replay.score import Limits, Outcome, PhaseScore, score, totals
from watchdog.scrape.recording import Phase

RULES = {"kv-pool-exhausted", "preemption-thrash", "engine-stalled", "output-truncated"}


def moments(
    begin: float, end: float, lead: str | None, *also: str, info: tuple[str, ...] = ()
) -> list[Moment]:
    """One moment every 5 s: what leads, what fires beside it, and what of that is info only."""
    alarming = tuple(rule for rule in (lead, *also) if rule)
    verdict = Verdict.CRITICAL if alarming else Verdict.HEALTHY
    walls = range(int(begin), int(end), 5)
    return [Moment(float(wall), verdict, lead, (*alarming, *info), alarming) for wall in walls]


def only(scores: tuple[PhaseScore, ...]) -> PhaseScore:
    [one] = scores
    return one


def test_a_cause_that_leads_in_time_and_stays_is_named() -> None:
    timeline = moments(0, 20, None) + moments(20, 100, "kv-pool-exhausted")
    result = only(score("a", [Phase("kv-pool-exhausted", 0, 100)], timeline, RULES))
    assert (result.outcome, result.named_after_seconds, result.held_share) == (Outcome.NAMED, 20.0, 1.0)
    assert result.rules == ("-", "kv-pool-exhausted")


def test_a_cause_that_leads_too_late_is_missed_but_listed() -> None:
    timeline = moments(0, 50, None) + moments(50, 100, "kv-pool-exhausted")
    result = only(score("a", [Phase("kv-pool-exhausted", 0, 100)], timeline, RULES))
    assert (result.outcome, result.named_after_seconds, result.listed) == (Outcome.MISSED, 50.0, True)


def test_the_limit_itself_is_in_time() -> None:
    timeline = moments(0, 45, None) + moments(45, 100, "kv-pool-exhausted")
    result = only(score("a", [Phase("kv-pool-exhausted", 0, 100)], timeline, RULES))
    assert result.outcome is Outcome.NAMED


def test_a_lead_that_does_not_hold_is_missed() -> None:
    timeline = moments(0, 60, "kv-pool-exhausted") + moments(60, 120, "engine-stalled")
    result = only(score("a", [Phase("kv-pool-exhausted", 0, 120)], timeline, RULES))
    assert result.outcome is Outcome.MISSED
    assert result.held_share == pytest.approx(3 / 15)


def test_a_phase_too_short_to_settle_is_judged_from_the_naming_on() -> None:
    timeline = moments(0, 15, None) + moments(15, 40, "kv-pool-exhausted")
    result = only(score("a", [Phase("kv-pool-exhausted", 0, 40)], timeline, RULES))
    assert (result.outcome, result.held_share) == (Outcome.NAMED, 1.0)


def test_firing_below_another_lead_is_listed_only() -> None:
    timeline = moments(0, 100, "engine-stalled", "kv-pool-exhausted")
    result = only(score("a", [Phase("kv-pool-exhausted", 0, 100)], timeline, RULES))
    assert (result.outcome, result.named_after_seconds, result.listed) == (Outcome.MISSED, None, True)


def test_a_label_may_mean_several_rules() -> None:
    timeline = moments(0, 100, "engine-stalled")
    assert only(score("a", [Phase("engine-hang", 0, 100)], timeline, RULES)).outcome is Outcome.NAMED


def test_what_needs_only_a_mention_is_named_by_info() -> None:
    timeline = moments(0, 100, None, info=("output-truncated",))
    assert only(score("a", [Phase("length-truncation", 0, 100)], timeline, RULES)).outcome is Outcome.NAMED


def test_a_label_without_a_rule_is_told_and_not_counted() -> None:
    scores = score("a", [Phase("sun-flare", 0, 100)], moments(0, 100, "engine-stalled"), RULES)
    assert only(scores).outcome is Outcome.NO_SUCH_RULE
    assert totals(scores).causes == 0
    assert totals(scores).no_such_rule == 1
    assert totals(scores).perfect


def test_calm_is_quiet_although_info_fires() -> None:
    timeline = moments(0, 100, None, info=("output-truncated",))
    assert only(score("a", [Phase("healthy", 0, 100)], timeline, RULES)).outcome is Outcome.QUIET


def test_an_alarm_in_calm_is_false() -> None:
    timeline = moments(0, 95, None) + moments(95, 100, None, "engine-stalled")
    result = only(score("a", [Phase("idle", 0, 100)], timeline, RULES))
    assert (result.outcome, result.rules) == (Outcome.FALSE_ALARM, ("engine-stalled",))


def test_a_recording_that_says_nothing_is_not_quiet() -> None:
    assert only(score("a", [Phase("healthy", 0, 100)], [], RULES)).outcome is Outcome.FALSE_ALARM


@pytest.mark.parametrize(("forgiven", "outcome"), [(30.0, Outcome.QUIET), (10.0, Outcome.FALSE_ALARM)])
def test_an_incident_may_last_a_little_into_the_calm_after_it(forgiven: float, outcome: Outcome) -> None:
    phases = [Phase("kv-pool-exhausted", 0, 100), Phase("healthy", 100, 200)]
    timeline = moments(0, 130, "kv-pool-exhausted") + moments(130, 200, None)
    scores = score("a", phases, timeline, RULES, Limits(forgive_after_seconds=forgiven))
    assert scores[1].outcome is outcome


def test_recoveries_and_mild_recordings_are_not_judged() -> None:
    recovery = score("a", [Phase("recovery", 0, 100)], moments(0, 100, "engine-stalled"), RULES)
    mild = score("surge-mild", [Phase("kv-pool-exhausted", 0, 100)], moments(0, 100, None), RULES)
    assert [only(recovery).outcome, only(mild).outcome] == [Outcome.NOT_JUDGED] * 2


def test_totals_add_phases_up() -> None:
    phases = [Phase("healthy", 0, 50), Phase("kv-pool-exhausted", 50, 150), Phase("engine-hang", 200, 300)]
    timeline = moments(0, 60, None) + moments(60, 150, "kv-pool-exhausted") + moments(200, 300, None)
    result = totals(score("a", phases, timeline, RULES))
    assert (result.causes, result.named, result.listed, result.calm, result.quiet) == (2, 1, 1, 1, 1)
    assert (result.median_seconds, result.longest_seconds) == (10.0, 10.0)
    assert not result.perfect


def test_a_part_of_a_life_is_judged_by_its_own_name() -> None:
    mild = Phase("kv-pool-exhausted", 0, 100, part="surge-mild")
    assert only(score("life", [mild], moments(0, 100, None), RULES)).outcome is Outcome.NOT_JUDGED


def test_a_wrong_lead_on_the_way_is_counted() -> None:
    timeline = moments(0, 15, "engine-stalled") + moments(15, 100, "kv-pool-exhausted")
    scores = score("a", [Phase("kv-pool-exhausted", 0, 100)], timeline, RULES)
    assert only(scores).misled_by == ("engine-stalled",)
    assert totals(scores).misled == 1


def test_what_led_before_the_phase_does_not_count_against_it() -> None:
    timeline = moments(0, 5, "engine-stalled") + moments(5, 100, "kv-pool-exhausted")
    assert only(score("a", [Phase("kv-pool-exhausted", 0, 100)], timeline, RULES)).misled_by == ()
