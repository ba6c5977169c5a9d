"""`vllm-watchdog replay`: what would have been said over a recording, scrape by scrape."""

import textwrap
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter

from watchdog.cli.console import Form, FormOption, RulesOption, complain, progress, say, say_json
from watchdog.cli.prometheus import Stretch, scrapes_of, target_of, with_stretch
from watchdog.cli.rule_settings import rule_settings
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.errors import SourceError
from watchdog.http.url import redact_url
from watchdog.model import Evidence, Remedy, Scrape, Snapshot, Target
from watchdog.remedy.instruction import instruction
from watchdog.replay.replay import Episode, Moment, Replay, Story, replay
from watchdog.rule.in_force import load_rules
from watchdog.rule.rule_set import RuleSet
from watchdog.scrape.recording import INTERVAL_SLACK, Recording, read, thin
from watchdog.text import clock_text, one_line

WIDTH = 100
INDENT = 6
_EVIDENCE = TypeAdapter(tuple[Evidence, ...])
_REMEDIES = TypeAdapter(tuple[Remedy, ...])

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Example:\n\n  vllm-watchdog replay incident.jsonl.xz --interval 5 --format json | jq .incidents"
)
@with_stretch
def replay_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...", help="Recordings (.jsonl, .gz, .xz), .prom pages or folders of them."
        ),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(min=0.05, metavar="SECONDS", help="Take a scrape this often; every one if not given."),
    ] = None,
    form: FormOption = Form.TEXT,
    rules: RulesOption = None,
    prometheus: Stretch | None = None,
) -> None:
    """Runs the pipeline over recordings: when each cause was pending, fired, led and was over.

    Exit code 2 where a recording has not one good scrape.
    """
    rule_set = load_rules(rule_settings(rules))
    if not files and prometheus is None:
        raise typer.BadParameter(
            "give a recording, or --prometheus with --from and --to", param_hint="FILE..."
        )
    stories = [(file, *replay_file(file, interval, rule_set)) for file in files or ()]
    if prometheus is not None:
        stories += replay_stretch(prometheus, interval, rule_set)
    code = 0
    for file, recording, story in stories:
        if form is Form.JSON:
            say_json(as_json(file, recording, story))
        else:
            say("\n".join(as_text(file, recording, story)))
        if story.last is None or story.last.last_success_wall is None:
            complain(f"{file}: it has no successful scrape")
            code = 2
    raise typer.Exit(code)


def replay_file(file: Path, interval_seconds: float | None, rules: RuleSet) -> tuple[Recording, Replay]:
    """One recording through the pipeline; raises RecordingError where it cannot be read.

    One that breaks off is reported, and has only the phases that are in it whole.
    """
    cuts: list[str] = []
    recording, scrapes = read(file, cuts.append)
    if interval_seconds is not None:
        scrapes = thin(scrapes, interval_seconds)
    target = Target(recording.name, one_line(str(file)))
    with progress(f"replaying {recording.name}", None):
        story = replay(target, scrapes, rules)
    for cut in cuts:
        complain(cut)
        end = story.timeline[-1].wall if story.timeline else float("-inf")
        recording = replace(recording, phases=tuple(each for each in recording.phases if each.end <= end))
    return recording, story


def replay_stretch(
    asked: Stretch, interval_seconds: float | None, rules: RuleSet
) -> list[tuple[Path, Recording, Replay]]:
    """Each server of a stretch of a Prometheus through the pipeline, in the order of their names."""
    walked: dict[str, _Walked] = {}
    for name, labels, scrape in scrapes_of(asked):
        if name not in walked:
            walked[name] = _Walked(TargetDiagnosis(target_of(name, labels, asked.settings), rules))
        walked[name].take(scrape, interval_seconds)
    if not walked:
        raise SourceError(
            f"{redact_url(asked.settings.url)}: no vLLM server was scraped between --from and --to"
        )
    return [(Path(name), Recording(name, {}, 0.0, ()), walked[name].replay) for name in sorted(walked)]


