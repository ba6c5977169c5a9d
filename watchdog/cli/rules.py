"""`vllm-watchdog rules`: what causes are looked for, and whether rules (also your own) hold."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from watchdog.cli.console import (
    ConfigOption,
    Form,
    FormOption,
    ForOption,
    IntervalOption,
    RulesOption,
    complain,
    say,
    say_json,
)
from watchdog.cli.rule_settings import rule_settings
from watchdog.cli.rules_export import export_rules
from watchdog.errors import RuleError, WatchdogError
from watchdog.model import Scope
from watchdog.rule.docs import cause_page
from watchdog.rule.in_force import load_rules
from watchdog.rule.own_tests import RuleTestResult, test_rule
from watchdog.rule.rule import Rule
from watchdog.rule.rule_set import RuleSet, lacking_tests
from watchdog.settings.model import RuleSettings
from watchdog.text import nearest

if TYPE_CHECKING:
    from watchdog.replay.score import PhaseScore, Totals

app = typer.Typer(
    add_completion=False,
    help="Lists, shows, explains, tests, checks, exports and scores rules.",
    no_args_is_help=True,
    epilog="Examples:\n\n  vllm-watchdog rules show kv-pool-exhausted\n\n  vllm-watchdog rules test ./mine",
)


@app.command("list")
def list_rules(more: RulesOption = None, form: FormOption = Form.TEXT) -> None:
    """Lists the rules in force."""
    rules = load_rules(rule_settings(more)).rules
    if form is Form.JSON:
        say_json([{"id": rule.id, "title": rule.title, "severity": rule.severity} for rule in rules])
        return
    widest = max((len(rule.id) for rule in rules), default=0)
    for rule in rules:
        say(f"{rule.id:{widest}}  {rule.severity:8}  {rule.title}")


@app.command()
def show(
    identity: Annotated[str, typer.Argument(metavar="ID", help="A rule's id, as `rules list` prints it.")],
    more: RulesOption = None,
) -> None:
    """Shows one rule: what it looks at, what it says, what to do, and how it can be wrong."""
    rules = load_rules(rule_settings(more))
    page = cause_page(_rule_of(rules, identity))
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415 - for a terminal only
        from rich.markdown import Markdown  # noqa: PLC0415

        Console().print(Markdown(page))
    else:
        say(page)


@app.command()
def explain(
    identity: Annotated[str, typer.Argument(metavar="ID", help="A rule's id, as `rules list` prints it.")],
    what: Annotated[str, typer.Argument(metavar="FILE|URL", help="A recording, or a server to watch.")],
    duration: ForOption = 30.0,
    interval: IntervalOption = 2.0,
    config: ConfigOption = None,
    more: RulesOption = None,
    form: FormOption = Form.TEXT,
) -> None:
    """Explains why a rule fired or stayed silent: each clause over time, its values, what was unknown and why."""
    from watchdog.cli.explain import explanation_json, explanation_text  # noqa: PLC0415 - only this command
    from watchdog.cli.source import open_source  # noqa: PLC0415 - needs the pipeline
    from watchdog.replay.explanation import Explainer  # noqa: PLC0415

    rules = load_rules(rule_settings(more, config))
    rule = _rule_of(rules, identity)
    if rule.scope is Scope.FLEET:
        raise WatchdogError(
            f"{identity} compares the servers of a fleet, so one server cannot explain it; "
            f"`rules show {identity}` prints what it looks at"
        )
    with open_source(what, config, interval, duration) as source:
        explainer = Explainer(source.target, rules, rule)
        for scrape in source.scrapes:
            explainer.observe(scrape)
    found = explainer.explanation()
    if form is Form.JSON:
        say_json(explanation_json(found))
    else:
        say("\n".join(explanation_text(found)))
    if not found.subjects:
        raise typer.Exit(2)


@app.command("test")
def run_tests(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with rule files.")],
    recordings: Annotated[
        Path | None,
        typer.Option(
            "--recordings",
            metavar="DIR",
            help="Where the recordings are that tests point at; `recordings` in the folder if not given.",
        ),
    ] = None,
    form: FormOption = Form.TEXT,
) -> None:
    """Runs the tests that the rules of a folder carry; exit code 1 where one fails or is missing."""
    rule_set = load_rules(_with_shipped(folder, allow_untested=True))
    rules = tuple(rule for rule in rule_set.rules if _lies_in(rule, folder))
    results = [result for rule in rules for result in test_rule(rule)]
    pointing = sum(bool(test.recording) for rule in rules for test in rule.tests)
    where = recordings or folder / "recordings"
    skipped = pointing if recordings is None and not where.is_dir() else 0
    if pointing and not skipped:
        from watchdog.cli.recorded import run_recorded  # noqa: PLC0415 - needs the pipeline

        results += run_recorded(rules, where, rule_set)
    failed = [result for result in results if not result.passed]
    untested = [] if rule_settings(None).allow_untested else list(filter(None, map(lacking_tests, rules)))
    if form is Form.JSON:
        for result in results:
            say_json({"rule": result.rule, "test": result.test, "problems": list(result.problems)})
    else:
        for line in _result_lines(results):
            say(line)
        say(f"{len(results) - len(failed)} of {len(results)} tests pass")
    if skipped:
        complain(
            f"{skipped} of the tests point at recordings and did not run; --recordings DIR says where those are"
        )
    for each in untested:
        complain(f"{each}, and is refused until it has")
    raise typer.Exit(1 if failed or untested else 0)


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with rule files.")],
) -> None:
    """Checks the rule files of a folder as the service would at its start; exit code 1 names every fault.

    It is stricter than the service: it also refuses a flag that vLLM does not have, remedies in an order that
    contradicts itself, a threshold that is no parameter, and a clause that is too long to read.
    """
    from watchdog.remedy.lint import lint  # noqa: PLC0415 - only this command needs the remedies

    try:
        rules = load_rules(_with_shipped(folder), lint)
    except RuleError as error:
        complain(str(error))
        raise typer.Exit(1) from None
    count = sum(_lies_in(rule, folder) for rule in rules.rules)
    say("1 rule is valid" if count == 1 else f"{count} rules are valid")


@app.command()
def schema() -> None:
    """Prints the JSON Schema of a rule file, with which editors complete and check it."""
    from watchdog.rule.reference import json_schema  # noqa: PLC0415 - only this command

    say(json.dumps(json_schema(), indent=2))


app.command("export", epilog="Example:\n\n  vllm-watchdog rules export --pace 15s --output ./alerts")(
    export_rules
)


@app.command("score")
def score_recordings(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Recordings with labelled phases in them.")
    ],
    interval: Annotated[
        float | None,
        typer.Option(min=0.05, metavar="SECONDS", help="Take a scrape this often; every one if not given."),
    ] = 5.0,
    more: RulesOption = None,
    form: FormOption = Form.TEXT,
) -> None:
    """Scores the rules on labelled recordings: is the true cause the lead, how soon, and is calm quiet?

    Exit code 1 where a cause was missed or an alarm was false. A label is a rule's id, or one of healthy,
    idle, healthy-busy, healthy-bursty, prefill-chunked (nothing may fire) and recovery (not judged).
    """
    from watchdog.cli.replay import replay_file  # noqa: PLC0415 - only this command needs the pipeline
    from watchdog.replay.score import score, totals  # noqa: PLC0415

    rules = load_rules(rule_settings(more))
    known = {rule.id for rule in rules.rules}
    scores: list[PhaseScore] = []
    for file in files:
        recording, story = replay_file(file, interval, rules)
        of_file = score(recording.name, recording.phases, story.timeline, known)
        scores += of_file
        for phase in of_file:
            _say_score(phase, form)
        if not of_file:
            complain(f"{file}: no labelled phase in it")
    summary = totals(scores)
    if form is Form.JSON:
        say_json({"totals": asdict(summary)})
    else:
        say(_totals_text(summary))
    raise typer.Exit(0 if summary.perfect else 1)


def _rule_of(rules: RuleSet, identity: str) -> Rule:
    rule = rules.find(identity)
    if rule is None:
        near = nearest(identity, [each.id for each in rules.rules])
        raise WatchdogError(
            f"there is no rule {identity!r}" + (f" ({near})" if near else "; `rules list` names them all")
        )
    return rule


def _with_shipped(folder: Path, allow_untested: bool = False) -> RuleSettings:
    """A user's rules may explain ours, so both are read, unless the settings leave ours out."""
    shipped = rule_settings(None).shipped
    return RuleSettings(directories=[folder], shipped=shipped, allow_untested=allow_untested)


