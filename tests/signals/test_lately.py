"""What came lately: the newest calm stretches, whatever the load was then."""

from array import array
from collections.abc import Sequence

import pytest

from watchdog.history.stretches import Stretches
from watchdog.signals.past import BASELINE, LATELY, LOWEST, MOST_LATELY, Past

RATE, PROMPT = "first_tokens_per_second", "prompt_tokens_per_first_token"


def past(rates: Sequence[float], prompts: Sequence[float]) -> Past:
    """An engine whose calm stretches, the oldest first, had these rates and prompts."""
    stretches = Stretches((RATE, PROMPT), RATE)
    stretches.begins = array("d", (60.0 * place for place in range(len(rates))))
    stretches.ends = array("d", (60.0 * place + 60 for place in range(len(rates))))
    stretches.columns = {RATE: array("f", rates), PROMPT: array("f", prompts)}
    return Past(stretches, None, 60.0 * len(rates), lambda _span, _names: {})


def test_lately_is_what_came_last_also_where_a_rule_names_what_is_alike() -> None:
    one = past([9, 9, 9, 1, 1], [100, 100, 100, 700, 900])
    compared = one.under({RATE: 2}, lambda _: 8.0)
    assert compared[BASELINE](PROMPT) == 100
    assert compared[LATELY](PROMPT) == 800
    assert compared[LOWEST](PROMPT) == 100


@pytest.mark.parametrize("known", range(4))
def test_lately_is_unknown_only_where_nothing_is_known(known: int) -> None:
    found = past([1.0] * known, [500.0] * known).under({}, lambda _: None)[LATELY](PROMPT)
    assert found == (500 if known else None)
    assert MOST_LATELY == 2
