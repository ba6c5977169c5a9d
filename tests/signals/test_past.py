"""What now is compared with: calm stretches, and until there is one the averages since the server started."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages import history_of, page
from watchdog.history.span import Span
from watchdog.history.stretches import Likeness, Stretches
from watchdog.model import Subject
from watchdog.signals.past import BASELINE, LOWEST, SINCE_START, Past

PROMPT, RATE, LATENCY = "prompt_tokens_p50", "first_tokens_per_second", "ttft_p50_seconds"
SINCE = {PROMPT: 500.0, RATE: 2.0, LATENCY: 0.2, SINCE_START: 80.0}
LIKE = {PROMPT: 1.5, RATE: 3.0}
NOW: Mapping[str, float | None] = {PROMPT: 600.0, RATE: 1.0}


def past(since: Mapping[str, float | None], calm_seconds: float = 0.0) -> Past:
    """The past of an engine that was watched for so long in calm, at a latency of 0.1 s."""

    def measure(_span: Span, _names: Sequence[str]) -> Mapping[str, float | None]:
        return {PROMPT: 500.0, RATE: 2.0, LATENCY: 0.1}

    stretches = Stretches((PROMPT, RATE, LATENCY), RATE, since_start=since)
    pages = [(float(at), page(num_requests_running=1.0)) for at in range(0, int(calm_seconds) + 1, 5)]
    for end, (at, _) in enumerate(pages, start=1):
        stretches.note(history_of(pages[:end]), Subject("t", "m", "0"), at, hurts=False, measure=measure)
    return Past(stretches, None, calm_seconds, measure)


def before(
    one: Past, name: str = LATENCY, likeness: Likeness = LIKE, now: Mapping[str, float | None] = NOW
) -> float | None:
    return one.under(likeness, now.get, or_since_start=True)[BASELINE](name)


def test_averages_since_the_start_stand_in_until_a_calm_stretch_was_seen() -> None:
    assert before(past(SINCE)) == 0.2
    assert before(past(SINCE), SINCE_START) == 80
    assert before(past(SINCE, calm_seconds=60)) == pytest.approx(0.1)
    assert before(past(SINCE, calm_seconds=60), SINCE_START) is None


def test_they_stand_in_only_for_rules_that_ask_for_them() -> None:
    plain = past(SINCE).under(LIKE, NOW.get)
    assert plain[BASELINE](LATENCY) is plain[BASELINE](SINCE_START) is plain[LOWEST](LATENCY) is None
    assert past(SINCE).under({}, NOW.get, or_since_start=True)[LOWEST](LATENCY) == 0.2


@pytest.mark.parametrize(
    "now",
    [
        {PROMPT: 2000.0, RATE: 1.0},
        {PROMPT: 600.0, RATE: 20.0},
        {PROMPT: 600.0, RATE: None},
        {PROMPT: None, RATE: 1.0},
    ],
)
def test_a_load_that_is_another_or_unknown_is_not_compared(now: Mapping[str, float | None]) -> None:
    assert before(past(SINCE), now=now) is None


def test_a_life_whose_rate_nobody_knows_is_not_like_any_other() -> None:
    assert before(past({**SINCE, RATE: None})) is None
    assert before(past({**SINCE, RATE: None}), likeness={PROMPT: 1.5}) == 0.2


@given(st.floats(0.01, 1e6), st.floats(0.01, 1e6), st.floats(1.01, 100))
def test_without_averages_nothing_is_compared_whatever_the_load(
    prompt: float, rate: float, factor: float
) -> None:
    now = {PROMPT: prompt, RATE: rate}
    assert before(past({}), likeness={PROMPT: factor, RATE: factor}, now=now) is None
    assert before(past({}), likeness={}, now=now) is None
