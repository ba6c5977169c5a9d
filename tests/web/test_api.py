"""The API: its JSON, its text and its page, over HTTP as callers see them."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.a_service import (
    NOW,
    AService,
    History,
    a_service,
    down,
    healthy,
    incident,
    readings,
    recorded,
    snapshot,
)
from tests.a_site import Site, a_site, web
from watchdog.diagnosis.fleet import FLEET
from watchdog.history.number import AtLeast, AtMost
from watchdog.model import (
    Evidence,
    Key,
    LatencyShare,
    Pod,
    Severity,
    Snapshot,
    State,
    Subject,
    Target,
    Transition,
    Verdict,
)
from watchdog.notify.receiver import AlertReceiver, ForwardError
from watchdog.report.bodies import TargetBodies, diagnosis_body, target_body, time_text, worst
from watchdog.report.impact import impact_text
from watchdog.report.text import diagnosis_text, label, reading_label
from watchdog.settings.model import ReceiverSettings, Settings
from watchdog.settings.target import TargetSettings
from watchdog.text import quantity_text
from watchdog.web import wording
from watchdog.web.page import diagnosis_page

KEY = "kv-pool-exhausted/chat/meta/llama-8b/0"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site[AService]]:
    """Four targets: one sick, one well, one down, one not yet read."""
    service = a_service(tmp_path, healthy("embed"), snapshot("chat"), down("batch"))
    service.watched += (Target("new", "http://new:8000/metrics"),)
    began = Transition(incident(state=State.PENDING, firing_since=None), None, NOW - 205)
    fired = Transition(incident(), State.PENDING, NOW - 200)
    over = incident(
        "ttft-high", "embed", state=State.RESOLVED, resolved_at=NOW - 4000, pending_since=NOW - 5000
    )
    service.history = History((Transition(over, State.FIRING, NOW - 4000), began, fired))
    with a_site(service) as made:
        yield made


def test_the_diagnosis_names_cause_evidence_and_remedy(site: Site[AService]) -> None:
    answer = site.ask("/diagnose?target=chat")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    body = answer.json
    assert set(body) == {"generated_at", "verdict", "targets", "fleet"}
    assert (body["generated_at"], body["verdict"]) == ("2026-09-21T14:13:20.000Z", "critical")
    [target] = body["targets"]
    assert set(target) >= {
        *("name", "url", "up", "verdict", "scrape_age_seconds", "vllm", "lead", "incidents"),
        *("latency_budget", "readings", "blind"),
    }
    assert (target["lead"], target["lead_key"]) == ("kv-pool-exhausted", KEY)
    assert (target["up"], target["scrape_age_seconds"]) == (True, 3.0)
    assert target["vllm"]["version"] == "0.24.0"
    assert target["vllm"]["models"] == ["meta/llama-8b"]
    assert target["vllm"]["config"] == {"block_size": "16", "cache_dtype": "auto"}
    assert target["latency_budget"]["queue"] == {"seconds": 39.5, "share": 0.83, "share_of_ttft": 0.98}
    assert target["readings"][0]["values"]["kv_usage_ratio"] == 0.982
    assert target["readings"][0]["limit"] == "kv_pool"
    assert target["blind"][0]["missing"] == ["deferred_ratio"]
    lead, symptom = target["incidents"]
    assert set(lead) >= {
        *("key", "rule", "title", "severity", "state", "labels", "since", "firing_since", "cause"),
        *("evidence", "symptoms", "remedies", "runbook"),
    }
    assert lead["labels"] == {"target": "chat", "model_name": "meta/llama-8b", "engine": "0"}
    assert lead["since"] == "2026-09-21T14:09:55.000Z"
    assert lead["evidence"][1]["values"] == {"kv_usage_peak_ratio": 0.98}
    assert lead["remedies"][0] == {
        "action": "Shorten the longest request the server takes.",
        "flag": "--max-model-len",
        "value": "8192",
        "direction": "lower",
        "lasting": True,
        "why": "99 % of requests end below 4,021 tokens: the pool is planned for requests that never come.",
        "price": "longer requests are refused",
    }
    assert (symptom["rule"], symptom["explained_by"]) == ("ttft-high", ["kv-pool-exhausted"])


def test_all_targets_come_in_the_order_of_the_settings_with_the_worst_verdict(site: Site[AService]) -> None:
    body = site.ask("/diagnose").json
    assert [target["name"] for target in body["targets"]] == ["embed", "chat", "batch", "new"]
    assert [target["verdict"] for target in body["targets"]] == [
        "healthy",
        "critical",
        "critical",
        "starting",
    ]
    assert body["verdict"] == "critical"
    assert body["targets"][3]["up"] is None
    assert body["targets"][2]["failure"] == {
        "reason": "refused",
        "detail": "connection refused by 10.0.0.7:8000",
    }


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], Verdict.UNKNOWN),
        ([Verdict.HEALTHY], Verdict.HEALTHY),
        ([Verdict.HEALTHY, Verdict.STARTING], Verdict.STARTING),
        ([Verdict.STARTING, Verdict.UNKNOWN], Verdict.UNKNOWN),
        ([Verdict.UNKNOWN, Verdict.DEGRADED], Verdict.DEGRADED),
        ([Verdict.DEGRADED, Verdict.CRITICAL, Verdict.HEALTHY], Verdict.CRITICAL),
    ],
)
def test_one_verdict_for_all_is_the_worst(verdicts: list[Verdict], expected: Verdict) -> None:
    assert worst(verdicts) is expected


def test_what_a_fleet_only_notices_comes_after_the_targets(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot())
    for severity, order in ((Severity.WARNING, ["fleet", "chat"]), (Severity.INFO, ["chat", "fleet"])):
        skew = incident(key=Key("fleet-skew", FLEET, "meta/llama-8b", ""), severity=severity, title="Skew")
        body = diagnosis_body(service.targets(), service.last, (skew,), NOW)
        lines = [line for line in diagnosis_text(body).splitlines()[1:] if line and line[0] != " "]
        assert [line.split()[1].rstrip(":") for line in lines] == order
        page = bytes(diagnosis_page(body).body).decode()
        assert (page.index("Skew") < page.index(">chat<")) is (order[0] == "fleet")


def test_what_is_wrong_with_a_fleet_counts_too(tmp_path: Path) -> None:
    skew = incident(key=Key("fleet-skew", FLEET, "meta/llama-8b", ""), severity=Severity.WARNING)
    service = a_service(tmp_path, healthy("a"), healthy("b"))
    service.fleet = (skew,)
    body = diagnosis_body(service.targets(), service.last, service.fleet, NOW)
    assert body.verdict is Verdict.DEGRADED
    assert body.fleet[0].labels == {"target": FLEET, "model_name": "meta/llama-8b"}
    text = diagnosis_text(body)
    assert "WARNING  fleet meta/llama-8b: The KV cache is full" in text
    service.fleet = (replace(skew, state=State.PENDING),)
    assert diagnosis_body(service.targets(), service.last, service.fleet, NOW).verdict is Verdict.UNSETTLED


def test_the_text_says_first_what_is_wrong_and_then_what_to_do(site: Site[AService]) -> None:
    answer = site.ask("/diagnose?target=chat&format=text&verbose=true")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert lines[0] == "CRITICAL  chat: The KV cache is full (kv-pool-exhausted, meta/llama-8b engine 0)"
    assert lines[1] == "  cause      457 requests wait while the KV cache is 98% full."
    assert "             kv_usage_peak_ratio (0.98) > least_peak_ratio (0.75)" in lines
    assert "  to last    1. --max-model-len 8192: Shorten the longest request the server takes." in lines
    assert "                trade-off: calibrate the scales, and compare answers before and after" in lines
    assert "  won't help --swap-space: V1 ignores it." in lines
    assert "  symptoms   queue-latency-high, ttft-high" in lines
    assert "  latency    queue 40 s (83%), prefill 900 ms (2%), decode 7.2 s (15%)" in lines
    assert "  since      2026-09-21 14:09:55 UTC (3m 25s)" in lines
    assert any("scraped 3.0 s ago; vLLM 0.24.0" in line and "1 rule unavailable" in line for line in lines)
    assert max(map(len, lines)) <= 100
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", answer.text)


def test_the_text_of_many_begins_with_the_worst(site: Site[AService]) -> None:
    lines = site.ask("/diagnose?format=text").text.splitlines()
    assert (
        lines[0]
        == "CRITICAL  kv-pool-exhausted on chat and 1 more; 4 targets: 2 critical, 1 starting, 1 healthy"
    )
    words = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    assert words == ["CRITICAL", "CRITICAL", "CRITICAL", "STARTING", "HEALTHY"]


def test_the_text_without_targets_says_so(tmp_path: Path) -> None:
    assert diagnosis_text(diagnosis_body((), {}, (), NOW)) == "UNKNOWN  0 targets are configured\n"


def test_beside_the_lead_stand_causes_but_not_its_symptoms(tmp_path: Path) -> None:
    beside = incident("lora-slots-exhausted", cause="Adapters wait.")
    notice = incident("output-truncated", cause="Answers are cut.", severity=Severity.INFO)
    pending: dict[str, Any] = {"state": State.PENDING, "firing_since": None}
    soon = incident("kv-leak", cause="It may leak.", severity=Severity.WARNING, **pending)
    noise = incident("underloaded", severity=Severity.INFO, **pending)
    symptom = incident("e2e-high", severity=Severity.WARNING, explained_by=("kv-pool-exhausted",), **pending)
    of_another = incident("prefix-cache-ineffective", explained_by=("preemption-thrash",))
    others = (notice, beside, soon, noise, symptom, of_another)
    service = a_service(tmp_path, snapshot(incidents=(*snapshot().incidents, *others)))
    text = diagnosis_text(diagnosis_body(service.targets(), service.last, (), NOW))
    labels = [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2] != " "]
    assert [each for each in labels if each in {"also", "pending", "info"}] == ["also", "pending", "info"]
    for hidden in ("underloaded", "e2e-high", "prefix-cache-ineffective"):
        assert hidden not in text
    assert "  info       output-truncated, meta/llama-8b engine 0: Answers are cut." in text
    assert "  also       lora-slots-exhausted, meta/llama-8b engine 0: Adapters wait." in text
    assert "  pending    kv-leak, meta/llama-8b engine 0: It may leak." in text
    assert "ttft-high, meta" not in text


def test_a_healthy_line_tells_of_a_queue_and_of_notices(tmp_path: Path) -> None:
    def first_line(one: Snapshot) -> str:
        service = a_service(tmp_path, one)
        return diagnosis_text(diagnosis_body(service.targets(), service.last, (), NOW)).splitlines()[0]

    well = healthy()
    assert first_line(well) == "HEALTHY  embed: nothing is firing"
    queue = {**well.readings[0].values, "waiting_requests": 31.0}
    waits = replace(well, readings=(replace(well.readings[0], values=queue),))
    assert first_line(waits) == "HEALTHY  embed: nothing is firing (31 waiting)"
    told = incident("output-truncated", target="embed", severity=Severity.INFO)
    assert first_line(replace(well, incidents=(told,))) == "HEALTHY  embed: nothing above info is firing"


def test_what_is_not_proven_says_so_in_its_first_line_and_how_to_prove_it(tmp_path: Path) -> None:
    def lines(verdict: Verdict, why: str) -> list[str]:
        one = replace(healthy(), verdict=verdict, why=why)
        service = a_service(tmp_path, one)
        return diagnosis_text(diagnosis_body(service.targets(), service.last, (), NOW)).splitlines()

    idle = "no step for 2m; no evidence that no request hangs: health is not proven"
    told = lines(Verdict.IDLE, idle)
    assert told[:2] == [
        f"IDLE  embed: {idle}",
        "  prove it   Send one small request (max_tokens 1) and check again: a completed step is the proof.",
    ]
    assert "--enable-server-load-tracking" in " ".join(told)
    assert lines(Verdict.UNSETTLED, "pending: ttft-high")[0] == "UNSETTLED  embed: pending: ttft-high"
    seen = "idle: GET /load tells that no request is in flight"
    assert lines(Verdict.HEALTHY, seen)[0] == f"HEALTHY  embed: nothing is firing; {seen}"
    assert not any("prove it" in line for line in lines(Verdict.HEALTHY, seen))


def test_what_helps_right_now_and_what_lasts_are_two_lists(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot())
    body = diagnosis_body(service.targets(), service.last, (), NOW)
    lines = diagnosis_text(body).splitlines()
    now = lines.index("  right now  1. Add a replica.")
    last = lines.index("  to last    1. --max-model-len 8192: Shorten the longest request the server takes.")
    assert now < last
    assert any(line.startswith("             2. --kv-cache-dtype fp8") for line in lines[last:])
    page = bytes(diagnosis_page(body).body).decode()
    assert (
        page.index("Right now") < page.index("Add a replica.") < page.index("So that it does not come back")
    )
    drains = replace(incident(), remedies=incident().remedies[2:])
    service = a_service(tmp_path, snapshot(incidents=(drains,)))
    assert "to last" not in diagnosis_text(diagnosis_body(service.targets(), service.last, (), NOW))


def test_what_ended_within_the_hour_is_told_with_its_times(tmp_path: Path) -> None:
    over = incident(target="embed", state=State.RESOLVED, pending_since=NOW - 200, resolved_at=NOW - 50)
    older = replace(over, key=over.key._replace(engine="1"), resolved_at=NOW - 90, pending_since=NOW - 100)
    part = replace(over, key=over.key._replace(rule="ttft-high"), explained_by=("kv-pool-exhausted",))
    note = replace(over, key=over.key._replace(rule="shift"), severity=Severity.INFO)
    service = a_service(tmp_path, replace(healthy(), incidents=(older, part, note, over)))
    body = diagnosis_body(service.targets(), service.last, (), NOW)
    first, *lines = diagnosis_text(body).splitlines()
    assert first == "HEALTHY  embed: nothing is firing"
    begin = lines.index(
        "  ended      kv-pool-exhausted, meta/llama-8b engine 0: 14:10:00 to 14:12:30 UTC (2m 30s)"
    )
    assert lines[begin + 1].strip() == (
        "kv-pool-exhausted, meta/llama-8b engine 1: 14:11:40 to 14:11:50 UTC (10 s)"
    )
    page = bytes(diagnosis_page(body).body).decode()
    assert page.count("14:10:00 to 14:12:30 UTC (2m 30s)") == 1
    assert "ttft-high" not in page.partition("Ended in the last hour")[2].partition("</table>")[0]


def test_what_recovers_says_since_when_and_when_it_closes(tmp_path: Path) -> None:
    gone = incident(cleared_at=NOW - 12, closes_at=NOW + 18)
    one = snapshot(incidents=(gone,), verdict=Verdict.RECOVERING)
    service = a_service(tmp_path, one)
    body = diagnosis_body(service.targets(), service.last, (), NOW)
    [told] = body.targets[0].incidents
    assert (told.cleared, told.closes) == ("2026-09-21T14:13:08.000Z", "2026-09-21T14:13:38.000Z")
    lines = diagnosis_text(body).splitlines()
    assert lines[0].startswith("RECOVERING  chat: The KV cache is full (kv-pool-exhausted")
    assert "  cause was  457 requests wait while the KV cache is 98% full." in lines
    assert "  cleared    12 s ago, closes in 18 s unless it returns" in lines
    page = bytes(diagnosis_page(body).body).decode()
    assert "cleared 12 s ago, closes in 18 s unless it returns" in " ".join(page.split())


def test_the_text_keeps_a_value_with_its_name_and_says_where_to_read_more(tmp_path: Path) -> None:
    long = " and ".join(f"kv_usage_peak_ratio_{at} (0.98) > least_peak_ratio_{at} (0.75)" for at in range(9))
    one = incident(evidence=(Evidence(long, {}, long),), runbook="docs/causes.md#kv-pool-exhausted")
    service = a_service(tmp_path, snapshot(incidents=(one,), hints=("Give vllm_args.", "Give gpu.")))
    lines = diagnosis_text(diagnosis_body(service.targets(), service.last, (), NOW)).splitlines()
    assert not any(line.lstrip().startswith("(") for line in lines)
    assert "".join(lines).count(" (0.98)") == 9
    assert "  runbook    vllm-watchdog rules show kv-pool-exhausted" in lines
    assert "             Flag changes need a vLLM restart." in lines
    assert any(line.startswith("  hints      Give vllm_args. 1 more: `vllm-watchdog") for line in lines)
    bare = replace(one, remedies=(replace(one.remedies[0], flag=None, value=None),))
    service = a_service(tmp_path, snapshot(incidents=(bare,), hints=("Give vllm_args.", "Give gpu.")))
    text = diagnosis_text(diagnosis_body(service.targets(), service.last, (), NOW))
    assert "Flags count" not in text
    assert "  hints      2 settings would sharpen this: `vllm-watchdog hints`" in text


def test_where_a_cause_leads_no_second_limit_is_named(tmp_path: Path) -> None:
    bound = replace(healthy().readings[0], limit="sequences", limit_share=0.5)
    calm = replace(healthy(), readings=(bound,))
    led = snapshot(readings=(replace(bound, subject=snapshot().readings[0].subject),))
    for one, is_named in ((calm, True), (led, False)):
        service = a_service(tmp_path, one)
        body = diagnosis_body(service.targets(), service.last, (), NOW)
        assert ("  limit      sequences, 50% of the time" in diagnosis_text(body)) is is_named
        assert (b"current limit" in bytes(diagnosis_page(body).body)) is is_named


def test_the_page_says_in_words_that_nothing_is_wrong_or_why_nobody_knows(tmp_path: Path) -> None:
    loading = replace(healthy(), verdict=Verdict.UNKNOWN, readings=())
    for one, told in (
        (healthy(), "Nothing is firing."),
        (replace(healthy(), verdict=Verdict.STARTING), "Not enough history to judge yet."),
        (loading, "It answers, but has no vLLM metrics: still loading, or wrong port or path."),
    ):
        service = a_service(tmp_path, one)
        body = diagnosis_body(service.targets(), service.last, (), NOW)
        assert f"<h1>{told}</h1>" in bytes(diagnosis_page(body).body).decode()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "(3m 25s)"),
        ({"began_at": NOW - 260}, "(4m 20s)"),
        ({"unknown": True}, "(3m 25s); it cannot be judged now"),
    ],
)
def test_what_is_told_from_an_earlier_look_says_so(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    service = a_service(tmp_path, snapshot(incidents=(incident(**changes),)))
    body = diagnosis_body(service.targets(), service.last, (), NOW)
    (since,) = [line for line in diagnosis_text(body).splitlines() if line.startswith("  since")]
    assert since.endswith(told)
    shown = " ".join(" ".join(parsed(bytes(diagnosis_page(body).body).decode()).shown).split())
    lasted, _, standing = told.removeprefix("(").partition(")")
    assert f"for {lasted}, since" in shown
    assert standing.removeprefix("; ") in shown


def test_names_of_values_are_words_without_the_unit() -> None:
    assert label("kv_usage_peak_ratio") == "KV usage peak"
    assert label("itl_p50_seconds_baseline") == "ITL p50 before"
    assert quantity_text("itl_p50_seconds_baseline", 0.0055) == "5.5 ms"


def test_readings_are_named_as_people_name_them() -> None:
    assert reading_label("standing_queue_requests") == "shortest queue in 10 s"
    assert reading_label("kv_usage_ratio") == "KV usage"


def test_no_rule_is_called_blind_of_a_server_that_never_answered(tmp_path: Path) -> None:
    never = replace(down(), last_success_wall=None, blind=snapshot().blind)
    service = a_service(tmp_path, never)
    text = diagnosis_text(diagnosis_body(service.targets(), service.last, (), NOW))
    assert "never scraped successfully" in text
    # It may be the address: nobody has ever seen it answer.
    assert "  try        Is the server up, and are name and port correct?" in text
    assert "  try " not in diagnosis_text(diagnosis_body(service.targets(), {"batch": down()}, (), NOW))
    assert "blind" not in text


def test_recorded_servers_are_told_in_every_form(tmp_path: Path) -> None:
    """A sick one, one of two engines, one without traffic, and one of an old version."""
    names = ("kv-pool-exhausted", "dp-imbalance", "idle", "v0.8.5-V0-healthy")
    service = a_service(tmp_path, *(recorded(name, tmp_path) for name in names))
    with a_site(service, wall=lambda: max(each.wall for each in service.last.values())) as site:
        body = site.ask("/diagnose").json
        sick, pair, idle, old = body["targets"]
        assert (sick["lead"], sick["vllm"]["version"]) == ("kv-pool-exhausted", "0.32.0")
        assert set(sick["latency_budget"]) == {"queue", "prefill", "decode"}
        assert [engine["engine"] for engine in pair["readings"]] == ["0", "1"]
        assert idle["readings"][0]["values"]["running_requests"] == 0
        assert old["vllm"]["version"] == "0.8.5"
        lines = site.ask("/diagnose?format=text").text.splitlines()
        assert max(map(len, lines)) <= 100
        assert "The KV cache is full" in site.ask("/").text
        assert 'vllm_watchdog_kv_pool_tokens{engine="0"' in site.ask("/metrics").text


class _Page(HTMLParser):
    """What a browser would fetch or run, and the text it would show."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.shown: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.shown.append(data)


