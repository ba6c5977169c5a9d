"""What a clause of the evidence is a picture of, and where its threshold lies."""

import pytest

from tests.watching import shipped_rules
from watchdog.report.clause_line import ClauseLine, clause_line, reading_of
from watchdog.report.course import LINES


@pytest.mark.parametrize(
    ("text", "reading", "threshold"),
    [
        ("waiting_recent_min (457) > 0", "waiting_requests", 0.0),
        ("kv_usage_peak_ratio (0.98) > least_peak_ratio (0.75)", "kv_usage_ratio", 0.75),
        (
            "kv_usage_mean_ratio (0.9571) + request_pool_ratio (0.09091) > least_full_ratio (0.85)",
            "kv_usage_ratio",
            0.85 - 0.09091,
        ),
        (
            "ttft_p50_seconds (28.27) > rise (3) * ttft_p50_seconds_baseline (0.0275) and x (1) > 2",
            "ttft_p50_seconds",
            0.0825,
        ),
        (
            "arrivals_per_second (6.233) > arrivals_rise (2.5) * arrivals_per_second_baseline (2.228)",
            "arrivals_per_second",
            5.57,
        ),
        ("itl_stall_ratio (0.2) > least (0.1) or kv_usage_peak_ratio (0.5) < 0.9", "kv_usage_ratio", 0.9),
        ("not known(x) and min(waiting_last, 4) > 3", "waiting_requests", None),
    ],
)
def test_a_clause_is_about_a_reading(text: str, reading: str, threshold: float | None) -> None:
    found = clause_line(text)
    assert found is not None
    assert (found.name, found.is_reading) == (reading, True)
    assert found.threshold == (None if threshold is None else pytest.approx(threshold))


def test_a_clause_about_no_reading_is_about_what_it_compares() -> None:
    told = clause_line("itl_stall_ratio (0.2) > least_stall_ratio (0.08)")
    assert told == ClauseLine("itl_stall_ratio", 0.08, is_reading=False)
    assert clause_line("not known(itl_stall_ratio)") is None
    assert reading_of("waiting_slope_per_second") is None
    assert reading_of("waiting_share_of_time") is None


def test_most_causes_have_a_picture_of_a_reading() -> None:
    """Of the others the signals are looked up when somebody asks; a reading is there from the first page on."""
    shown = [
        any((found := clause_line(clause.text)) and found.name in LINES for clause in rule.when)
        for rule in shipped_rules().rules
        if rule.severity != "info" and rule.scope == "engine"
    ]
    assert sum(shown) > len(shown) / 2
