"""Pages for people where programs get JSON: by Accept or `?format=`, with the numbers of now."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.a_service import NOW, AService, History, a_service, down, healthy, incident, snapshot
from tests.a_site import Site, a_site, web
from tests.watching import shipped_rules
from watchdog.model import Evidence, State, Subject, Transition
from watchdog.report.bodies import rule_body
from watchdog.report.course import Course, Line
from watchdog.report.day_readings import DayReadings
from watchdog.rule.rule import Rule
from watchdog.web.api import meanings
from watchdog.web.page import rule_page

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
PAGES = (
    "/incidents",
    "/incidents/kv-pool-exhausted/chat/meta/llama-8b/0",
    "/rules",
    "/rules/kv-pool-exhausted",
    "/targets",
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site[AService]]:
    service = a_service(tmp_path, healthy("embed"), snapshot("chat"), down("batch"))
    with a_site(service) as made:
        yield made


@pytest.mark.parametrize("path", PAGES)
def test_browsers_get_a_page_and_programs_json(site: Site[AService], path: str) -> None:
    def kind(query: str = "", **headers: str) -> str:
        return site.ask(f"{path}{query}", headers=headers).headers["content-type"].partition(";")[0]

    assert kind() == kind(Accept="*/*") == kind(Accept="application/json") == "application/json"
    assert kind(**BROWSER) == kind("?format=html") == "text/html"
    assert kind("?format=json", **BROWSER) == "application/json"
    assert site.ask(f"{path}?format=pdf").status == 422
    page = site.ask(path, headers=BROWSER)
    assert "<h1>" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_the_page_of_a_rule_has_the_numbers_of_now_where_it_holds(site: Site[AService]) -> None:
    html = site.ask("/rules/kv-pool-exhausted", headers=BROWSER).text
    assert "457 requests wait while the KV cache is 98% full." in html
    assert "--max-model-len 8192" in html
    assert "{waiting" not in html
    assert 'href="/?target=chat"' in html
    quiet = site.ask("/rules/ttft-high", headers=BROWSER).text
    site.service.last["chat"] = replace(site.service.last["chat"], incidents=(), lead=None)
    quiet = site.ask("/rules/kv-pool-exhausted", headers=BROWSER).text
    assert "does not hold now" in quiet
    assert "<i>waiting last</i> requests wait." in quiet
    assert "waiting_recent_min &gt; 0" in quiet
    assert "least_peak_ratio</code> <b>0.75 ratio</b>" in quiet


def test_the_page_of_a_server_links_to_its_dashboard_where_there_is_a_template(tmp_path: Path) -> None:
    template = "https://grafana/d/x?var-target={target}&var-engine={engine}"
    with a_site(a_service(tmp_path, snapshot("chat b")), web(dashboard_url=template)) as site:
        assert 'href="https://grafana/d/x?var-target=chat%20b&amp;var-engine=0"' in site.ask("/").text
    with a_site(a_service(tmp_path, snapshot("chat b"))) as site:
        assert "dashboard" not in site.ask("/").text


def test_the_page_of_an_incident_draws_its_time_line_with_what_changed_of_the_server(
    site: Site[AService],
) -> None:
    over = incident(
        state=State.RESOLVED, pending_since=NOW - 905, firing_since=NOW - 900, resolved_at=NOW - 700
    )
    site.service.history = History(
        (
            Transition(replace(over, state=State.FIRING, resolved_at=None), State.PENDING, NOW - 900),
            Transition(over, State.FIRING, NOW - 700),
            Transition(incident(), State.PENDING, NOW - 200),
        )
    )
    restarted = replace(snapshot("chat"), wall=NOW - 690, restarted=(Subject("chat"),))
    day = DayReadings()
    course = Course()
    course.note(restarted)
    day.note(restarted, course.marks())
    site.service.of_day_readings = {"chat": day}
    html = site.ask("/incidents/kv-pool-exhausted/chat/meta/llama-8b/0", headers=BROWSER).text
    picture = html.partition('<svg class="story"')[2].partition("</svg>")[0]
    assert 'aria-label="fired 2 times, 6m 50s in all, the last for 3m 25s; 1 change of the server"' in picture
    assert picture.count('<rect class="critical"') == picture.count('<rect class="pending"') == 2
    assert "<title>the server restarted</title>" in picture
    said = [line for line in html.splitlines() if line.startswith("<li><time")]
    assert [re.findall(r"<b>(.*)</b>", line)[0] for line in said] == [
        *("firing", "the server restarted", "resolved after 3m 20s", "firing")
    ]


def test_the_page_of_a_rule_says_of_whom_it_cannot_speak(site: Site[AService]) -> None:
    site.service.rules = shipped_rules()
    html = site.ask("/rules/deferred-backlog", headers=BROWSER).text
    assert "needs deferred_ratio" in html


@pytest.mark.parametrize("rule", shipped_rules().rules, ids=lambda rule: rule.id)
def test_every_shipped_rule_has_a_page_without_placeholders(rule: Rule) -> None:
    html = bytes(rule_page(rule_body(rule), [], meanings(rule), [], NOW).body).decode()
    article = html.partition("<article")[2].partition("</article>")[0]
    assert rule.id in article
    assert "{" not in article


def test_the_page_of_a_server_has_a_day_of_its_readings(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot("chat"))
    day = DayReadings()
    for slot in range(20):
        day.note(snapshot("chat", wall=NOW - 600 * (20 - slot)))
    service.of_day_readings = {"chat": day}
    with a_site(service) as site:
        html = site.ask("/").text
    fold = html.partition('<details data-id="day chat">')[2].partition("</details>")[0]
    assert "Waiting: highest 457, KV usage: highest 98%, TTFT p95: highest 1m 16s" in fold
    assert fold.count('<svg class="chart"') == 4
    assert "24 h ago" in fold


def test_a_clause_that_is_about_no_reading_has_a_picture_too(tmp_path: Path) -> None:
    stalls = Evidence("itl_stall_ratio > 0.08", {"itl_stall_ratio": 0.2}, "itl_stall_ratio (0.2) > 0.08")
    stalled = snapshot("chat", incidents=(incident(evidence=(stalls,)),))
    service = a_service(tmp_path, stalled)
    course = Course()
    for at in range(0, 60, 5):
        course.note(replace(stalled, at=float(at), wall=NOW - 60 + at))
    service.went = {"chat": course}
    times = [NOW - 60 + 5 * step for step in range(12)]
    service.of_signals = {"itl_stall_ratio": Line("itl_stall_ratio", times, [0.01] * 6 + [0.2] * 6)}
    with a_site(service) as site:
        html = site.ask("/").text
    evidence = html.partition('<details data-id="evidence')[2].partition("</details>")[0]
    assert "<span>ITL stall</span><b>20%</b>" in evidence
    assert "now 20%, highest 20%, lowest 1%, over 55 s, threshold 8%" in evidence
    # It is among those that are seen at once.
    assert "ITL stall" in html.partition('<div class="charts">')[2].partition("</article>")[0]


def test_the_list_of_incidents_and_of_targets_lead_on(site: Site[AService]) -> None:
    html = site.ask("/incidents", headers=BROWSER).text
    assert 'href="/incidents/kv-pool-exhausted/chat/meta/llama-8b/0"' in html
    assert "ended within the hour: a state directory keeps more" in html
    targets = site.ask("/targets", headers=BROWSER).text
    assert "connection refused by 10.0.0.7:8000" in targets
    rules = site.ask("/rules", headers=BROWSER).text
    assert rules.index("The KV cache is full") < rules.index("target-down")
