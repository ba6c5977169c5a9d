"""The verdict: each word with its proof, and never health without one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pagers import incident
from watchdog.diagnosis.verdict import Proof, ruling
from watchdog.facts.inflight import Idleness
from watchdog.model import Incident, Severity, Standing, State, Verdict

WORKS = Proof(30.0, moves=True, still_seconds=1.0, in_flight=4.0)
IDLE = Proof(30.0, moves=False, still_seconds=120.0, in_flight=0.0)
WITNESS = Idleness(True, "Idle: GET /load reports no request in flight.")
NO_WITNESS = Idleness(False, "Nothing moves.")
STUCK = replace(IDLE, in_flight=4.0, doubt="4 in flight and no step has ended for 2m")
PENDING = incident("ttft-high", State.PENDING, severity=Severity.WARNING)
LEAD = incident("ttft-high", State.FIRING, severity=Severity.WARNING)


def verdict(
    *proofs: Proof,
    incidents: Sequence[Incident] = (),
    lead: Incident | None = None,
    idleness: Idleness = NO_WITNESS,
) -> Verdict:
    return ruling(Standing(tuple(incidents), lead.key if lead else None), proofs, idleness).verdict


def test_health_is_a_step_that_ended_and_nothing_that_troubles() -> None:
    assert verdict(WORKS) is Verdict.HEALTHY
    assert verdict(WORKS, incidents=[PENDING]) is Verdict.UNSETTLED
    assert verdict(replace(WORKS, doubt="a queue of 3 stands")) is Verdict.UNSETTLED
    assert verdict(STUCK) is Verdict.UNSETTLED
    assert verdict(WORKS, STUCK) is Verdict.UNSETTLED


def test_what_is_pending_as_a_notice_or_a_symptom_unsettles_nobody() -> None:
    for milder in (replace(PENDING, severity=Severity.INFO), replace(PENDING, explained_by=("target-down",))):
        assert verdict(WORKS, incidents=[milder]) is Verdict.HEALTHY


def test_idleness_is_health_only_where_a_witness_saw_it() -> None:
    assert verdict(IDLE) is Verdict.IDLE
    assert verdict(IDLE, idleness=WITNESS) is Verdict.HEALTHY
    assert verdict(STUCK, idleness=WITNESS) is Verdict.UNSETTLED
    assert verdict(WORKS, IDLE) is Verdict.HEALTHY
    assert ruling(Standing(), [IDLE], WITNESS).why == "idle: GET /load reports no request in flight"


def test_what_the_api_server_took_is_in_flight_though_the_gauges_show_nothing() -> None:
    calm = {"window_seconds": 30.0, "running_last": 0.0, "waiting_last": 0.0, "steps_per_second": 0.0}
    assert verdict(Proof.of(calm.get)) is Verdict.IDLE
    assert verdict(Proof.of({**calm, "in_flight": 3.0}.get)) is Verdict.UNSETTLED


def test_preemptions_while_the_cache_is_full_are_no_health_before_a_cause_is_named() -> None:
    moving = {"window_seconds": 30.0, "running_last": 12.0, "waiting_last": 12.0, "steps_per_second": 40.0}
    thrash = {**moving, "preemptions": 15.0, "kv_usage_last_ratio": 0.96}
    assert (
        ruling(Standing(), [Proof.of(thrash.get)], NO_WITNESS).why
        == "15 preemptions, and the KV cache is 96% full"
    )
    assert verdict(Proof.of({**thrash, "preemptions": 1.0}.get)) is Verdict.HEALTHY
    assert verdict(Proof.of({**thrash, "kv_usage_last_ratio": 0.4}.get)) is Verdict.HEALTHY


def test_what_is_not_seen_is_unknown_or_has_just_begun() -> None:
    assert verdict() is Verdict.UNKNOWN
    assert verdict(replace(WORKS, moves=None)) is Verdict.UNKNOWN
    assert verdict(replace(IDLE, in_flight=None)) is Verdict.UNKNOWN
    assert verdict(replace(WORKS, seen_seconds=0.0)) is Verdict.STARTING


@pytest.mark.parametrize(
    ("lead", "expected"),
    [
        (LEAD, Verdict.DEGRADED),
        (replace(LEAD, severity=Severity.CRITICAL), Verdict.CRITICAL),
        (replace(LEAD, cleared_at=1.0), Verdict.RECOVERING),
        (replace(LEAD, severity=Severity.CRITICAL, cleared_at=1.0), Verdict.RECOVERING),
    ],
)
def test_a_lead_gives_its_word_until_it_has_cleared(lead: Incident, expected: Verdict) -> None:
    for proofs in ((), (WORKS,), (replace(WORKS, seen_seconds=0.0),)):
        assert verdict(*proofs, incidents=[lead], lead=lead) is expected


NUMBERS = st.none() | st.just(0.0) | st.floats(0, 1e6)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("steps_per_second", "generation_tokens_per_second", "stream_tokens_per_second"),
                *(
                    "running_last",
                    "waiting_last",
                    "running_recent_min",
                    "waiting_recent_min",
                    "ttft_p50_seconds",
                ),
            ]
        ),
        NUMBERS,
    )
)
def test_no_signals_give_health_without_a_step_or_a_witness(signals: dict[str, float | None]) -> None:
    proof = Proof.of({"window_seconds": 30.0, **signals}.get)
    found = ruling(Standing(), [proof], NO_WITNESS)
    moved = (signals.get("steps_per_second") or 0) > 0 or (
        signals.get("generation_tokens_per_second") or 0
    ) > 0
    assert (found.verdict is Verdict.HEALTHY) <= (moved and not signals.get("waiting_recent_min"))
    assert found.why or found.verdict is Verdict.HEALTHY