def parsed(text: str) -> _Page:
    page = _Page()
    page.feed(text)
    return page


def test_the_page_shows_the_diagnosis_and_loads_nothing_from_elsewhere(site: Site[AService]) -> None:
    answer = site.ask("/?target=chat")
    page = parsed(answer.text)
    shown = " ".join(" ".join(page.shown).split())
    for expected in (
        "The KV cache is full",
        "--max-model-len 8192",
        "Trade-off: a GPU",
        "5,480 tokens/s",
        "1 check unavailable",
    ):
        assert expected in shown
    for tag, attributes in (*page.tags, *parsed(site.ask("/").text).tags):
        for name in ("src", "href", "action"):
            link = attributes.get(name) or "/"
            assert link.startswith(("/", "data:", "#")) or (
                tag == "a" and attributes.get("rel") == "noreferrer"
            )
        assert not {name for name in attributes if name.startswith("on") or name == "style"}
    policy = answer.headers["content-security-policy"]
    [nonce] = set(re.findall(r"nonce-([\w-]+)", policy))
    assert all(attributes["nonce"] == nonce for tag, attributes in page.tags if tag in {"style", "script"})
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert site.ask("/").headers["content-security-policy"] != policy


def test_the_page_answers_in_the_order_of_a_night(tmp_path: Path) -> None:
    """What, for how long, what users feel, what to do; what explains it is folded below."""
    service = a_service(tmp_path, snapshot())
    html = bytes(diagnosis_page(diagnosis_body(service.targets(), service.last, (), NOW)).body).decode()
    page = html.partition("<main")[2]
    places = [
        page.index(each)
        for each in (
            ">critical<",
            "for 3m 25s, since",
            "<h1>The KV cache is full</h1>",
            "457 requests wait while",
            "457 of 495 requests wait. A first token takes 1m 16s (p95). 83% of an average request is spent in queue.",
            "<h2>Right now</h2>",
            "<h2>So that it does not come back</h2>",
            "<summary>Evidence",
            "<summary>What will not help",
            "<summary>Symptoms",
            "<summary>Readings",
        )
    ]
    assert places == sorted(places)
    folded = [attributes for tag, attributes in parsed(page).tags if tag == "details"]
    assert folded
    assert not any("open" in attributes for attributes in folded)


