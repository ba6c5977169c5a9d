"""Messages to people through the real Apprise, to services on loopback."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.pagers import WALL, Inbox, Ledgers, Post, Reply, Senders, incident, resolved, running
from tests.waiting import until
from watchdog import logs
from watchdog.errors import ConfigError
from watchdog.model import Severity
from watchdog.notify import apprise as sending
from watchdog.notify.announcements import memory_ledger
from watchdog.settings.model import Settings, load

pytest.importorskip("apprise")
# Apprise's mail looks for what Python 3.13 has no longer.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
SECRET = "sekrit-token"


def url_file(directory: Path, url: str, name: str = "phones") -> Path:
    path = directory / name
    path.write_text(f"# who is on call\n{url}\n")
    return path


def settings(*entries: Any) -> Settings:
    values = {"apprise": list(entries), "web.external_url": "https://watchdog.example"}
    return load(None, values, {}, check_files=True)


@contextmanager
def sending_to(*entries: Any, ledgers: Any = memory_ledger) -> Iterator[Senders]:
    with running(Senders(settings(*entries), ledgers)) as senders:
        yield senders


def host(inbox: Inbox) -> str:
    return inbox.url.removeprefix("http://")


def said(post: Post) -> tuple[str, str]:
    return post.json["title"], post.json["type"]


def test_an_incident_is_one_message_and_its_end_another(tmp_path: Path) -> None:
    with Inbox() as inbox, sending_to(str(url_file(tmp_path, f"json://{host(inbox)}/hook"))) as one:
        for second in range(0, 30, 5):
            one.observe([incident()], second, WALL + second)
        [begun] = inbox.wait_for(1)
        one.observe([resolved(WALL + 150)], 150, WALL + 150, ())
        _, over = inbox.wait_for(2)
        until(lambda: one.statistics()[0].sent == 2)
    assert said(begun) == ("CRITICAL gpu-0: The KV cache is full", "failure")
    assert begun.json["message"].splitlines() == [
        "Since 2023-11-14 22:13:20 UTC.",
        "12 requests wait while the KV cache is 98% full.",
        "First: --max-model-len 8192: Limit the context",
        "https://watchdog.example/incidents/kv-pool-exhausted/gpu-0/m/0",
    ]
    assert said(over) == ("RESOLVED gpu-0: The KV cache is full", "success")
    assert over.json["message"].splitlines() == [
        "From 2023-11-14 22:13:20 UTC to 2023-11-14 22:15:50 UTC, 2m 30s.",
        "https://watchdog.example/incidents/kv-pool-exhausted/gpu-0/m/0",
    ]


def test_only_the_lead_is_told_and_a_graver_severity_is_news_but_no_second_incident(tmp_path: Path) -> None:
    milder = incident(severity=Severity.WARNING)
    symptom = incident("ttft-high", explained_by=("kv-pool-exhausted",))
    with Inbox() as inbox, sending_to(str(url_file(tmp_path, f"json://{host(inbox)}"))) as one:
        one.observe([milder, symptom], 0, WALL)
        inbox.wait_for(1)
        one.observe([incident(severity=Severity.CRITICAL), symptom], 5, WALL + 5)
        inbox.wait_for(2)
        one.observe([milder, symptom], 10, WALL + 10)
        one.observe([resolved(WALL + 20), resolved(WALL + 20, "ttft-high")], 20, WALL + 20, ())
        inbox.wait_for(3)
    assert [post.json["title"].split()[0] for post in inbox.posts] == ["WARNING", "CRITICAL", "RESOLVED"]
    assert len({post.json["title"].partition(" ")[2] for post in inbox.posts}) == 1


def test_each_place_gets_what_is_grave_enough_for_it(tmp_path: Path) -> None:
    with Inbox() as pager, Inbox() as chat:
        entries = (
            {"url_file": str(url_file(tmp_path, f"json://{host(pager)}", "a")), "least_severity": "critical"},
            {"url_file": str(url_file(tmp_path, f"form://{host(chat)}", "b")), "send_resolved": False},
        )
        with sending_to(*entries) as one:
            one.observe([incident(severity=Severity.WARNING)], 0, WALL)
            chat.wait_for(1)
            one.observe([resolved(WALL + 5)], 5, WALL + 5, ())
            one.observe([incident("engine-stalled", severity=Severity.CRITICAL)], 10, WALL + 10)
            chat.wait_for(2)
            pager.wait_for(1)
    assert [post.json["title"] for post in pager.posts] == ["CRITICAL gpu-0: The KV cache is full"]
    assert [parse_qs(post.body.decode())["title"][0].split()[0] for post in chat.posts] == [
        "WARNING",
        "CRITICAL",
    ]


def test_a_phone_gets_it_by_ntfy(tmp_path: Path) -> None:
    inbox = Inbox(lambda _: Reply(body=b"{}"))
    with inbox, sending_to(str(url_file(tmp_path, f"ntfy://{host(inbox)}/on-call"))) as one:
        one.observe([incident()], 0, WALL)
        [post] = inbox.wait_for(1)
        until(lambda: one.statistics()[0].sent == 1)
    told = json.loads(post.body)
    assert (told["topic"], told["title"]) == ("on-call", "CRITICAL gpu-0: The KV cache is full")
    assert "Limit the context" in told["message"]


@pytest.mark.usefixtures("restored_root_logger")
def test_what_fails_is_tried_again_and_told_without_the_url(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logs.set_up("debug", "logfmt")
    replies = iter([Reply(500), Reply(429), Reply()])
    with Inbox(lambda _: next(replies)) as inbox:
        url = f"json://user:{SECRET}@{host(inbox)}/{SECRET}"
        with sending_to({"url_file": str(url_file(tmp_path, url)), "name": "chat"}) as one:
            one.observe([incident()], 0, WALL)
            until(lambda: one.statistics()[0].errors >= 1)
            assert one.statistics()[0].last_error.startswith("status 500; `apprise -vv`")
            inbox.wait_for(3, seconds=20)
            until(lambda: one.statistics()[0].sent == 1)
            assert one.statistics()[0].last_error == ""
    told = capfd.readouterr().err
    assert "notifications_failing receiver=chat" in told
    assert "notifications_recovered" in told
    assert SECRET not in told
    assert SECRET not in repr(one.statistics())


def test_what_no_place_takes_is_given_up_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sending, "_TRIED_SECONDS", 0.5)
    with (
        Inbox(lambda _: Reply(403)) as inbox,
        sending_to(str(url_file(tmp_path, f"json://{host(inbox)}"))) as one,
    ):
        one.observe([incident()], 0, WALL)
        until(lambda: one.statistics()[0].dropped == 1)
        one.observe([incident(), incident("other", target="gpu-0")], 5, WALL + 5, ())
        assert one.statistics()[0].queue_length == 0
        inbox.judge = lambda _: Reply()
        # Its end is no news to who never heard that it began; what begins next is.
        one.observe([resolved(WALL + 10), incident("engine-stalled")], 10, WALL + 10)
        until(lambda: one.statistics()[0].sent == 1)
    assert [post.json["title"].split()[0] for post in inbox.posts[-1:]] == ["CRITICAL"]
    assert "message_given_up" in [each.message for each in caplog.records]


def test_a_restart_tells_nothing_twice_and_forgets_no_end(tmp_path: Path) -> None:
    ledgers = Ledgers()
    with Inbox() as inbox:
        path = str(url_file(tmp_path, f"json://{host(inbox)}"))
        with sending_to(path, ledgers=ledgers) as one:
            one.observe([incident()], 0, WALL)
            until(lambda: one.statistics()[0].sent == 1)
        with sending_to(path, ledgers=ledgers) as two:
            two.observe([incident()], 0, WALL + 60)
            two.observe([resolved(WALL + 70)], 10, WALL + 70, ())
            until(lambda: two.statistics()[0].sent == 1)
            two.observe([], 100, WALL + 160, ())
        assert [said(post)[1] for post in inbox.posts] == ["failure", "success"]
    assert {name: texts.load() for name, texts in ledgers.items() if texts.load()} == {}


def test_a_url_that_was_changed_in_its_file_counts_for_the_next_message(tmp_path: Path) -> None:
    with Inbox() as old, Inbox() as new:
        path = url_file(tmp_path, f"json://{host(old)}")
        with sending_to(str(path)) as one:
            one.observe([incident()], 0, WALL)
            old.wait_for(1)
            until(lambda: one.statistics()[0].sent == 1)
            url_file(tmp_path, f"json://{host(new)}")
            one.observe([resolved(WALL + 5)], 5, WALL + 5, ())
            new.wait_for(1)


def test_every_fault_of_a_url_is_told_at_the_start_and_nothing_of_the_url(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    two = url_file(tmp_path, f"json://{SECRET}\njson://b", "two")
    unknown = url_file(tmp_path, f"slak://{SECRET}/{SECRET}", "unknown")
    with pytest.raises(ConfigError) as caught:
        settings(str(two), str(unknown))
    first, second = map(str, caught.value.faults)
    assert first == f"apprise[0].url_file: {two} must hold one URL, and has 2; one entry leads to one place"
    assert second.startswith("apprise[1].url_file: Apprise takes no such URL")
    with pytest.raises(ConfigError) as caught:
        settings(str(tmp_path / "none"), str(url_file(tmp_path, "", "empty")))
    assert "cannot be read: No such file" in "\n".join(map(str, caught.value.faults))
    assert SECRET not in first + second + "".join(capfd.readouterr())
    assert logging.getLogger("apprise").propagate is False
