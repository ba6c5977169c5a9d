"""`vllm-watchdog diagnose`: one verdict on servers or recordings, now, and an exit code for scripts."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from watchdog.cli.console import (
    ConfigOption,
    Form,
    FormOption,
    ForOption,
    IntervalOption,
    RulesOption,
    coloured,
    complain,
    exit_code,
    progress,
    say,
    screen_width,
)
from watchdog.cli.live import settings_for, ticks, watch
from watchdog.cli.namesake import refuse_namesake
from watchdog.cli.prometheus import Look, look, with_look
from watchdog.clock import steady_seconds
from watchdog.errors import ConfigError, RecordingError
from watchdog.model import Incident, Limit, Readings, Scrape, Snapshot, State, Target, Truth, Verdict
from watchdog.replay.together import Together, replay_together
from watchdog.report.bodies import diagnosis_body, fleet_verdicts
from watchdog.report.text import diagnosis_text, readings_text
from watchdog.rule.in_force import load_rules, with_directories
from watchdog.rule.rule import evaluate
from watchdog.rule.rule_set import RuleSet
from watchdog.scrape.recording import read
from watchdog.settings.model import Settings
from watchdog.text import one_line

# How much longer an unsettled server is watched: as long again, and no longer than people wait for an answer.
MOST_EXTRA_SECONDS = 60.0
ONE_PAGE = (
    "one page is too little to judge; record half a minute (vllm-watchdog record URL -o FILE.jsonl --for 30s) "
    "and diagnose that"
)
WATCH_HINT = "watch for 30 s or more (--for 30s)"
# What a queue usually waits for.
_WAITED_FOR = {
    Limit.KV_POOL: "the KV cache",
    Limit.SEQUENCES: "a limit on sequences",
    Limit.TOKEN_BUDGET: "a limit on tokens a step",
    Limit.COMPUTE: "compute",
}

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Examples:\n\n  vllm-watchdog diagnose http://localhost:8000 --for 1m\n\n"
    "  vllm-watchdog diagnose metrics.prom --format json\n\n"
    "  vllm-watchdog diagnose --prometheus http://prometheus:9090 --at 02:10"
)
@with_look
def diagnose(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="URL|FILE...", help="Servers or files; the configured targets if not given."),
    ] = None,
    duration: ForOption = 30.0,
    interval: IntervalOption = 2.0,
    config: ConfigOption = None,
    rules: RulesOption = None,
    form: FormOption = Form.TEXT,
    prometheus: Look | None = None,
) -> None:
    """Watches for a while and says what is wrong; exit code 0 healthy, 1 something fires, 2 health is not proven.

    What is unsettled then is watched for as long again, a minute at most. Ctrl-C ends the watching early with the
    verdict so far.
    """
    refuse_namesake()
    _check(what or ())
    files = [Path(each) for each in what or () if is_file(each)]
    urls = [each for each in what or () if not is_file(each)]
    settings = settings_for(urls, config, interval)
    rule_set = load_rules(with_directories(settings.rules, rules or ()))
    recorded = _from_files(files, rule_set)
    snapshots, fleet = list(recorded.last), recorded.fleet
    pages = frozenset(each.target.name for each in snapshots if each.scrapes == 1)
    if prometheus is not None:
        looked = look(prometheus, rule_set)
        snapshots += looked.last
        fleet += looked.fleet
    if urls or not (files or prometheus):
        if not settings.targets:
            raise ConfigError(["nothing to diagnose: give a URL or a file, or set targets in the settings"])
        watched = watch_all(settings, rule_set, interval, duration)
        snapshots += watched.last
        fleet += watched.fleet
    verdict = _say(snapshots, fleet, pages, rule_set, form)
    raise typer.Exit(exit_code([verdict, *(snapshot.verdict for snapshot in snapshots)]))


def _check(what: Sequence[str]) -> None:
    for each in what:
        if not is_file(each) and not any(mark in each for mark in ".:"):
            raise ConfigError(
                [
                    f"{each!r} is neither a file here nor a URL such as http://localhost:8000: nothing to diagnose"
                ]
            )


def is_file(what: str) -> bool:
    """Whether a word on the command line means a file or a folder, not a server."""
    if "://" in what:
        return False
    return Path(what).exists() or "/" in what or what.endswith((".prom", ".jsonl", ".gz", ".xz"))


def watch_all(settings: Settings, rules: RuleSet, interval: float, seconds: float) -> Together:
    """Watches every target of the settings at once, and all of them together.

    Goes on while one of them, or what is among them, is unsettled, for as long again and at most a minute.
    """
    seen = Together(())
    with watch(settings, rules) as watched, progress(f"watching {watched.names}", seconds) as done:
        began = steady_seconds()
        with suppress(KeyboardInterrupt):
            for at in ticks(interval, seconds + min(seconds, MOST_EXTRA_SECONDS)):
                done(at - began, glance(seen.last))
                seen = watched.step()
                verdicts = {*(each.verdict for each in seen.last), *fleet_verdicts(seen.fleet)}
                if is_over(at - began, seconds, interval, verdicts):
                    break
        return watched.seen


def glance(snapshots: Sequence[Snapshot]) -> str:
    """What is seen while the watching goes on, in a few words: the first readings, and what is pending."""
    if len(snapshots) != 1:
        counts = Counter(each.verdict for each in snapshots)
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    [one] = snapshots
    shown = readings_text(dict(one.readings[0].values), most=4) if one.readings else ""
    pending = [each.key.rule for each in one.incidents if each.state is State.PENDING]
    return "; ".join(filter(None, (shown, f"pending: {', '.join(pending)}" if pending else "")))


def is_over(
    watched_seconds: float, asked_seconds: float, interval: float, verdicts: Iterable[Verdict]
) -> bool:
    """Whether a look has lasted as long as it was asked to, and what it saw has settled."""
    # The next tick would be too late; half an interval apart, so that a late tick is not taken for the one after it.
    lasted = watched_seconds + interval / 2 > asked_seconds
    return lasted and Verdict.UNSETTLED not in set(verdicts)


def _from_files(paths: Sequence[Path], rules: RuleSet) -> Together:
    recordings = [(path, *read(path, complain)) for path in paths]
    return replay_together(
        [
            (Target(recording.name, one_line(str(path))), _at_least_one(path, scrapes))
            for path, recording, scrapes in recordings
        ],
        rules,
    )


def _at_least_one(path: Path, scrapes: Iterator[Scrape]) -> Iterator[Scrape]:
    first = next(scrapes, None)
    if first is None:
        raise RecordingError(f"{path}: it has no scrapes")
    yield first
    yield from scrapes


def _say(
    snapshots: Sequence[Snapshot],
    fleet: Sequence[Incident],
    pages: Set[str],
    rules: RuleSet,
    form: Form,
) -> Verdict:
    """Says it, and gives the verdict on all; `pages` are the targets of which one page is all there is."""
    limits = {each.target.name: list(_limits(each, each.target.name in pages, rules)) for each in snapshots}
    shown = {
        each.target.name: replace(each, hints=(*limits[each.target.name], *each.hints)) for each in snapshots
    }
    wall = max(snapshot.wall for snapshot in snapshots)
    body = diagnosis_body([snapshot.target for snapshot in snapshots], shown, fleet, wall)
    if form is Form.JSON:
        say(body.model_dump_json())
        return body.verdict
    width = screen_width()
    say(coloured(diagnosis_text(body, width, starting=dict.fromkeys(pages, ONE_PAGE)).rstrip("\n")))
    for name, lines in limits.items():
        # The first line says this of a page already.
        for limit in (each for each in lines if each != ONE_PAGE):
            line = f"{name}: {limit}"
            say(textwrap.fill(line, width, initial_indent="  ", subsequent_indent="    "))
    return body.verdict


def _limits(snapshot: Snapshot, is_page: bool, rules: RuleSet) -> Iterator[str]:
    """What a short look cannot tell, and how long a look would."""
    if snapshot.verdict is Verdict.UNSETTLED:
        yield "it is too early to say whether this is a cause; watch longer (--for 2m)"
    if snapshot.verdict is not Verdict.STARTING:
        return
    advice = "page" if is_page else f"look, {WATCH_HINT}"
    yield ONE_PAGE if is_page else f"not enough data for rates and latencies; {WATCH_HINT}"
    for readings in snapshot.readings:
        engine = f" on engine {readings.subject.engine}" if len(snapshot.readings) > 1 else ""
        waiting, usage = readings.values.get("waiting_requests"), readings.values.get("kv_usage_ratio")
        possible = [
            words for limit, words in _WAITED_FOR.items() if limit in _possible_limits(readings, rules)
        ]
        if waiting and usage is not None and len(possible) > 1:
            yield (
                f"{waiting:.0f} requests wait{engine} while the KV cache is {usage:.0%} full: "
                f"{', '.join(possible[:-1])}, or {possible[-1]}; unclear from one {advice}"
            )


def _possible_limits(readings: Readings, rules: RuleSet) -> frozenset[Limit]:
    """The limits that no rule rules out, were the page to stand as it is for a whole window."""
    running, waiting = readings.values.get("running_requests"), readings.values.get("waiting_requests")
    usage = readings.values.get("kv_usage_ratio")
    standing = {
        **dict.fromkeys(("running_last", "running_mean", "running_peak", "running_while_waiting"), running),
        **dict.fromkeys(("waiting_last", "waiting_recent_min"), waiting),
        **dict.fromkeys(("kv_usage_last_ratio", "kv_usage_mean_ratio", "kv_usage_peak_ratio"), usage),
    }
    truths: dict[Limit, set[Truth]] = {}
    for rule in rules.rules:
        if rule.limit is not None:
            truths.setdefault(rule.limit, set()).add(evaluate(rule, standing.get).truth)
    return frozenset(limit for limit in Limit if truths.get(limit) != {Truth.NO})
