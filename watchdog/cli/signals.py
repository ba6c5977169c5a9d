"""`vllm-watchdog signals`: every number that a rule may name, and what it is on a server now."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

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
from watchdog.cli.source import Source, open_source
from watchdog.diagnosis.judge import Case
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.facts.declared import DECLARED
from watchdog.history.number import Bound
from watchdog.model import Scope, Subject
from watchdog.rule.in_force import load_rules
from watchdog.rule.rule_set import RuleSet
from watchdog.signals.absence import why_unknown
from watchdog.signals.catalogue import CATALOGUE, Signal, described, signal_names
from watchdog.text import number_text

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True)
class Value:
    """What a signal is for one subject: None with the reason where it is unknown."""

    subject: Subject
    value: float | None
    reason: str


@app.command(
    epilog="Examples:\n\n  vllm-watchdog signals --match kv_usage\n\n"
    "  vllm-watchdog signals http://localhost:8000 --for 1m"
)
def signals(
    what: Annotated[
        str | None, typer.Argument(metavar="FILE|URL", help="A recording, or a server to watch.")
    ] = None,
    match: Annotated[
        str, typer.Option("--match", metavar="TEXT", help="Only signals with this in their name.")
    ] = "",
    duration: ForOption = 30.0,
    interval: IntervalOption = 2.0,
    config: ConfigOption = None,
    more: RulesOption = None,
    form: FormOption = Form.TEXT,
) -> None:
    """Lists every signal that a rule may name: its unit, its meaning, and its value now.

    "Now" is the end of a recording, or of the time for which a server is watched. Without either there are no
    values. Exit code 2 where no page of vLLM was read.
    """
    chosen = [described(name) for name in _ordered() if match in name]
    if not chosen:
        complain(f"no signal has {match!r} in its name")
        raise typer.Exit(1)
    if what is None:
        _say(chosen, None, form)
        return
    rules = load_rules(rule_settings(more, config))
    with open_source(what, config, interval, duration) as source:
        now = _Now(source, rules)
        now.run()
    _say(chosen, now.values_of, form)
    if not now.has_engines:
        complain(f"{what}: no page of vLLM was read")
        raise typer.Exit(2)


def _ordered() -> list[str]:
    """The names in the order of the catalogue, those of comparisons with the past last."""
    return [*CATALOGUE, *sorted(signal_names() - CATALOGUE.keys())]


class _Now:
    """The signals of each subject as they were judged last."""

    def __init__(self, source: Source, rules: RuleSet) -> None:
        self._source = source
        self._diagnosis = TargetDiagnosis(source.target, rules, listener=self._hear)
        self._engines: dict[Subject, Case] = {}
        self._whole: Case | None = None
        self._is_on_page: Callable[[str], bool] = lambda _metric: False

    @property
    def has_engines(self) -> bool:
        """Whether a page of vLLM was read."""
        return bool(self._engines)

    def run(self) -> None:
        """Takes every scrape of the source."""
        for scrape in self._source.scrapes:
            self._engines.clear()
            self._diagnosis.observe(scrape)

    def values_of(self, name: str) -> list[Value]:
        """The signal for each engine; a fact that only the whole server has, for that."""
        found = [self._value(name, case) for case in self._engines.values()]
        if name in DECLARED and self._whole is not None and all(each.value is None for each in found):
            whole = self._value(name, self._whole)
            return [whole] if whole.value is not None else found or [whole]
        return found

    def _value(self, name: str, case: Case) -> Value:
        value = case.signals[name]
        reason = "" if value is not None else why_unknown(name, case.signals, self._is_on_page)
        return Value(case.subject, value, reason)

    def _hear(self, scope: Scope, case: Case, is_on_page: Callable[[str], bool]) -> None:
        self._is_on_page = is_on_page
        if scope is Scope.ENGINE:
            self._engines[case.subject] = case
        else:
            self._whole = case


def _say(chosen: Sequence[Signal], values_of: Callable[[str], list[Value]] | None, form: Form) -> None:
    if form is Form.JSON:
        for signal in chosen:
            say_json(_json(signal, values_of))
        return
    rows = [_cells(signal, values_of) for signal in chosen]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        padded = [f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)]
        say("  ".join(padded).rstrip())


def _json(signal: Signal, values_of: Callable[[str], list[Value]] | None) -> dict[str, object]:
    found: dict[str, object] = {
        "name": signal.name,
        "unit": signal.unit,
        "description": signal.description,
    }
    if values_of is not None:
        found["values"] = [_value_json(each) for each in values_of(signal.name)]
    return found


def _cells(signal: Signal, values_of: Callable[[str], list[Value]] | None) -> tuple[str, ...]:
    if values_of is None:
        return signal.name, signal.unit, signal.description
    values = values_of(signal.name)
    told = [number_text(each.value) for each in values]
    if len(values) > 1:
        told = [f"{each.subject.engine or '-'}: {text}" for each, text in zip(values, told, strict=True)]
    reasons = dict.fromkeys(each.reason for each in values if each.reason)
    why = f" [{'; '.join(reasons)}]" if reasons else ""
    return signal.name, ", ".join(told) or "unknown", signal.unit, signal.description + why


def _value_json(found: Value) -> dict[str, object]:
    """A bound is written as text: ">= 20"."""
    value = number_text(found.value) if isinstance(found.value, Bound) else found.value
    row: dict[str, object] = {
        "model_name": found.subject.model_name,
        "engine": found.subject.engine,
        "value": value,
    }
    return row | ({"unknown": found.reason} if found.reason else {})