def _lies_in(rule: Rule, folder: Path) -> bool:
    return rule.path.parent.resolve() == folder.resolve()


def _result_lines(results: Sequence[RuleTestResult]) -> Iterator[str]:
    for result in results:
        yield f"{'pass' if result.passed else 'FAIL'}  {result.rule}: {result.test}"
        yield from (f"      {problem}" for problem in result.problems)


def _say_score(phase: "PhaseScore", form: Form) -> None:
    if form is Form.JSON:
        say_json(
            {
                "recording": phase.recording,
                "label": phase.label,
                "outcome": phase.outcome,
                "named_after_seconds": phase.named_after_seconds,
                "held_share": phase.held_share,
                "rules": list(phase.rules),
                "misled_by": list(phase.misled_by),
            }
        )
    else:
        say(f"{phase.recording:36} {phase.label:26} {_score_text(phase)}")


def _score_text(phase: "PhaseScore") -> str:
    rules = ", ".join(phase.rules)
    if phase.named_after_seconds is not None:
        return (
            f"{phase.outcome} after {phase.named_after_seconds:.0f} s, held {phase.held_share:.0%}: {rules}"
        )
    return f"{phase.outcome}: {rules}" if rules else str(phase.outcome)


def _totals_text(summary: "Totals") -> str:
    lines = [f"causes named       {summary.named} of {summary.causes} (listed: {summary.listed})"]
    lines.append(f"another lead at times {summary.misled} of {summary.causes}")
    lines.append(f"calm phases quiet  {summary.quiet} of {summary.calm}")
    middle, longest = summary.median_seconds, summary.longest_seconds
    if middle is not None and longest is not None:
        lines.append(f"seconds to name    {middle:.0f} (median), {longest:.0f} (longest)")
    if summary.no_such_rule:
        lines.append(f"labels that no rule knows: {summary.no_such_rule}, not counted")
    return "\n".join(lines)
