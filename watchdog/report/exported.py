"""The rules as Prometheus and vmalert run them: a file of rules, its tests, inhibition, and what stays behind."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from watchdog.history.number import finite
from watchdog.language.expression import Expression
from watchdog.model import Scope, Severity, Truth
from watchdog.notify.alert import alert_name
from watchdog.rule.promql import EVERY_ENGINE, Engines, Translator
from watchdog.rule.rule import Rule, RuleTest, evaluate
from watchdog.rule.rule_set import RuleSet
from watchdog.signals.catalogue import CATALOGUE, compared_signal
from watchdog.signals.promql import NoPromQL, Stretch
from watchdog.text import seconds_text

PREFIX = "vllm_watchdog:"
GROUP = "vllm-watchdog-exported"
# As the service widens its windows where scrapes are rare: what it takes to see a rate, and a queue that stands.
_WINDOW_SCRAPES, _RECENT_SCRAPES = 3, 2
_LIFE_SECONDS = 660
# Between two evaluations of promtool's tests: every rule is evaluated in every test, the signals in them stand still.
_TEST_SECONDS = 60
_ENGINE_LABELS = ("instance", "model_name", "engine")
ENGINES = "count by (instance, model_name, engine) (vllm:num_requests_running) > bool 0"
# What the owner of a server says of it in the service's settings; a rule judges without it where it is not said.
_SETTINGS = frozenset(
    {"batch_jobs", "ttft_objective_seconds", "itl_objective_seconds", "e2e_objective_seconds"}
    | {"expected_shared_prefix_tokens"}
)


@dataclass(frozen=True, slots=True)
class Carried:
    """A rule that PromQL can carry: the queries by severity, the mildest first, and what it gives up."""

    rule: Rule
    queries: Mapping[Severity, str]
    signals: tuple[str, ...]
    gives_up: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """What names the one that it speaks of."""
        return _ENGINE_LABELS if self.rule.scope is Scope.ENGINE else ("instance",)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A rule that PromQL cannot carry, and why."""

    rule: Rule
    reason: str


@dataclass(frozen=True, slots=True)
class Export:
    """All rules at one pace of scrapes, in seconds."""

    pace: int
    carried: tuple[Carried, ...] = ()
    left_behind: tuple[LeftBehind, ...] = ()
    runbooks: str = field(default="")

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that the carried rules read."""
        return tuple(sorted({name for one in self.carried for name in one.signals}))


def export(rules: RuleSet, pace: int, runbooks: str) -> Export:
    """The rules for servers that are scraped every `pace` seconds; a rule's id behind `runbooks` is its page."""
    carried, left = [], []
    for rule in rules.rules:
        found = _carried(rule)
        if isinstance(found, Carried):
            carried.append(found)
        else:
            left.append(found)
    return Export(pace, tuple(carried), tuple(left), runbooks)


