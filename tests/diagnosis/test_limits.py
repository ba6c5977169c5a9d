"""What binds throughput is what the rule says that holds."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.pagers import incident
from tests.pages import page, scrape
from tests.places import ROOT
from tests.watching import shipped_rules
from watchdog.diagnosis.limits import Limits
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.errors import RuleError
from watchdog.model import Incident, Key, Limit, Severity, Standing, State, Subject, Target
from watchdog.rule.rule_set import RuleOverride, RuleSet, load
from watchdog.signals.catalogue import signal_names

ENGINE, OTHER = Subject("t", "m", "0"), Subject("t", "m", "1")


def one(rule: str, state: State = State.FIRING, subject: Subject = ENGINE, **others: float) -> Incident:
    return replace(
        incident(rule, state, severity=Severity.WARNING),
        key=Key(rule, *subject),
        **others,  # type: ignore[arg-type]
    )


def binding(*incidents: Incident, lead: Incident | None = None, subject: Subject = ENGINE) -> Limit | None:
    found = Limits(shipped_rules()).binding(Standing(incidents, lead.key if lead else None))
    return found.get(subject) or found.get(Subject(subject.target))


def test_the_lead_says_what_binds_also_while_it_ends_or_cannot_be_judged() -> None:
    pool = one("kv-pool-exhausted")
    assert binding(pool, lead=pool) is Limit.KV_POOL
    assert binding(replace(pool, cleared_at=1.0), lead=pool) is Limit.KV_POOL
    assert binding(replace(pool, unknown=True), lead=pool) is Limit.KV_POOL


def test_beside_the_lead_only_what_holds_now_says_what_binds() -> None:
    lead = one("client-aborts")
    assert binding(lead, one("seqs-limited"), lead=lead) is Limit.SEQUENCES
    assert binding(lead, one("seqs-limited", cleared_at=1.0), lead=lead) is None
    assert binding(lead, one("seqs-limited", unknown=True), lead=lead) is None
    assert binding(lead, one("seqs-limited", State.PENDING), lead=lead) is Limit.SEQUENCES
    assert binding(lead, one("seqs-limited", State.RESOLVED), lead=lead) is None
    assert binding(lead, lead=lead) is None


def test_a_cause_says_it_before_its_symptoms_and_what_fires_before_what_is_pending() -> None:
    surge, seqs = one("traffic-surge"), one("seqs-limited")
    assert binding(surge, seqs) is Limit.SEQUENCES
    assert (
        binding(surge, one("deferred-backlog", State.PENDING)) is Limit.DEFERRED
    )  # which explains the surge
    assert binding(one("batch-too-large"), one("seqs-limited", State.PENDING)) is Limit.COMPUTE


def test_an_engine_hears_of_its_own_limit_and_of_that_of_its_server() -> None:
    pool, server = one("kv-pool-exhausted"), one("api-server-cpu-bound", subject=Subject("t"))
    assert binding(pool, lead=pool, subject=OTHER) is None
    assert binding(server, lead=server, subject=OTHER) is Limit.API_SERVER
    assert binding(server, pool, lead=server) is Limit.API_SERVER
    assert binding(pool, server, lead=pool, subject=OTHER) is Limit.API_SERVER


RULE = """
id: crowded
title: Crowded
severity: warning
for: {wait}
limit: {limit}
parameters:
  most: {{value: 5, unit: requests, why: "made"}}
when: ["waiting_last > most"]
cause: "{{waiting_last:.0f}} wait."
tests: []
"""


def rules(folder: Path, limit: str = "deferred", wait: str = "0s", most: float = 5) -> RuleSet:
    (folder / "crowded.yaml").write_text(RULE.format(limit=limit, wait=wait))
    overrides = {"crowded": RuleOverride(parameters={"most": most})}
    return load([folder], signal_names(), overrides=overrides, allow_untested=True)


def limit_of(made: RuleSet, waiting: float) -> str:
    text = page(num_requests_running=1.0, num_requests_waiting=waiting, generation_tokens_total=1.0)
    [readings] = TargetDiagnosis(Target("t", ""), made).observe(scrape(0.0, text)).readings
    return readings.limit


def test_a_rule_of_ones_own_names_the_limit_and_its_overrides_reach_it(tmp_path: Path) -> None:
    assert limit_of(rules(tmp_path), waiting=9) == "deferred"
    assert limit_of(rules(tmp_path, most=20), waiting=9) == "unknown"
    assert limit_of(rules(tmp_path, limit="api_server", wait="10m"), waiting=9) == "api_server"


def test_a_limit_that_is_none_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(RuleError) as refusal:
        rules(tmp_path, limit="kv_pol")
    told = str(refusal.value)
    assert (
        "`limit` is one of sequences, token_budget, kv_pool, deferred, compute, api_server, stalled" in told
    )
    assert "kv_pool" in told.rpartition("did you mean")[2]


def test_every_limit_is_named_by_a_shipped_rule() -> None:
    assert {rule.limit for rule in shipped_rules().rules if rule.limit} == set(Limit)


def test_every_limit_is_described_for_those_who_write_rules() -> None:
    told = (ROOT / "docs" / "writing-a-rule.md").read_text()
    assert [limit for limit in Limit if f"| `{limit}` |" not in told] == []
