"""The real Alertmanager hears from us once, for as long as it lasts, and in the end the truth."""

import copy
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from tests.contract.programs import ROOT, Alertmanager, get, run
from tests.pagers import Inbox, Ledgers, Post, Senders, incident, running, senders
from tests.waiting import until
from tests.watching import diagnosis, shipped_rules
from watchdog.clock import steady_seconds
from watchdog.model import Severity, State
from watchdog.notify.alertmanager import Moment
from watchdog.notify.notifiers import Notifiers
from watchdog.scrape.recording import read, thin
from watchdog.settings.model import load

RECORDING = ROOT / "tests" / "recordings" / "h200-kv-pool-exhausted.jsonl.xz"


def sender(*urls: str, **others: Any) -> Senders:
    given = {"urls": list(urls), "resend_seconds": 1, **others}
    return senders(given, external_url="http://w", interval_seconds=0.5)


def firing(**others: Any) -> Any:
    others.setdefault("since", time.time())
    return incident(**others)


def observe(alertmanager: Any, *incidents: Any) -> None:
    alertmanager.observe(incidents, steady_seconds(), time.time())


class Watched:
    """Incidents that a sender is told of again and again, as a running watchdog does, until the block ends."""

    def __init__(self, alertmanager: Any) -> None:
        self.incidents: tuple[Any, ...] = ()
        self._alertmanager = alertmanager
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _tell(self) -> None:
        while not self._over.wait(0.05):
            observe(self._alertmanager, *self.incidents)


@contextmanager
def pair(tmp_path: Path, **others: Any) -> Iterator[tuple[Inbox, Alertmanager]]:
    with Inbox() as inbox, Alertmanager(tmp_path / "alertmanager", inbox.url, **others) as real:
        yield inbox, real


def said(posts: list[Post]) -> list[tuple[str, list[tuple[str, str]]]]:
    return [
        (
            post.json["status"],
            sorted((alert["labels"]["alertname"], alert["status"]) for alert in post.json["alerts"]),
        )
        for post in posts
    ]


def test_an_incident_of_a_recording_arrives_once_stays_and_resolves(tmp_path: Path) -> None:
    """The recording's time drives the diagnosis; the alerts carry the time of day."""
    name = "VllmKvPoolExhausted"
    watched = diagnosis("gpu-0")
    _, scrapes = read(RECORDING)
    with pair(tmp_path) as (inbox, real), running(sender(real.url, resend_seconds=60)) as alertmanager:
        leads: list[str] = []
        for scrape in thin(scrapes, 5.0):
            snapshot = watched.observe(replace(scrape, wall=time.time()))
            alertmanager.observe(snapshot.incidents, steady_seconds(), time.time(), snapshot.pageable)
            if snapshot.lead and snapshot.lead.rule not in leads:
                leads.append(snapshot.lead.rule)
            if snapshot.lead and snapshot.lead.rule == "kv-pool-exhausted" and not inbox.posts:
                until(lambda: name in real.names())
                inbox.wait_for(1)
        assert "kv-pool-exhausted" in leads
        begun = {name for _, alerts in said(inbox.posts) for name, status in alerts if status == "firing"}
        assert name in begun
        assert len(begun) <= len(leads)
        # What the recording leaves open ends here.
        left = [one for one in snapshot.incidents if one.state is State.FIRING]
        ends = [replace(one, state=State.RESOLVED, resolved_at=time.time()) for one in left]
        observe(alertmanager, *ends)
        until(lambda: not real.names())
        inbox.wait_until(lambda posts: posts[-1].json["status"] == "resolved")
        changes = [
            (alert["startsAt"], alert["status"])
            for post in inbox.posts
            for alert in post.json["alerts"]
            if alert["labels"]["alertname"] == name
        ]
    assert len({start for start, _ in changes}) == 1
    statuses = [status for _, status in changes]
    assert statuses == sorted(statuses)
    assert statuses.count("resolved") == 1


def ended(one: Any) -> Any:
    return replace(one, state=State.RESOLVED, resolved_at=time.time())


