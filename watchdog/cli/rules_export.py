"""`vllm-watchdog rules export`: the rules as files for Prometheus or vmalert, and Alertmanager."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from watchdog import __version__
from watchdog.cli.console import RulesOption, parse_duration, say
from watchdog.cli.rule_settings import rule_settings
from watchdog.errors import WatchdogError
from watchdog.report.exported import Export, export, inhibitions, rule_file, summary, unit_tests
from watchdog.rule.in_force import load_rules

RULES, TESTS = "vllm-rules.yaml", "vllm-rules_test.yaml"
INHIBITION, SUMMARY = "vllm-inhibition.yaml", "vllm-rules.md"
SHORTEST_PACE, LONGEST_PACE = 5.0, 60.0


class Ruler(StrEnum):
    """Who runs the rules."""

    PROMETHEUS = "prometheus"
    VMALERT = "vmalert"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such, and no references between equal parts."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the form of PyYAML
        """Nothing is written as a reference."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def export_rules(
    form: Annotated[
        Ruler, typer.Option("--format", help="Who runs them; promtool's tests are for prometheus only.")
    ] = Ruler.PROMETHEUS,
    pace: Annotated[
        float,
        typer.Option(
            "--pace",
            parser=parse_duration,
            metavar="DURATION",
            help="How often it scrapes vLLM, such as 15s.",
        ),
    ] = 30.0,
    runbooks: Annotated[
        str, typer.Option(help="What stands before a cause's id in runbook_url.")
    ] = "docs/causes.md#",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="A folder for all files; without it the rules are printed."
        ),
    ] = None,
    more: RulesOption = None,
) -> None:
    """Writes the causes that PromQL can carry as recording and alerting rules, with tests and inhibition."""
    if not SHORTEST_PACE <= pace <= LONGEST_PACE or pace != int(pace):
        raise WatchdogError(
            f"--pace {pace:g}s: give whole seconds from {SHORTEST_PACE:g} to {LONGEST_PACE:g}; "
            "slower scrapes see too little of a cause"
        )
    made = export(load_rules(rule_settings(more)), int(pace), runbooks)
    if output is None:
        say(_yaml(rule_file(made), made).rstrip())
        return
    files = {
        RULES: _yaml(rule_file(made), made),
        INHIBITION: _yaml(inhibitions(made), made),
        SUMMARY: summary(made),
    }
    if form is Ruler.PROMETHEUS:
        files[TESTS] = _yaml(unit_tests(made, RULES), made)
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (output / name).write_text(text)
    except OSError as error:
        raise WatchdogError(f"{output}: {error.strerror}; choose another folder with --output") from None
    say(
        f"{len(made.carried)} causes written to {output}, {len(made.left_behind)} left out: {SUMMARY} says why"
    )


def _yaml(data: Mapping[str, Any], made: Export) -> str:
    head = f"# Made by vllm-watchdog {__version__} rules export, for scrapes every {made.pace} s.\n"
    return head + yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, width=110)
