"""A dead engine is never healthy: met while idle, behind any front end, under a request every nine seconds."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import dropwhile
from pathlib import Path

import pytest

from tests.pages import page, scrape
from tests.places import CASES, RECORDINGS
from tests.watching import firing, lead, shipped_rules, watch
from watchdog.model import Incident, Scrape, Snapshot, Verdict
from watchdog.scrape.recording import Phase, read, thin

HANGS = (
    RECORDINGS / "rust-engine-hang-slow-traffic.jsonl.xz",
    RECORDINGS / "two-api-servers-engine-hang.jsonl.xz",
    RECORDINGS / "python-engine-hang-load-tracking.jsonl.xz",
    CASES / "91c-deadlock-while-idle-slow-agents.jsonl.xz",
)
# One connection in nine seconds: it takes a while until they are more than what scrapes and health checks hold.
NAMED_SECONDS = dict(zip(HANGS, (30.0, 30.0, 30.0, 75.0), strict=True))


def hang_of(path: Path) -> Phase:
    recording, _ = read(path)
    return next(phase for phase in recording.phases if phase.label in {"engine-hang", "engine-stalled"})


def watched(path: Path, interval_seconds: float, begin: float = 0.0) -> Iterator[Snapshot]:
    pages = dropwhile(lambda one: one.at < begin, read(path)[1])
    return iter(watch(thin(pages, interval_seconds)))


@pytest.mark.parametrize("path", HANGS, ids=lambda path: path.name.split(".")[0])
@pytest.mark.parametrize("interval_seconds", [5.0, 15.0])
def test_an_engine_that_hangs_while_idle_is_named_and_stays_named(
    path: Path, interval_seconds: float
) -> None:
    hang = hang_of(path)
    within = NAMED_SECONDS[path] + interval_seconds
    told = [one for one in watched(path, interval_seconds) if hang.start + within <= one.wall < hang.end]
    assert told
    assert {(lead(one), one.verdict) for one in told} == {("engine-stalled", Verdict.CRITICAL)}


@pytest.mark.parametrize("path", HANGS, ids=lambda path: path.name.split(".")[0])
def test_who_comes_into_the_middle_of_it_is_told_too(path: Path) -> None:
    hang = hang_of(path)
    begin = hang.start + 20.0
    told = [one for one in watched(path, 5.0, begin) if one.wall < hang.end]
    assert lead(told[-1]) == "engine-stalled"
    named = next(one for one in told if lead(one) == "engine-stalled")
    assert named.wall - begin <= NAMED_SECONDS[path] + 5.0


def stalled(snapshot: Snapshot) -> Incident:
    return next(one for one in snapshot.incidents if one.key.rule == "engine-stalled")


def test_it_says_what_showed_it_and_how_to_see_it_sooner() -> None:
    by_load = stalled(list(watched(HANGS[0], 5.0))[20])
    assert "GET /load reports" in by_load.cause
    assert all(one.flag != "--enable-server-load-tracking" for one in by_load.remedies)
    [by_files] = [stalled(one) for one in watched(HANGS[3], 5.0) if one.wall == 1790000200.0]
    assert "connections opened and stay open" in by_files.cause
    assert "--enable-server-load-tracking" in {one.flag for one in by_files.remedies}


def test_kernels_that_compile_are_waited_for() -> None:
    told = [
        stalled(one)
        for one in watched(CASES / "77-jit-compile-stall.jsonl.xz", 5.0)
        if lead(one) == "engine-stalled"
    ]
    assert told
    for incident in told:
        assert "Wait two minutes" in incident.remedies[0].action
        assert not any(one.action.startswith("Restart") for one in incident.remedies)


def test_answers_of_one_token_are_not_called_cut() -> None:
    snapshots = list(watched(CASES / "77-jit-compile-stall.jsonl.xz", 5.0))
    assert all("output-truncated" not in firing(one) for one in snapshots)


def test_no_text_says_that_an_engine_does_not_come_back() -> None:
    for rule in shipped_rules().rules:
        texts = [
            rule.cause,
            *rule.unhelpful,
            *(text for one in rule.remedies for text in (one.action, one.why)),
        ]
        assert not any("come back by itself" in text for text in texts)


PROCESS = "process_start_time_seconds 100.0\nprocess_open_fds {files}\n"
HTTP = 'http_requests_total{{handler="/v1/chat/completions",method="POST",status="2xx"}} {answers}\n'


def idle_page(at: float, files: float = 40.0, answers: float = 50.0, tokens: float = 900.0) -> Scrape:
    text = page(
        num_requests_running=0.0,
        num_requests_waiting=0.0,
        generation_tokens_total=tokens,
        iteration_tokens_total_count=tokens,
    )
    text += PROCESS.format(files=files) + HTTP.format(answers=answers)
    return scrape(at, text, wall=at + 100_000.0)


def test_a_stall_outlives_what_is_remembered_of_pages() -> None:
    """The ring of pages holds eleven minutes; a client without a time limit waits for hours."""
    came = [idle_page(5.0 * number, 40.0 + min(max(0, number - 10), 12)) for number in range(260)]
    lasting = watch([idle_page(-5.0, tokens=890.0), *came])
    assert all(lead(one) == "engine-stalled" for one in lasting[30:])


def test_a_step_ends_it() -> None:
    came = [idle_page(5.0 * number, 40.0 + min(number, 12)) for number in range(40)]
    well = [idle_page(200.0 + 5.0 * number, 40.0, 62.0, 900.0 + number) for number in range(1, 5)]
    snapshots = watch([*came, *well])
    assert lead(snapshots[39]) == "engine-stalled"
    assert lead(snapshots[-1]) is None


def test_an_idle_server_is_left_in_peace_for_hours() -> None:
    coming = (40.0, 43.0, 41.0)
    pages = [idle_page(15.0 * number, coming[number % 3]) for number in range(300)]
    pages = [replace(one, load=0) for one in pages]
    assert all(lead(one) is None for one in watch([idle_page(-15.0, tokens=890.0), *pages]))