def test_what_fires_is_said_once_though_it_is_sent_again_and_again(tmp_path: Path) -> None:
    with pair(tmp_path) as (inbox, real), running(sender(real.url, resend_seconds=0.5)) as alertmanager:
        one = firing()
        with Watched(alertmanager) as watched:
            for step in range(8):
                watched.incidents = (replace(one, cause=f"Step {step}."),)
                time.sleep(0.5)
            assert alertmanager.statistics()[0].sent >= 5
            assert real.names() == {"VllmKvPoolExhausted"}
            assert said(inbox.posts) == [("firing", [("VllmKvPoolExhausted", "firing")])]
            watched.incidents = (ended(one),)
            inbox.wait_for(2)
            assert real.names() == set()
    assert said(inbox.posts)[1:] == [("resolved", [("VllmKvPoolExhausted", "resolved")])]


def test_two_watchdogs_give_one_alert(tmp_path: Path) -> None:
    with (
        pair(tmp_path) as (inbox, real),
        running(sender(real.url)) as one,
        running(sender(real.url)) as other,
    ):
        first, second = firing(), firing(since=time.time() + 0.2, value=0.9)
        with Watched(one) as watched, Watched(other) as too:
            watched.incidents, too.incidents = (first,), (second,)
            inbox.wait_for(1)
            time.sleep(1.5)
            assert len(real.alerts()) == 1
            watched.incidents = (ended(first),)
            time.sleep(0.1)
            too.incidents = (ended(second),)
            inbox.wait_for(2)
            time.sleep(1.5)
    assert [status for status, _ in said(inbox.posts)] == ["firing", "resolved"]


def active(alertmanager: Alertmanager) -> set[tuple[str, str]]:
    """The names of all that fires, heartbeats too, and the instance of each."""
    found = get(f"{alertmanager.url}/api/v2/alerts?active=true") or []
    return {(each["labels"]["alertname"], each["labels"]["instance"]) for each in found}


def of_a_machine(name: str, alertmanager_url: str) -> Notifiers:
    """What the settings of the quick start on bare metal send from the machine of this name."""
    settings = load(ROOT / "deploy" / "systemd" / "watchdog.yaml", {"alertmanager.urls": [alertmanager_url]})
    told = {"instance": name, "resend_seconds": 1.0}
    notifiers = Notifiers(
        settings.model_copy(update={"alertmanager": settings.alertmanager.model_copy(update=told)})
    )
    notifiers.run()
    return notifiers


def test_two_machines_of_the_quick_start_give_two_alerts_and_two_heartbeats(tmp_path: Path) -> None:
    one = firing(target="vllm")
    with pair(tmp_path) as (_, real):
        machines = [of_a_machine(name, real.url) for name in ("gpu-0", "gpu-1")]
        for each in machines:
            each.observe([one], steady_seconds(), time.time(), {one.key})
        until(lambda: len(active(real)) == 4)
        machines[0].observe([ended(one)], steady_seconds(), time.time(), ())
        until(lambda: len(active(real)) == 3)
        left = active(real)
        for each in machines:
            each.stop(1.0)
    assert left == {
        ("VllmKvPoolExhausted", "gpu-1"),
        ("VllmWatchdogHeartbeat", "gpu-0"),
        ("VllmWatchdogHeartbeat", "gpu-1"),
    }


def test_an_alertmanager_that_was_down_ends_in_the_right_state(tmp_path: Path) -> None:
    """An outage of eight resends, as ten minutes are: one ends meanwhile, one begins, one stays."""
    with pair(tmp_path) as (inbox, real), running(sender(real.url, resend_seconds=0.5)) as alertmanager:
        ends, stays, begins = (firing(target=name) for name in "abc")
        with Watched(alertmanager) as watched:
            watched.incidents = (ends, stays)
            inbox.wait_for(2)
            real.wait_until_told(2)
            real.end()
            watched.incidents = (ended(ends), stays, begins)
            time.sleep(4)
            real.start()
            until(lambda: len(inbox.posts) >= 4)
            until(lambda: {alert["labels"]["target"] for alert in real.alerts()} == {"b", "c"})
            time.sleep(1)
            told = [(post.json["groupLabels"]["target"], post.json["status"]) for post in inbox.posts]
    assert sorted(told) == [("a", "firing"), ("a", "resolved"), ("b", "firing"), ("c", "firing")]