def test_impact_is_told_of_what_is_known_only(tmp_path: Path) -> None:
    def told(**values: float | None) -> str:
        one = replace(readings(), values={**readings().values, **values}, latency_budget={})
        return impact_text(target_body(Target("chat", ""), snapshot(readings=(one,)), NOW))

    assert told(waiting_requests=None, ttft_p95_seconds=None) == ""
    assert told(waiting_requests=0.0, running_requests=1.0) == (
        "1 request runs, none waits. A first token takes 1m 16s (p95)."
    )
    assert told(waiting_requests=0.0, running_requests=0.0, ttft_p95_seconds=None) == ""
    assert impact_text(target_body(Target("chat", ""), None, NOW)) == ""


def test_the_page_words_prices_lists_and_flags() -> None:
    assert [wording.cost(each) for each in ("None.", "", "A restart.")] == ["", "", "A restart."]
    assert (
        wording.brief(("--swap-space: V1 ignores it.", "A restart. It comes back."))
        == "--swap-space, A restart"
    )
    assert wording.brief(("word " * 40,)).endswith("word...")
    assert wording.with_flags("Set --a-b 2 <now>") == "Set <code>--a-b</code> 2 &lt;now&gt;"
    assert wording.clock("2026-09-20T23:59:59.500Z", "2026-09-21T00:00:01.000Z") == "2026-09-20 23:59:59 UTC"