def stretch_of(pace: int) -> Stretch:
    """The windows of signals at that pace."""
    return Stretch(
        max(30, _WINDOW_SCRAPES * pace),
        max(15, _RECENT_SCRAPES * pace),
        _LIFE_SECONDS,
        step=max(1, pace // 3),
    )


def series_of(name: str) -> str | None:
    """The recorded series of a signal; None where PromQL cannot say it."""
    return None if reason_of(name) else PREFIX + name


def reason_of(name: str) -> str:
    """Why PromQL cannot say a signal; empty where it can."""
    if compared_signal(name) is not None:
        return "PromQL keeps no past under a like load"
    formula = CATALOGUE[name].formula
    is_said = formula.nearest_query() is not None
    return formula.promql.reason if isinstance(formula.promql, NoPromQL) and not is_said else ""


def _is_estimated(name: str) -> bool:
    """Whether PromQL says a signal only as it is known where the page lacks its best source."""
    if series_of(name) is None:
        return False
    return isinstance(CATALOGUE[name].formula.promql, NoPromQL)


def signal_query(name: str, stretch: Stretch, every_engine: str = EVERY_ENGINE) -> str:
    """A signal's PromQL for each engine; what the process as a whole shows stands at each of its engines."""
    query = CATALOGUE[name].formula.nearest_query(stretch)
    assert query is not None, name  # noqa: S101 - only those that PromQL can say are asked for
    if "instance, model_name, engine" in query:
        return query
    return f"{every_engine} * on (instance) group_left () ({query})"


def _carried(rule: Rule) -> Carried | LeftBehind:
    if rule.severity is Severity.INFO:
        return LeftBehind(rule, "info: it never pages")
    if rule.scope is Scope.FLEET:
        return LeftBehind(rule, "it compares servers with each other")
    query = Translator(series_of).rule(rule)
    lacking = _lacking([*rule.when])
    if isinstance(query, bool):
        return LeftBehind(rule, f"it needs {_with_reasons(lacking)}")
    guards = _lacking(rule.unless)
    if guards:
        return LeftBehind(
            rule, f"without a guard it would raise false alarms: the guard needs {_with_reasons(guards)}"
        )
    queries: dict[Severity, str] = {rule.severity: _scoped(rule, query)}
    gives_up = []
    if lacking:
        gives_up.append(f"detection by {_named(lacking)}")
    read = list(dict.fromkeys(name for clause in (*rule.when, *rule.unless) for name in clause.names))
    if estimated := [name for name in read if _is_estimated(name)]:
        gives_up.append(f"exact values of {_named(estimated)}: it estimates them")
    if rule.raise_to is not None:
        severity, clause = rule.raise_to
        graver = Translator(series_of).clause(clause).yes
        if isinstance(graver, str):
            queries[severity] = _scoped(rule, f"({query})\nand\n({graver})")
        elif graver is False:
            gives_up.append(f"the escalation to {severity}")
    graver_names = rule.raise_to[1].names if rule.raise_to else ()
    signals = tuple(name for name in dict.fromkeys((*read, *graver_names)) if series_of(name))
    return Carried(rule, queries, signals, tuple(gives_up))


def _scoped(rule: Rule, query: Engines) -> str:
    text = str(query)
    return (
        text
        if rule.scope is Scope.ENGINE
        else f"max by (instance) (\n  {text.replace(chr(10), chr(10) + '  ')}\n)"
    )


def _lacking(clauses: Iterable[Expression]) -> list[str]:
    """The signals of clauses that PromQL cannot say, but for what settings say."""
    names = dict.fromkeys(name for clause in clauses for name in clause.names)
    return [name for name in names if name not in _SETTINGS and reason_of(name)]


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _with_reasons(names: Sequence[str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for name in names:
        by_reason.setdefault(reason_of(name).removeprefix(f"`{name}` is "), []).append(name)
    return (
        "; ".join(f"{_named(of)} ({reason})" for reason, of in by_reason.items())
        or "values from the settings"
    )


def rule_file(made: Export) -> dict[str, Any]:
    """The file that Prometheus and vmalert load, as plain data."""
    stretch = stretch_of(made.pace)
    recorded = [{"record": EVERY_ENGINE, "expr": ENGINES}] + [
        {"record": PREFIX + name, "expr": signal_query(name, stretch)} for name in made.signals
    ]
    alerts = [alert for one in made.carried for alert in _alerts(one, made)]
    return {"groups": [{"name": GROUP, "interval": f"{made.pace}s", "rules": recorded + alerts}]}


def _alerts(one: Carried, made: Export) -> Iterator[dict[str, Any]]:
    rule = one.rule
    for severity, query in one.queries.items():
        alert: dict[str, Any] = {"alert": alert_name(rule.id), "expr": query}
        if rule.for_seconds:
            alert["for"] = f"{ceil(rule.for_seconds)}s"
        if rule.keep_firing_seconds:
            alert["keep_firing_for"] = f"{ceil(rule.keep_firing_seconds)}s"
        alert["labels"] = {"severity": str(severity), "rule": rule.id}
        alert["annotations"] = _annotations(one, made)
        yield alert


def _annotations(one: Carried, made: Export) -> dict[str, str]:
    where = "{{ $labels.instance }}"
    if one.rule.scope is Scope.ENGINE:
        where += " engine {{ $labels.engine }}"
    clauses = "; ".join(_flat(clause.text) for clause in one.rule.when)
    return {
        "summary": f"{one.rule.title} ({where})",
        "description": f"{one.rule.title}: {clauses}.",
        "remedy": _first_remedy(one.rule),
        "runbook_url": f"{made.runbooks}{one.rule.id}",
    }


def _first_remedy(rule: Rule) -> str:
    """The first thing to do that needs no numbers and no condition, else the first of those that need no numbers."""
    plain = [each for each in rule.remedies if each.action.plain is not None]
    chosen = next((each for each in plain if not (each.when or each.unless)), next(iter(plain), None))
    if chosen is None:
        return "See the runbook."
    flag = f"{chosen.flag}: " if chosen.flag and chosen.flag not in chosen.action else ""
    return _flat(f"{flag}{chosen.action}").replace("{{", "{ {")


def _flat(text: str) -> str:
    return " ".join(text.split())


def inhibitions(made: Export) -> dict[str, Any]:
    """What Alertmanager holds back: symptoms beside their cause, and the milder of two severities."""
    carried = {one.rule.id: one for one in made.carried}
    rules = []
    for one in made.carried:
        for labels in (_ENGINE_LABELS, ("instance",)):
            explained = [
                other
                for other in one.rule.explains
                if other in carried and _common(one, carried[other]) == labels
            ]
            if explained:
                rules.append(
                    {
                        "source_matchers": [f'rule = "{one.rule.id}"'],
                        "target_matchers": [f'rule =~ "{"|".join(sorted(explained))}"'],
                        "equal": list(labels),
                    }
                )
    rules.append(
        {
            "source_matchers": ['severity = "critical"'],
            "target_matchers": ['severity = "warning"'],
            "equal": ["alertname", *_ENGINE_LABELS],
        }
    )
    return {"inhibit_rules": rules}


def _common(one: Carried, other: Carried) -> tuple[str, ...]:
    return _ENGINE_LABELS if one.labels == other.labels == _ENGINE_LABELS else ("instance",)


def unit_tests(made: Export, file_name: str) -> dict[str, Any]:
    """The rules' own tests as promtool runs them, over the signals that are carried: each is an instance."""
    return {
        "rule_files": [file_name],
        "evaluation_interval": f"{_TEST_SECONDS}s",
        "tests": [_unit_test(one, made) for one in made.carried],
    }


def _unit_test(one: Carried, made: Export) -> dict[str, Any]:
    wait = ceil(one.rule.for_seconds) + 2 * _TEST_SECONDS
    given = [test for test in one.rule.tests if test.recording is None]
    series = {text: value for test in given for text, value in _series(one, test).items()}
    return {
        "name": one.rule.id,
        "interval": f"{_TEST_SECONDS}s",
        "input_series": [
            {"series": text, "values": f"{value:.12g}+0x{wait // _TEST_SECONDS + 2}"}
            for text, value in series.items()
        ],
        "alert_rule_test": [
            {
                "eval_time": f"{wait}s",
                "alertname": alert_name(one.rule.id),
                "exp_alerts": [alert for test in given for alert in _expected(one, test, made)],
            }
        ],
    }


def _series(one: Carried, test: RuleTest) -> dict[str, float]:
    """The recorded signals that an own test gives, by their series."""
    inside = ",".join(f'{name}="{value}"' for name, value in _tested(test).items())
    values = {EVERY_ENGINE: 1.0} | {
        PREFIX + name: value for name, value in test.signals.items() if name in one.signals
    }
    return {f"{name}{{{inside}}}": value for name, value in values.items()}


def _expected(one: Carried, test: RuleTest, made: Export) -> Iterator[dict[str, Any]]:
    """The alerts of an own test: what the service says where it knows no more than what is carried."""
    rule = one.rule
    given = {name: value for name, value in test.signals.items() if name in one.signals}
    judged = evaluate(rule, lambda name: finite(given.get(name)))
    if judged.truth is not Truth.YES:
        return
    labels = _tested(test)
    for severity in dict.fromkeys((rule.severity, judged.severity)):
        if severity in one.queries:
            yield {
                "exp_labels": {
                    **{name: labels[name] for name in one.labels},
                    "severity": str(severity),
                    "rule": rule.id,
                },
                "exp_annotations": {
                    name: text.replace("{{ $labels.instance }}", labels["instance"]).replace(
                        "{{ $labels.engine }}", labels["engine"]
                    )
                    for name, text in _annotations(one, made).items()
                },
            }


def _tested(test: RuleTest) -> dict[str, str]:
    name = "".join(each if each.isalnum() else " " for each in test.name)
    return {"instance": _flat(name), "model_name": "m", "engine": "0"}


def summary(made: Export) -> str:
    """What is carried and what it gives up, what is not and why, as Markdown."""
    stretch = stretch_of(made.pace)
    lines = [
        f"Scrapes every {seconds_text(made.pace)}: windows of {seconds_text(stretch.window)}.",
        "",
        "| exported | severity | what it loses |",
        "| --- | --- | --- |",
        *(
            f"| `{one.rule.id}` | {', '.join(one.queries)} | {'; '.join(one.gives_up) or 'nothing more'} |"
            for one in made.carried
        ),
        "",
        "| left out | why |",
        "| --- | --- |",
        *(f"| `{one.rule.id}` | {one.reason} |" for one in made.left_behind),
    ]
    return "\n".join(lines) + "\n"
