"""Many servers on one screen and in a few lines: who needs somebody comes first, the others are a dot each."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from tests.a_service import NOW, AService, History, a_service, down, healthy, incident, snapshot
from tests.a_site import Site, a_site
from watchdog.model import Key, Severity, Snapshot, State, Transition, Verdict
from watchdog.notify.maintenance import Opening
from watchdog.report.brief import ordinal
from watchdog.report.course import Course
from watchdog.report.day import SLOT_SECONDS, SLOTS, Day

MODEL = "meta/llama-8b"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site[AService]]:
    """Two servers in need and an idle one among twenty."""
    calm = [replace(healthy(f"embed-{number}")) for number in range(17)]
    asleep = replace(healthy("asleep"), verdict=Verdict.IDLE, why="no step for 2m, nothing shows more")
    service = a_service(tmp_path, *calm, snapshot("chat"), down("batch"), asleep)
    with a_site(service) as made:
        yield made


def labelled(one: Snapshot, **labels: str) -> Snapshot:
    return replace(one, target=replace(one.target, labels=labels))


def rows(html: str) -> list[str]:
    return re.findall(r'<tr class="(\w+)">', html)


def test_the_page_of_a_fleet_has_a_row_for_each_that_is_not_healthy_and_a_dot_for_each_other(
    site: Site[AService],
) -> None:
    html = site.ask("/").text
    assert "<h1>2 of 20 servers need you</h1>" in " ".join(html.split())
    assert rows(html) == ["critical", "critical", "idle"]
    assert "The KV cache is full" in html
    grid = html.partition('<p class="grid">')[2].partition("</p>")[0]
    assert grid.count("<a ") == 17
    assert 'href="/?target=embed-3"' in grid
    assert "average: waiting 0, KV 4%, TTFT p95 80 ms" in html
    assert html.index("17 healthy</strong>") > html.index("</table>")


def test_a_fleet_is_filtered_by_state_and_by_model(site: Site[AService]) -> None:
    idle = site.ask("/?state=idle").text
    assert rows(idle) == ["idle"]
    assert "<h1>None of 1 servers needs you</h1>" in idle
    assert rows(site.ask(f"/?model={MODEL.replace('/', '%2F')}&state=critical").text) == ["critical"]
    none = site.ask("/?model=none").text
    assert rows(none) == []
    # What nobody looked at is not healthy.
    assert "<h1>No server matches</h1>" in none
    assert "<title>no server matches - vllm-watchdog</title>" in none
    told = site.ask("/diagnose?model=none&state=idle&format=text").text
    assert told == "UNKNOWN  no target matches idle, none\n"
    assert site.ask("/?state=sick").status == 422


def test_a_fleet_is_filtered_by_its_own_labels_on_the_page_and_in_the_text(tmp_path: Path) -> None:
    shown = (
        labelled(snapshot("chat"), team="search", zone="a"),
        labelled(down("batch"), team="jobs", zone="a"),
        labelled(healthy("embed"), team="search"),
    )
    with a_site(a_service(tmp_path, *shown)) as site:
        html = site.ask("/?label=team%3Dsearch").text
        assert "1 of 2 servers needs you" in " ".join(html.split())
        assert "shown: team=search" in html
        # The same as text.
        assert 'href="/diagnose?label=team%3Dsearch&amp;format=text"' in html
        # Another choice is made on top of this one.
        assert 'href="/?label=team%3Dsearch&amp;label=zone%3Da"' in html
        assert 'href="/?label=team%3Djobs"' in html
        assert rows(site.ask("/?label=team%3Dsearch&label=zone%3Da").text) == ["critical"]
        assert rows(site.ask("/?label=zone%3Da&state=critical").text) == ["critical", "critical"]
        body = site.ask("/diagnose?label=team%3Dsearch").json
        assert [(each["name"], each["labels"].get("team")) for each in body["targets"]] == [
            ("chat", "search"),
            ("embed", "search"),
        ]
        assert site.ask("/diagnose?label=team%3Djobs&format=text").text.startswith("CRITICAL  batch: ")
        assert site.ask("/diagnose?label=team%3Dnobody").json["verdict"] == "unknown"
        assert site.ask("/?label=team").status == 422
        assert 'href="/?label=team%3Djobs"' in site.ask("/?label=team%3Dsearch").text
        assert 'href="/?label=team%3Dsearch&amp;state=critical"' in html
        # One server alone has them too.
        assert 'href="/diagnose?target=chat&amp;format=text"' in site.ask("/?target=chat").text
        assert 'team <a href="/?label=team%3Dsearch">search</a>' in site.ask("/?target=chat").text


def test_maintenance_is_said_on_every_page_in_text_and_in_json(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot("chat"), healthy("embed"))
    service.held = {name: Opening("kernel", NOW + 3600) for name in ("chat", "embed")}
    said = "maintenance until 2026-09-21 15:13:20 UTC (kernel): no new notifications"
    with a_site(service) as site:
        held = [each["maintenance"] for each in site.ask("/diagnose").json["targets"]]
        assert held == [{"name": "kernel", "until": "2026-09-21T15:13:20.000Z"}] * 2
        for query in ("", "&verbose=true"):
            assert site.ask(f"/diagnose?format=text{query}").text.count(f"held       {said}") == 2
        fleet = site.ask("/").text
        assert f'title="{said}">(maintenance)' in fleet
        assert "maintenance, no new notifications: embed" in fleet
        for name in ("chat", "embed"):
            assert said in site.ask(f"/?target={name}").text
        service.held = {}
        assert site.ask("/diagnose").json["targets"][0]["maintenance"] is None
        assert "maintenance" not in site.ask("/").text + site.ask("/diagnose?format=text").text


def test_two_hundred_servers_are_a_page_of_less_than_150_kilobytes(tmp_path: Path) -> None:
    """At their worst: each with a day of another verdict each ten minutes, and a cause that comes again and again."""
    course, day = Course(), Day()
    for at in range(150):
        course.note(snapshot(at=5.0 * at, wall=NOW - 750 + 5.0 * at))
    for slot, verdict in zip(range(SLOTS), cycle(Verdict), strict=False):
        day.note(verdict, NOW - SLOT_SECONDS * (SLOTS - 1 - slot))
    for in_need in (6, 200):
        sick = [labelled(snapshot(f"chat-{number}"), pod=f"chat-{number}") for number in range(in_need)]
        calm = [labelled(healthy(f"embed-{number}"), team="search") for number in range(200 - in_need)]
        service = a_service(tmp_path, *sick, *calm)
        service.went = {each.target.name: course for each in sick}
        service.of_day = {each.target.name: day for each in (*sick, *calm)}
        ended = (
            incident(target=each.target.name, state=State.RESOLVED, resolved_at=NOW - 3600) for each in sick
        )
        service.history = History(tuple(Transition(each, State.FIRING, NOW - 3600) for each in ended))
        with a_site(service) as site:
            html = site.ask("/").body
            assert html.count(b"2nd time in 24 h") >= 6
            assert len(html) < 150_000


def test_causes_of_the_fleet_come_first_and_pending_ones_not_as_warnings(tmp_path: Path) -> None:
    key = Key("replica-imbalance", "*", MODEL, "")
    firing = incident(key=key, title="Replicas get uneven shares", severity=Severity.WARNING)
    soon = replace(
        firing, key=key._replace(rule="hit-skew"), title="Hits differ", state=State.PENDING, firing_since=None
    )
    service = a_service(tmp_path, healthy("a"), healthy("b"))
    service.fleet = (firing, soon)
    with a_site(service) as site:
        html = site.ask("/").text
        assert html.index("Replicas get uneven shares") < html.index("All 2 servers are healthy")
        assert "for 3m 25s, since" in html
        # The servers that are down must not be screens below: what to do is a line until it is opened.
        assert "<summary>What to do<span>Add a replica.</span></summary>" in html
        assert html.index("Hits differ") > html.index("All 2 servers are healthy")
        lines = site.ask("/diagnose?format=text").text.splitlines()
        assert f"WARNING  fleet {MODEL}: Replicas get uneven shares" in lines
        assert f"PENDING  fleet {MODEL}: Hits differ" in lines


def test_the_short_text_is_a_line_a_healthy_server_and_eight_for_a_cause(site: Site[AService]) -> None:
    service = site.service
    course = Course()
    for at in range(30):
        course.note(snapshot(at=5.0 * at, wall=NOW - 150 + 5.0 * at))
    service.went = {"chat": course}
    ended = [
        Transition(
            incident(state=State.RESOLVED, resolved_at=NOW - 3600 * hours), State.FIRING, NOW - 3600 * hours
        )
        for hours in (2, 4, 6, 30)
    ]
    service.history = History(tuple(ended))
    lines = site.ask("/diagnose?format=text").text.splitlines()
    assert lines[0].startswith("CRITICAL  kv-pool-exhausted on chat and 1 more; 20 targets")
    begin = lines.index("CRITICAL  chat: The KV cache is full (kv-pool-exhausted, meta/llama-8b engine 0)")
    assert lines[begin + 1 : begin + 8] == [
        "  cause      457 requests wait while the KV cache is 98% full.",
        "  since      2026-09-21 14:09:55 UTC (3m 25s); 4th time in 24 h",
        "  trend      steady: the queue is neither growing nor draining",
        "  felt       457 of 495 requests wait. A first token takes 1m 16s (p95). 83% of an average request",
        "             is spent in queue.",
        "  right now  Add a replica.",
        "  to last    --max-model-len 8192: Shorten the longest request the server takes.",
    ]
    assert lines[begin + 8] == "  more       /diagnose?target=chat&format=text&verbose=true"
    well = [line for line in lines if line.startswith("HEALTHY")]
    assert well[0] == "HEALTHY  embed-0: nothing is firing; waiting 0, KV 4%, TTFT p95 80 ms"
    assert len(well) == 17
    assert "4th time in 24 h" in site.ask("/?target=chat").text
    assert '<span class="wide soft">4th time in 24 h</span>' in site.ask("/").text
    assert max(map(len, lines)) <= 100


def test_what_ended_within_the_hour_is_on_the_page_and_in_the_text_of_a_fleet(tmp_path: Path) -> None:
    over = incident(target="a", state=State.RESOLVED, pending_since=NOW - 200, resolved_at=NOW - 50)
    service = a_service(tmp_path, replace(healthy("a"), incidents=(over,)), healthy("b"))
    with a_site(service) as site:
        assert "14:10:00 to 14:12:30 UTC (2m 30s)" in site.ask("/").text
        assert (
            "  ended      kv-pool-exhausted: 14:10:00 to 14:12:30 UTC (2m 30s)"
            in site.ask("/diagnose?format=text").text.splitlines()
        )


def test_what_no_cause_leads_is_told_whole_and_of_many_in_need_a_line(tmp_path: Path) -> None:
    asleep = replace(healthy("asleep"), verdict=Verdict.IDLE, why="no step for 2m")
    sick = [snapshot(f"chat-{number}") for number in range(8)]
    with a_site(a_service(tmp_path, asleep, *sick)) as site:
        lines = site.ask("/diagnose?format=text").text.splitlines()
    assert "IDLE  asleep: no step for 2m" in lines
    assert any(line.startswith("  prove it ") for line in lines)
    assert sum(line.startswith("  right now") for line in lines) == 5
    assert sum(line.startswith("CRITICAL  chat-") for line in lines) == 8


def test_ordinals() -> None:
    assert [ordinal(each) for each in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th")
    ]