class _Walked:
    """One server's story as its scrapes come."""

    def __init__(self, diagnosis: TargetDiagnosis) -> None:
        self._diagnosis = diagnosis
        self._story = Story()
        self._last: Snapshot | None = None

    def take(self, scrape: Scrape, interval_seconds: float | None) -> None:
        """The next scrape, unless it comes before the interval has passed."""
        least_seconds = (interval_seconds or 0.0) * (1 - INTERVAL_SLACK)
        if self._last is None or scrape.at - self._last.at >= least_seconds:
            self._last = self._diagnosis.observe(scrape)
            self._story.add(self._last)

    @property
    def replay(self) -> Replay:
        """All of it."""
        return Replay(tuple(self._story.timeline), tuple(self._story.episodes), self._last)


def as_json(file: Path, recording: Recording, story: Replay) -> dict[str, object]:
    """The story as programs read it."""
    return {
        "file": str(file),
        "name": recording.name,
        "scrapes": len(story.timeline),
        "timeline": [_moment_json(at) for at in story.timeline],
        "incidents": [_episode_json(episode) for episode in story.episodes],
    }


def _moment_json(at: Moment) -> dict[str, object]:
    return {
        "t": at.wall,
        "verdict": at.verdict,
        "lead": at.lead,
        "incidents": list(at.firing),
        "alarming": list(at.alarming),
    }


def _episode_json(episode: Episode) -> dict[str, object]:
    return {
        "rule": episode.key.rule,
        "severity": episode.severity,
        "labels": dict(episode.labels),
        "pending_at": episode.pending_at,
        "firing_at": episode.firing_at,
        "resolved_at": episode.resolved_at,
        "lead_from": episode.lead_from,
        "explained_by": list(episode.explained_by),
        "evidence": _EVIDENCE.dump_python(episode.evidence, mode="json"),
        "remedies": _REMEDIES.dump_python(episode.remedies, mode="json", exclude={"__all__": {"direction"}}),
    }


def as_text(file: Path, recording: Recording, story: Replay) -> list[str]:
    """The story as a person reads it: one line an incident, times from the recording's start."""
    if not story.timeline:
        return [f"{one_line(str(file))}: no scrape in it"]
    begin = story.timeline[0].wall
    lasted = story.timeline[-1].wall - begin
    lines = [f"{recording.name}: {len(story.timeline)} scrapes over {clock_text(lasted)} from {_date(begin)}"]
    for episode in sorted(story.episodes, key=lambda each: (each.firing_at, each.key)):
        lines += _episode_text(episode, begin)
    if not story.episodes:
        lines.append("  nothing fired")
    lines.append(f"  at its end: {story.timeline[-1].verdict}")
    return lines


def _episode_text(episode: Episode, begin: float) -> list[str]:
    over = "to its end" if episode.resolved_at is None else f"to {clock_text(episode.resolved_at - begin)}"
    role = _role(episode, begin)
    where = " ".join(episode.labels.get(name, "") for name in ("model_name", "engine")).strip()
    lines = [
        f"  {clock_text(episode.firing_at - begin)} {over:11} {episode.severity:8} {episode.key.rule}"
        + (f" ({where})" if where else "")
        + role
    ]
    points = [episode.cause]
    points += [f"because {evidence.text}" for evidence in episode.evidence]
    points += [f"do: {instruction(remedy)}" for remedy in episode.remedies]
    for point in points:
        lines += textwrap.wrap(
            point,
            WIDTH,
            initial_indent=" " * INDENT,
            subsequent_indent=" " * (INDENT + 2),
            break_on_hyphens=False,
        )
    return lines


def _role(episode: Episode, begin: float) -> str:
    if episode.lead_from is not None:
        return f", leads from {clock_text(episode.lead_from - begin)}"
    if episode.explained_by:
        return f", explained by {', '.join(episode.explained_by)}"
    return ""


def _date(wall: float) -> str:
    try:
        return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{wall:.0f} s"
