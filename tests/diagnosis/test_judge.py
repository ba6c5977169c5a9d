"""A rule that fails inside is unknown and counted; the others speak all the same."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pages import failed, page, scrape
from tests.watching import shipped_rules, watch
from watchdog.diagnosis.judge import Case, Judge, judge
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.facts.launch import ServerContext
from watchdog.model import Finding, Reason, Scope, Subject, Target, Truth
from watchdog.rule.rule_set import RuleSet
from watchdog.signals.catalogue import Signals, signal_names
from watchdog.signals.functions import View


def test_f65_a_rule_that_fails_inside_is_unknown_and_the_others_speak() -> None:
    down = shipped_rules().by_id("target-down")
    clause = down.when[0]

    def broken(_lookup: object) -> Truth:
        raise RuntimeError("a bug of ours")

    sick = replace(down, id="sick", when=(replace(clause, truth=broken),), explains=())
    rules = RuleSet([sick, *shipped_rules().rules], "with a sick one")
    diagnosis = TargetDiagnosis(Target("t", ""), rules)
    for at in range(0, 61, 5):
        snapshot = diagnosis.observe(
            scrape(float(at), page(num_requests_running=0.0, num_requests_waiting=0.0))
        )
    assert snapshot.rule_errors == {"sick": 13}
    assert not snapshot.incidents or all(one.key.rule != "sick" for one in snapshot.incidents)
    assert snapshot.readings[0].values["running_requests"] == 0


@pytest.mark.parametrize("reason", sorted(set(Reason) - {Reason.NOT_SEEN}))
@pytest.mark.parametrize("status", [0, 401, 503])
def test_whatever_a_scrape_failed_with_is_told_and_no_text_is_left_unfilled(
    reason: Reason, status: int
) -> None:
    pages = [scrape(0.0, page(num_requests_running=0.0, prompt_tokens_total=5.0))]
    last = watch([*pages, *(failed(5.0 * number, reason, status) for number in range(1, 12))])[-1]
    assert last.incidents
    for incident in last.incidents:
        told = [incident.cause, *incident.unhelpful]
        told += [text for one in incident.remedies for text in (one.action, one.why, one.price)]
        assert not any("{" in text for text in told)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**32), min_size=2, max_size=4))
def test_a_judge_that_remembers_which_clause_said_no_says_what_one_without_memory_says(
    seeds: list[int],
) -> None:
    rules = shipped_rules()
    names = sorted({name for rule in rules.rules for clause in rule.when for name in clause.names})
    remembers, subject = Judge(rules), Subject("t", "m", "0")
    for seed in seeds:
        chance = Random(seed)
        values = {name: chance.choice([None, 0.0, 1.0, 0.5, 20.0, 5000.0]) for name in names}
        for scope in Scope:
            # Signals that are known already are not worked out.
            signals = Signals(View())
            signals.update(values)
            case = Case(subject, signals, ServerContext(), {})
            assert remembers.findings(scope, case) == Judge(rules).findings(scope, case)


def test_a_rule_that_says_no_says_whether_what_it_left_lasts() -> None:
    surge = replace(shipped_rules().by_id("traffic-surge"), or_since_start=False)
    assert surge.lasts_while
    left = {"arrivals_per_second": 0.1, "arrivals_per_second_baseline": 0.2, "finished_per_second": 10.0}

    def told(waiting: float) -> Finding:
        signals = Signals(View())
        signals.update(dict.fromkeys(signal_names()) | left)
        signals.update(
            waiting_recent_min=waiting,
            waiting_last=waiting,
            kv_usage_peak_ratio=0.3,
        )
        [found] = judge([surge], Case(Subject("t", "m", "0"), signals, ServerContext(), {}))
        return found

    stands, drained = told(2000), told(20)
    assert (stands.truth, stands.lasts) == (Truth.NO, True)
    assert "2,000 wait" in stands.cause
    assert [each.values["waiting_recent_min"] for each in stands.evidence[:1]] == [2000]
    assert stands.remedies
    assert (drained.truth, drained.lasts, drained.cause) == (Truth.NO, False, "")


def test_a_rule_that_says_yes_says_whether_only_the_window_remembers_it() -> None:
    """Clients leave for a while: ten seconds after the last of them the window still counts those that left."""

    def aborts(leave_until: int, until: int) -> Finding:
        started = finished = 0.0
        pages = []
        for at in range(0, until + 1, 5):
            pages.append(
                scrape(
                    float(at),
                    page(
                        num_requests_running=4.0,
                        num_requests_waiting=0.0,
                        num_preemptions_total=0.0,
                        time_to_first_token_seconds_count=started,
                        request_success_total=finished,
                    ),
                )
            )
            started += 15
            finished += 5 if at < leave_until else 15
        found: list[Finding] = []
        diagnosis = TargetDiagnosis(
            Target("t", ""),
            shipped_rules(),
            listener=lambda scope, case, _: found.extend(
                judge([shipped_rules().by_id("client-aborts")], case) if scope is Scope.ENGINE else ()
            ),
        )
        for one in pages:
            diagnosis.observe(one)
        return found[-1]

    told = {until: aborts(60, until) for until in (60, 65, 70, 75, 100)}
    assert [(one.truth, one.fades) for one in told.values()] == [
        (Truth.YES, False),
        (Truth.YES, False),
        (Truth.YES, True),
        (Truth.YES, True),
        (Truth.NO, False),
    ]
