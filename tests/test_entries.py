"""Text of others is made harmless where it comes in, so that nothing that leaves needs a look: over real HTTP."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.a_service import NOW, AService, a_service
from tests.a_site import Site, a_site
from tests.kubernetes_api import a_pod
from tests.pagers import Inbox
from tests.servers import Server, answer, request, send
from tests.watching import diagnosis
from watchdog.discovery import pod
from watchdog.discovery.lists import FileFinder
from watchdog.http.endpoint import Endpoint
from watchdog.model import Snapshot, Target
from watchdog.notify.announcements import MemoryLedger
from watchdog.notify.receiver import AlertReceiver
from watchdog.report.bodies import target_body
from watchdog.report.text import target_text
from watchdog.scrape.fetch import Fetcher, FetchLimits
from watchdog.scrape.recording import read
from watchdog.settings.discovery import FileDiscoverySettings, KubernetesDiscoverySettings
from watchdog.settings.model import ReceiverSettings
from watchdog.settings.target import TargetSettings

HARM = "\x1b[31m\x07\r\u202e\u2028\x85 red"
HARMLESS = "\\x1b[31m\\x07\\r\\u202e\\u2028\\x85 red"
SURROGATE = "\\ud800"
PAGE = "".join(
    f'vllm:{name}{{model_name="m{HARM}",engine="0\\n"}} {value}\n'
    for name, value in {
        "num_requests_running": 1,
        "num_requests_waiting": 0,
        "kv_cache_usage_perc": 0.1,
        "generation_tokens_total": 5,
        f'cache_config_info{{block_size="16",cache_dtype="{HARM}"}} 1\nvllm:request_success_total': 1,
    }.items()
).encode()


def check(value: Any) -> None:
    """No text in it holds a control character."""
    if isinstance(value, str):
        assert all(letter.isprintable() or letter == "\n" for letter in value), ascii(value)
    elif isinstance(value, dict):
        check([*value, *value.values()])
    elif isinstance(value, list):
        for each in value:
            check(each)


def told(*answers: bytes) -> Iterator[Snapshot]:
    """What is said of a server that gives one answer after the other, each on a connection of its own."""
    with Server(*[[request, send(each)] for each in answers]) as server:
        fetcher = Fetcher(Endpoint(server.url), FetchLimits())
        one = diagnosis("chat")
        fetcher.server_info()
        for tick in range(len(answers) - 2):
            yield one.observe(fetcher.fetch(5.0 * tick, NOW + 5.0 * tick))
        fetcher.close()


def closed(body: bytes, status: str = "200 OK") -> bytes:
    return answer(body, status, "Connection: close")


FACTS = (
    closed(f'{{"version": "0.24.0{SURROGATE}\\u001b[31m"}}'.encode()),
    closed(f'{{"data": [{{"id": "m\\u0007{SURROGATE}", "max_model_len": 8192}}]}}'.encode()),
)


def outputs(site: Site[AService]) -> None:
    """Every output of the service is UTF-8, JSON where it says so, and holds no control character."""
    for path in ("/diagnose", "/incidents", "/targets", "/rules", "/received", "/readyz", "/nothing%1b[31m"):
        check(json.loads(site.ask(path).body.decode()))
    for path in ("/", "/diagnose?format=text", "/metrics"):
        check(site.ask(path).body.decode())


def test_what_a_server_says_of_itself_leaves_as_printable_text(tmp_path: Path) -> None:
    *_, last = told(*FACTS, *[closed(PAGE)] * 4)
    assert (last.up, last.readings[0].subject.model_name) == (True, f"m{HARMLESS}")
    assert last.vllm.version == "0.24.0\\ud800\\x1b[31m"
    assert last.vllm.config["cache_dtype"] == HARMLESS
    service = a_service(tmp_path, last)
    with a_site(service) as site:
        outputs(site)


def test_the_names_of_models_that_only_the_api_tells_are_printable() -> None:
    *_, last = told(*FACTS, *[closed(b"vllm:num_requests_running 0\n")] * 3)
    assert last.vllm.models == ("m\\x07\\ud800",)


@pytest.mark.parametrize(
    "reply",
    [
        closed(b"", f"500 {HARM[:6]}"),
        closed(b"", "302 Found").replace(b"Connection", b"Location: http://h/\x1b[31m\x85\r\nConnection"),
        b"\x1b[31m\x07 no HTTP\r\n\r\n",
        closed(f"vllm:a{HARM} x\n".encode()),
        closed(b"\x1b\xff\n"),
    ],
    ids=["status", "redirect", "no HTTP", "no page", "no UTF-8"],
)
def test_what_a_server_answers_instead_of_a_page_leaves_as_printable_text(
    tmp_path: Path, reply: bytes
) -> None:
    *_, last = told(*FACTS, *[reply] * 3)
    assert last.failure is not None
    service = a_service(tmp_path, last)
    with a_site(service) as site:
        outputs(site)
    check(target_text(target_body(Target("chat", ""), last, NOW), None))


def test_what_others_post_is_cleaned_before_it_is_kept_shown_or_passed_on(tmp_path: Path) -> None:
    alert = {"labels": {"pod": HARM, f"x{HARM}": "\n", "alertname": HARM}, "annotations": {"summary": HARM}}
    body = json.dumps({"alerts": [{**alert, "startsAt": HARM, "fingerprint": HARM}], "extra": [HARM]})
    target = TargetSettings.model_validate({"url": "http://chat:8000", "name": "chat"})
    with Inbox() as next_one:
        settings = ReceiverSettings(forward_url=next_one.url)
        service = a_service(tmp_path)
        service.receiver = AlertReceiver(settings, [target])
        with a_site(service) as site:
            fields = {"Content-Type": "application/json"}
            sent = body.replace("\\u001b", "\\u001b\\ud800").encode()
            reply = site.ask("/alertmanager", "POST", fields, sent)
            assert reply.status == 200
            check(json.loads(reply.body.decode()))
            outputs(site)
        (post,) = next_one.wait_for(1)
    check(json.loads(post.body.decode()))
    assert post.json["alerts"][0]["labels"]["pod"] == HARMLESS.replace("\\x1b", "\\x1b\\ud800")


@pytest.mark.parametrize(
    ("path", "host"),
    [
        ("/diagnose?x%1b%07%e2%80%ae=1", "localhost"),
        ("/diagnose?target=%1b%ed%a0%80", "localhost"),
        ("/incidents?since=%1b", "localhost"),
        ("/incidents/%1b%ed%a0%80", "localhost"),
        ("/rules/%1b", "localhost"),
        ("/diagnose", "evil\x1b\x85.example.com"),
    ],
)
def test_what_a_caller_asks_for_is_quoted_as_printable_text(tmp_path: Path, path: str, host: str) -> None:
    with a_site(a_service(tmp_path)) as site:
        reply = site.ask(path, headers={"Host": host})
        assert reply.status >= 400
        check(json.loads(reply.body.decode()))


def test_what_a_recording_says_of_itself_is_printable(tmp_path: Path) -> None:
    meta = {
        "name": HARM,
        "vllm_version": HARM,
        "models": [HARM],
        "phases": [{"label": HARM, "start": 0, "end": 1}],
    }
    rows = [{"t": 0, "status": 0, "error": f"{HARM}\ud800"}]
    path = tmp_path / "one.jsonl"
    path.write_text("\n".join(map(json.dumps, [meta, *rows])))
    recording, scrapes = read(path)
    (scrape,) = scrapes
    assert (recording.name, recording.phases[0].label) == (HARMLESS, HARMLESS)
    assert (scrape.server_info.version, scrape.server_info.models) == (HARMLESS, (HARMLESS,))
    assert scrape.failure is not None
    check(scrape.failure.detail)


def test_what_a_list_of_targets_says_leaves_as_printable_text(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    group = {"targets": [f"chat{HARM}:1", "embed:1"], "labels": {"team": HARM, "name": f"n{HARM}"}}
    path.write_text(json.dumps([group]))
    settings = FileDiscoverySettings.model_validate({"files": [str(path)], "name_label": "name"})
    finder = FileFinder(settings, MemoryLedger())
    finder.look()
    assert len(finder.found) == 2
    for each in finder.found:
        check([each.name, dict(each.labels)])
        assert HARMLESS in each.name


def test_what_kubernetes_says_of_a_pod_leaves_as_printable_text() -> None:
    told = a_pod("chat", image=f"vllm:{HARM}", ended={"reason": HARM}, labels={"team": HARM})
    told["spec"]["nodeName"] = HARM
    settings = KubernetesDiscoverySettings(selector="app=vllm")
    check([asdict(pod.state_of(told, settings)), pod.labels(told)])
