"""A rule that fails inside is unknown and counted; the others speak all the same."""

from dataclasses import replace

import pytest

from tests.pages import failed, page, scrape
from tests.watching import shipped_rules, watch
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.model import Reason, Target, Truth
from watchdog.rule.rule_set import RuleSet


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


@pytest.mark.parametrize("reason", Reason)
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