def test_the_page_of_one_target_and_of_none(site: Site[AService]) -> None:
    assert "embed" not in site.ask("/?target=chat").text
    assert site.ask("/?target=nobody").status == 404
    site.service.watched = ()
    assert "Nothing is watched yet" in site.ask("/").text


def test_what_a_server_says_is_never_markup_or_template(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>{{ 7 * 7 }}{% raw %}\"'><img src=x onerror=alert(1)>"
    sick = incident(
        key=Key("kv-pool-exhausted", "chat", hostile, "0"),
        cause=hostile,
        evidence=(Evidence(hostile, {hostile: 1.0}, hostile),),
        unhelpful=(hostile,),
        runbook="javascript:alert(1)",
    )
    engine = replace(readings(), subject=Subject("chat", hostile, hostile), limit=hostile)
    bad = snapshot(
        incidents=(sick,), lead=sick.key, readings=(engine, engine), notes=(hostile,), hints=(hostile,)
    )
    bad = replace(bad, vllm=replace(bad.vllm, models=(hostile,), config={hostile: hostile}))
    with a_site(a_service(tmp_path, bad)) as site:
        page = parsed(site.ask("/").text)
        assert [tag for tag, _ in page.tags].count("script") == 1
        assert "img" not in [tag for tag, _ in page.tags]
        assert "49" not in " ".join(page.shown)
        assert not any("javascript:" in (attributes.get("href") or "") for _, attributes in page.tags)
        assert hostile[:40] in site.ask("/diagnose?format=text").text
        assert site.ask("/diagnose").json["targets"][0]["readings"][0]["engine"].startswith("<script>")
        assert site.ask("/metrics").status == 200


def test_incidents_present_and_past(site: Site[AService]) -> None:
    def rules(query: str) -> list[tuple[str, str]]:
        found = site.ask(f"/incidents{query}").json["incidents"]
        return [(each["rule"], each["labels"]["target"]) for each in found]

    firing = [("kv-pool-exhausted", "chat"), ("ttft-high", "chat"), ("target-down", "batch")]
    assert rules("") == [*firing, ("ttft-high", "embed")]
    assert rules("?state=firing") == firing
    assert rules("?rule=ttft-high") == [("ttft-high", "chat"), ("ttft-high", "embed")]
    assert rules("?since=1h") == firing
    assert rules(f"?since={NOW - 4500:.0f}") == [*firing, ("ttft-high", "embed")]
    assert rules("?since=2026-09-21T13:00:00Z") == [*firing, ("ttft-high", "embed")]
    assert rules("?limit=1") == firing[:1]
    assert site.ask("/incidents").json["kept"] is True
    site.service.history = None
    assert rules("") == firing
    assert site.ask("/incidents").json["kept"] is False


@pytest.mark.parametrize(
    "since", ["yesterday", "2026-09-21T13:00:00", "1e9", "-5", "2026-99-99T00:00:00Z", "nan"]
)
def test_a_time_that_is_none_is_refused(site: Site[AService], since: str) -> None:
    answer = site.ask(f"/incidents?since={since}")
    assert (answer.status, answer.error["reason"]) == (422, "invalid_request")


def test_an_incident_has_a_time_line_and_a_page(site: Site[AService]) -> None:
    body = site.ask(f"/incidents/{KEY}").json
    assert body["incident"]["state"] == "firing"
    assert [(step["before"], step["state"]) for step in body["timeline"]] == [
        (None, "pending"),
        ("pending", "firing"),
    ]
    assert body["timeline"][0]["evidence"][0]["values"] == {"waiting_recent_min": 457.0}
    assert site.ask(f"/incidents/{KEY.replace('/', '%2F')}").json == body
    html = site.ask(f"/incidents/{KEY}", headers={"Accept": "text/html,*/*;q=0.8"})
    assert html.headers["content-type"].startswith("text/html")
    assert "Fired once, for 3m 25s." in " ".join(parsed(html.text).shown)
    past = site.ask("/incidents/ttft-high/embed/meta/llama-8b/0").json
    assert past["incident"]["resolved_at"] == "2026-09-21T13:06:40.000Z"
    assert site.ask("/incidents/no/such/thing/-").error["reason"] == "not_found"


def test_rules_are_told_as_they_are_used(site: Site[AService]) -> None:
    rules = site.ask("/rules").json["rules"]
    assert [rule["id"] for rule in rules] == ["kv-pool-exhausted", "target-down", "ttft-high"]
    rule = site.ask("/rules/kv-pool-exhausted").json
    assert rule == rules[0]
    assert rule["when"] == ["waiting_recent_min > 0", "kv_usage_peak_ratio > least_peak_ratio"]
    assert rule["parameters"]["least_peak_ratio"]["value"] == 0.75
    assert (rule["for_seconds"], rule["scope"], rule["remedies"][0]["flag"]) == (
        5,
        "engine",
        "--max-model-len",
    )
    assert (
        site.ask("/rules/kv-pool-exhaustd").error["message"]
        == "no rule has this id; did you mean `kv-pool-exhausted`?"
    )


def test_targets_tell_how_their_scrapes_go(site: Site[AService]) -> None:
    embed, _, batch, new = site.ask("/targets").json["targets"]
    assert (embed["scrapes"], embed["failures"], embed["samples"]) == (80, {"timeout": 2}, 435)
    assert (batch["up"], batch["failure"]["reason"]) == (False, "refused")
    assert (new["up"], new["scrapes"], new["last_success"]) == (None, 0, None)


def test_alive_and_ready_are_two_things(site: Site[AService]) -> None:
    for path in ("/healthz", "/-/healthy", "/readyz", "/-/ready"):
        assert site.ask(path).json["status"] == "ok"
    site.service.alive = False
    assert [site.ask(path).status for path in ("/healthz", "/-/healthy", "/readyz")] == [503, 503, 200]
    site.service.alive, site.service.started = True, False
    assert site.ask("/healthz").status == 200
    assert site.ask("/readyz").error == {
        "status": 503,
        "reason": "not_ready",
        "message": "the first scrapes have not ended yet",
    }


def test_readiness_tells_of_unverified_tls(tmp_path: Path) -> None:
    settings = Settings.model_validate({"targets": [{"url": "https://h", "insecure_skip_verify": True}]})
    with a_site(a_service(tmp_path, snapshot()), settings) as site:
        assert "whoever answers for https://h/metrics is believed" in site.ask("/readyz").json["notes"][0]


def test_readiness_tells_that_changed_settings_were_refused(site: Site[AService]) -> None:
    assert site.ask("/readyz").json["notes"] == []
    site.service.reload_successful = False
    [note] = site.ask("/readyz").json["notes"]
    assert "were rejected; the old ones stay in force" in note


def test_readiness_tells_what_the_process_is_short_of(site: Site[AService]) -> None:
    site.service.short_of = ("1200 scrapes were left out",)
    assert site.ask("/readyz").json["notes"] == ["1200 scrapes were left out"]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/incidents?forma=json", "forma: unknown query parameter; /openapi.json lists them"),
        ("/diagnose?format=yaml", "format: must be 'json' or 'text'"),
        ("/diagnose?target=nothing-like-it", "no target has this name; /targets lists them"),
        ("/diagnosis", "there is nothing here; / is the page, /diagnose?format=text the same as text"),
    ],
)
def test_a_wrong_question_is_answered_with_the_right_one(site: Site[AService], path: str, told: str) -> None:
    assert site.ask(path).error["message"].startswith(told)