def test_a_restarted_alertmanager_knows_again_and_pages_nobody_twice(tmp_path: Path) -> None:
    with (
        pair(tmp_path) as (inbox, real),
        running(sender(real.url)) as alertmanager,
        Watched(alertmanager) as watched,
    ):
        watched.incidents = (firing(),)
        inbox.wait_for(1)
        real.wait_until_told(1)
        # What it has said is on its disk; what fires was in its memory only.
        real.end()
        real.start()
        start = until(real.alerts)[0]["startsAt"]
        time.sleep(2)
        assert len(inbox.posts) == 1
    assert start[:19] == inbox.posts[0].json["alerts"][0]["startsAt"][:19]


def test_a_watchdog_that_is_gone_leaves_alerts_that_end_by_themselves(tmp_path: Path) -> None:
    with pair(tmp_path) as (inbox, real):
        with running(sender(real.url)) as alertmanager:
            observe(alertmanager, firing())
            inbox.wait_for(1)
        # Stopping has resolved nothing: four resends it lives on.
        assert real.names() == {"VllmKvPoolExhausted"}
        inbox.wait_for(2)
    assert said(inbox.posts)[1][0] == "resolved"


@pytest.mark.parametrize("off_seconds", [86_400.0, -86_400.0])
def test_a_machine_whose_clock_is_a_day_off_keeps_its_alert_and_ends_it(
    tmp_path: Path, off_seconds: float
) -> None:
    ledgers = Ledgers()

    def life(real: Alertmanager) -> Senders:
        given = {"urls": [real.url], "resend_seconds": 1}
        return senders(given, external_url=None, interval_seconds=0.5, ledgers=ledgers)

    def see(alertmanager: Senders, *incidents: Any) -> None:
        seen = real.alerts()
        alertmanager.observe(incidents, steady_seconds(), time.time() + off_seconds)
        until(lambda: real.alerts() != seen)

    with pair(tmp_path) as (inbox, real):
        one = firing(since=time.time() - 30)
        with running(life(real)) as alertmanager:
            observe(alertmanager, one)
            began = until(real.alerts)[0]["startsAt"]
            inbox.wait_for(1)
        with running(life(real)) as alertmanager:
            see(alertmanager, one)
            assert [each["startsAt"] for each in real.alerts()] == [began]
            see(alertmanager, replace(ended(one), resolved_at=time.time() + off_seconds))
            # A date has whole seconds: it may end within the next one.
            until(lambda: not real.names())
            inbox.wait_for(2)
        assert [status for status, _ in said(inbox.posts)] == ["firing", "resolved"]


def test_a_bad_alert_costs_the_others_nothing(tmp_path: Path) -> None:
    """The real one refuses an alert without any label; ours always have some, so the bad one is put in by hand."""
    with pair(tmp_path) as (_, real), running(sender(real.url)) as alertmanager:
        alertmanagers = alertmanager._alertmanagers
        outbox = alertmanagers._outboxes[0]
        good = [firing(target=f"t{number}") for number in range(5)]
        alert = alertmanagers._builder.build(replace(good[0], severity=Severity.WARNING))
        now = Moment(steady_seconds(), time.time())
        alertmanagers._queue("bad", replace(alert, labels={"no name": "x"}), now)
        alertmanager.observe(good, steady_seconds(), time.time(), {one.key for one in good})
        until(lambda: outbox.statistics().sent == 5)
        assert len(real.alerts()) == 5
        assert outbox.statistics().errors == 1


def test_our_webhook_message_has_the_form_of_alertmanagers_own(tmp_path: Path) -> None:
    with pair(tmp_path) as (theirs, real), Inbox() as ours:
        direct = senders(webhooks=[{"url": ours.url, "name": "hook"}], external_url="http://w")
        one = firing()
        with running(sender(real.url)) as alertmanager, running(direct):
            observe(alertmanager, one)
            observe(direct, one)
            their_post, our_post = theirs.wait_for(1)[0], ours.wait_for(1)[0]
            over = ended(one)
            observe(alertmanager, over)
            observe(direct, over)
            their_end, our_end = theirs.wait_for(2)[1], ours.wait_for(2)[1]
    for their, our in ((their_post, our_post), (their_end, our_end)):
        assert list(our.json) == list(their.json)
        assert [list(alert) for alert in our.json["alerts"]] == [
            list(alert) for alert in their.json["alerts"]
        ]
        assert comparable(our) == comparable(their)


