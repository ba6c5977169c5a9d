"""Pictures from numbers: valid SVG whatever the numbers, inside their frame, and told in words."""

from dataclasses import replace
from functools import partial
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from tests.a_service import NOW, incident, readings, snapshot
from watchdog.model import Target, Verdict
from watchdog.report.bodies import target_body
from watchdog.report.course import Course, Line
from watchdog.report.day import Day
from watchdog.text import quantity_text
from watchdog.web.chart import HEIGHT, WIDTH, line_chart, sparkline, stacked, strip
from watchdog.web.pictures import pictures

SHOWN = partial(quantity_text, "waiting_requests")
VALUES = st.lists(st.none() | st.floats(0, 1e9), min_size=1, max_size=50).filter(
    lambda values: any(value is not None for value in values)
)


def line(values: list[float | None]) -> Line:
    return Line("x", [NOW + 5.0 * at for at in range(len(values))], values)


def points(svg: str) -> list[tuple[float, float]]:
    root = ET.fromstring(svg)
    given = [each.get("points") for each in root.iter() if each.get("points")]
    return [tuple(map(float, pair.split(","))) for text in given for pair in str(text).split()]  # type: ignore[misc]


@given(VALUES, st.none() | st.floats(0, 1e9), st.none() | st.floats(NOW - 1000, NOW + 1000))
def test_a_line_stays_in_its_frame(
    values: list[float | None], threshold: float | None, onset: float | None
) -> None:
    svg = line_chart(line(values), SHOWN, threshold, onset)
    for x, y in points(svg):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    label = ET.fromstring(svg).get("aria-label")
    assert label is not None
    assert label.startswith("now ")
    assert points(sparkline(line(values)))


@given(st.lists(st.tuples(*[st.none() | st.floats(0, 1e6)] * 3), min_size=1, max_size=30))
def test_parts_upon_each_other_stay_in_the_frame(rows: list[tuple[float | None, ...]]) -> None:
    lines = {name: line([row[at] for row in rows]) for at, name in enumerate(("queue", "prefill", "decode"))}
    svg = stacked(lines, SHOWN)
    for x, y in points(svg) if svg else []:
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT


def test_a_picture_says_what_it_shows() -> None:
    svg = line_chart(line([0.0, 3.0, None, 12.0, 9.0]), SHOWN, 5.0, NOW + 7)
    root = ET.fromstring(svg)
    assert root.get("aria-label") == ("now 9, highest 12, lowest 0, over 20 s, at the onset 3, threshold 5")
    classes = [each.get("class") for each in root]
    assert classes == ["since", "onset", "area", "area", "line", "line", "threshold"]
    assert ET.fromstring(sparkline(line([1.0, 2.0]))).get("aria-hidden") == "true"


def test_the_pictures_of_a_server_are_those_of_its_lead() -> None:
    course = Course()
    for at in range(40):
        values = {**readings().values, "waiting_requests": 12.0 * at, "ttft_p95_seconds": 0.1 + at}
        one = replace(readings(), values=values)
        course.note(snapshot(readings=(one,), at=5.0 * at, wall=NOW - 200 + 5.0 * at))
    lead = incident(pending_since=NOW - 100)
    body = target_body(Target("chat", ""), snapshot(incidents=(lead,)), NOW)
    seen = pictures(body, course)
    assert [chart.label for chart in seen.charts] == ["Waiting", "KV usage", "TTFT p95", "Running"]
    assert "threshold 75%" in seen.charts[1].picture
    assert set(seen.clauses) == {row.text for row in lead.evidence}
    assert seen.trend is not None
    assert seen.trend.text == "getting worse: queue +2.4/s"
    assert seen.before is not None
    assert 7 < seen.before < 9
    assert "ttft_p95_seconds" in seen.sparks["meta/llama-8b", "0"]
    assert seen.budgets["meta/llama-8b", "0"].startswith("<svg")
    cleared = replace(lead, cleared_at=NOW - 5)
    body = target_body(Target("chat", ""), snapshot(incidents=(cleared,)), NOW)
    assert pictures(body, course).trend is None
    assert pictures(body, None).charts == ()
    assert pictures(body, Course()).charts == ()


def test_a_strip_is_coloured_by_verdict_and_says_it_in_words() -> None:
    day = Day()
    for slot, verdict in enumerate((Verdict.HEALTHY, Verdict.HEALTHY, Verdict.CRITICAL)):
        day.note(verdict, NOW - 1200 + 600 * slot)
    root = ET.fromstring(strip(day.verdicts(NOW)))
    assert [(each.get("class"), each.get("d")) for each in root] == [
        ("healthy", "M141 0h2v1h-2"),
        ("critical", "M143 0h1v1h-1"),
    ]
    assert root.get("aria-label") == "last 24 hours: critical 10m, healthy 20m, not known 23h 30m"