def test_our_metrics_are_served(site: Site[AService]) -> None:
    answer = site.ask("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'vllm_watchdog_target_up{target="batch"} 0.0' in answer.text


def test_reload_is_off_unless_set_and_keeps_what_was_on_faults(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot())
    with a_site(service) as site:
        assert site.ask("/-/reload", "POST").status == 404
        assert "/-/reload" not in site.ask("/openapi.json").text
    with a_site(service, web(reload_endpoint=True)) as site:
        assert site.ask("/-/reload", "POST").json == {"status": "ok"}
        assert site.ask("/-/reload").status == 405
        service.faults = ("x.yaml:1: no such setting",)
        answer = site.ask("/-/reload", "POST")
        assert (answer.status, answer.error["reason"]) == (500, "reload_failed")
        assert answer.error["message"] == "x.yaml:1: no such setting"


def test_alerts_of_others_are_answered_with_our_diagnosis(site: Site[AService]) -> None:
    target = TargetSettings.model_validate({"name": "chat", "url": "http://chat:8000"})
    site.service.receiver = AlertReceiver(ReceiverSettings(), (target,))
    answer = site.post("/alertmanager", {"alerts": [{"labels": {"alertname": "SlowLLM", "pod": "chat"}}]})
    assert answer.status == 200
    [alert] = answer.json["alerts"]
    assert (alert["alertname"], alert["targets"][0]["lead"]) == ("SlowLLM", "kv-pool-exhausted")
    [kept] = site.ask("/received").json["alerts"]
    assert kept == alert | {"received_at": "2026-09-21T14:13:20.000Z"}


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("text/plain", b"{}", 415),
        ("application/x-www-form-urlencoded", b"{}", 415),
        ("application/json", b"", 422),
        ("application/json", b"{", 422),
        ("application/json", b"[]", 422),
        ("application/json", b'{"a": NaN}', 422),
        ("application/json", b'{"a": ' + b"9" * 5000 + b"}", 422),
        ("application/json", b"\xff\xfe{}", 422),
        ("application/json", b'{"a":' * 20_000, 422),
        ("application/json; charset=utf-8", b'{"alerts": [], "x": "\\ud800"}', 200),
        ("application/json", b'{"alerts": []' + b" " * 1024 * 1024 + b"}", 200),
        ("application/json", b'{"alerts": []' + b" " * 8 * 1024 * 1024 + b"}", 413),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_payload_that_is_none_is_refused(site: Site[AService], kind: str, body: bytes, status: int) -> None:
    answer = site.ask("/alertmanager", "POST", {"Content-Type": kind}, body)
    assert answer.status == status
    if status != 200:
        assert answer.error["status"] == status


class _DeadEnd(AService):
    """A service whose next receiver is away."""

    def receive(self, payload: Any) -> Any:
        raise ForwardError("the next receiver rejected it")


def test_what_the_receiver_refuses_is_told_to_the_sender(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot())
    with a_site(service) as site:
        assert site.post("/alertmanager", {"alerts": [{}]}).error == {
            "status": 422,
            "reason": "invalid_request",
            "message": "alerts[0] must be an object with labels",
        }
    with a_site(_DeadEnd(**vars(service))) as site:
        assert (site.post("/alertmanager", {}).status, site.post("/alertmanager", {}).error["reason"]) == (
            502,
            "not_forwarded",
        )
    with a_site(service, Settings.model_validate({"receiver": {"enabled": False}})) as site:
        assert site.post("/alertmanager", {"alerts": []}).status == 404
        assert site.ask("/received").status == 404


def test_numbers_that_json_has_not_are_null(tmp_path: Path) -> None:
    engine = replace(
        readings(),
        values={"a_ratio": math.nan, "b_seconds": math.inf, "c_seconds": AtLeast(5.0), "d": AtMost(1e308)},
        latency_budget={"queue": LatencyShare(math.inf, math.nan)},
    )
    odd = incident(evidence=(Evidence("x > 1", {"x": -math.inf, "y": None}, "x"),), pending_since=math.inf)
    service = a_service(tmp_path, snapshot(readings=(engine,), incidents=(odd,), lead=odd.key))
    with a_site(service) as site:
        [target] = site.ask("/diagnose").json["targets"]
        assert target["readings"][0]["values"] == {
            "a_ratio": None,
            "b_seconds": None,
            "c_seconds": 5.0,
            "d": 1e308,
        }
        assert target["readings"][0]["at_least"] == ["c_seconds"]
        assert target["readings"][0]["at_most"] == ["d"]
        assert target["latency_budget"]["queue"] == {"seconds": None, "share": None, "share_of_ttft": None}
        assert target["incidents"][0]["since"] is None
        assert target["incidents"][0]["evidence"][0]["values"] == {"x": None, "y": None}
        assert {site.ask(path).status for path in ("/", "/diagnose?format=text", "/metrics")} == {200}


def test_ages_never_run_backwards_and_times_never_raise(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot())
    assert diagnosis_body(service.targets(), service.last, (), NOW - 9999).targets[0].scrape_age_seconds == 0
    assert [time_text(wall) for wall in (0.0, -1e20, 1e20, math.nan, None)] == [
        "1970-01-01T00:00:00.000Z",
        *(None,) * 4,
    ]


def test_a_body_is_made_once_a_snapshot_and_its_age_each_time() -> None:
    bodies = TargetBodies()
    one = snapshot()
    first, second = (bodies.body(one.target, one, NOW + age) for age in (0, 2))
    assert (first.scrape_age_seconds, second.scrape_age_seconds) == (3, 5)
    assert first.incidents is second.incidents
    assert bodies.body(one.target, healthy("chat"), NOW).verdict is Verdict.HEALTHY


def test_head_answers_like_get_without_a_body(site: Site[AService]) -> None:
    for path in ("/", "/diagnose", "/metrics", "/healthz", "/rules"):
        full, head = site.ask(path), site.ask(path, "HEAD")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-type"] == full.headers["content-type"]
    assert site.ask("/nothing", "HEAD").status == 404


def test_the_document_describes_every_answer(site: Site[AService]) -> None:
    document = site.ask("/openapi.json").json
    assert document["info"]["title"] == "vllm-watchdog"
    assert {
        "/diagnose",
        "/incidents",
        "/incidents/{key}",
        "/rules",
        "/rules/{id}",
        "/targets",
        "/metrics",
    } <= set(document["paths"])
    for name, schema in document["components"]["schemas"].items():
        for field, described in schema.get("properties", {}).items():
            assert described.get("description"), f"{name}.{field} has no description"
    for path in ("/docs", "/redoc"):
        assert site.ask(path).status == 404


def test_a_pod_is_told_with_its_node_its_restarts_and_its_roll_out(tmp_path: Path) -> None:
    service = a_service(tmp_path, snapshot())
    service.of_kubernetes["chat"] = Pod(
        name="chat-5d9-x",
        namespace="llm",
        node="gpu-3",
        restarts=2,
        ended="OOMKilled",
        ended_at=NOW - 600,
        image="vllm:0.12",
        image_before="vllm:0.11",
        image_changed_at=NOW - 3600,
    )
    with a_site(service) as site:
        pod = site.ask("/diagnose").json["targets"][0]["pod"]
        text, page = site.ask("/diagnose?format=text&verbose=true").text, site.ask("/").text
    assert (pod["name"], pod["restarts"], pod["ended"]) == ("chat-5d9-x", 2, "OOMKilled")
    assert pod["ended_at"].startswith("2026-")
    words = " ".join(text.split())
    assert "pod chat-5d9-x in llm on gpu-3; not ready; 2 restarts; last ended: OOMKilled 2026-09-21" in words
    assert "image changed to vllm:0.12 from vllm:0.11" in words
    assert "OOMKilled" in page