def comparable(post: Post) -> Any:
    """Without what differs by its nature: who sends it, and how many digits a second has."""
    payload = copy.deepcopy(post.json)
    del payload["externalURL"]
    for alert in payload["alerts"]:
        for name in ("startsAt", "endsAt"):
            alert[name] = alert[name][:19]
    return json.loads(json.dumps(payload))


EXAMPLE = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"


def test_the_example_is_accepted_by_amtool() -> None:
    assert "SUCCESS" in run("amtool", "check-config", EXAMPLE)


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("alertname=VllmWatchdogHeartbeat", "severity=none"), "dead-man-switch"),
        (("alertname=VllmKvPoolExhausted", "severity=critical"), "pager"),
        (("alertname=VllmTtftHigh", "severity=warning"), "chat"),
        (("alertname=HighTTFT", "severity=critical"), "chat"),
    ],
)
def test_the_example_routes_by_severity_and_the_heartbeat_apart(
    labels: tuple[str, ...], receiver: str
) -> None:
    printed = run("amtool", "config", "routes", "test", f"--config.file={EXAMPLE}", *labels)
    assert printed.splitlines()[-1] == receiver or receiver in printed.splitlines()


def test_the_example_inhibits_symptoms_and_lets_the_heartbeat_through(tmp_path: Path) -> None:
    configuration = yaml.safe_load(EXAMPLE.read_text())
    with Inbox() as inbox, ExitStack() as stack:
        for receiver in configuration["receivers"]:
            for hook in receiver["webhook_configs"]:
                hook["url"] = f"{inbox.url}/{receiver['name']}"
        configuration["route"] |= {"group_wait": "1s", "group_interval": "1s"}
        real = stack.enter_context(Alertmanager(tmp_path, "", configuration))
        alertmanager = stack.enter_context(running(sender(real.url, symptoms=True, heartbeat=True)))
        cause = firing(symptoms=("ttft-high",))
        symptom = firing(rule="ttft-high", severity=Severity.WARNING)
        elsewhere = firing(rule="ttft-high", severity=Severity.WARNING, target="gpu-1")
        graver = [
            firing(rule="itl-high", severity=severity, target="gpu-2")
            for severity in (Severity.WARNING, Severity.CRITICAL)
        ]
        observe(alertmanager, graver[0])
        watched = stack.enter_context(Watched(alertmanager))
        watched.incidents = (cause, symptom, elsewhere, graver[1])
        inbox.wait_until(lambda posts: len({post.path for post in posts}) == 3)
        time.sleep(1.5)
        heard = {
            (post.path, alert["labels"]["rule"], alert["labels"]["target"])
            for post in inbox.posts
            for alert in post.json["alerts"]
            if post.path != "/dead-man-switch"
        }
        states = {
            (alert["labels"]["rule"], alert["labels"]["target"], alert["labels"]["severity"]): alert[
                "status"
            ]["state"]
            for alert in real.alerts()
        }
    assert heard == {
        ("/pager", "kv-pool-exhausted", "gpu-0"),
        ("/chat", "ttft-high", "gpu-1"),
        ("/pager", "itl-high", "gpu-2"),
    }
    assert states[("ttft-high", "gpu-0", "warning")] == "suppressed"
    assert states[("itl-high", "gpu-2", "warning")] == "suppressed"


def test_the_example_silences_only_what_the_rules_call_symptoms() -> None:
    """Where a rule names the rules it explains, the example may go no further; a server unseen explains all."""
    loaded = shipped_rules()
    for inhibition in yaml.safe_load(EXAMPLE.read_text())["inhibit_rules"]:
        causes, effects = (rule_ids(inhibition[side]) for side in ("source_matchers", "target_matchers"))
        if not causes or not effects:
            continue
        for cause in causes:
            known = loaded.by_id(cause)
            assert known is not None
            assert effects <= set(known.explains), cause


def rule_ids(matchers: list[str]) -> set[str]:
    """The ids that matchers on `rule` name; none where they take any."""
    named = (re.fullmatch(r'rule =~? "?([a-z0-9|-]+)"?', matcher) for matcher in matchers)
    return {identity for found in named if found for identity in found[1].split("|")}
