"""The pages people read: a page a cause from its rule file, a line a signal from the catalogue."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from watchdog.facts.declared import DECLARED
from watchdog.resources import shipped_rules_directory
from watchdog.rule.reference import reference_document
from watchdog.rule.rule import RemedyRule, Rule
from watchdog.rule.rule_set import RuleSet, load
from watchdog.signals.catalogue import CATALOGUE, COMPARISONS, REMEMBERED, Comparison, Signal, signal_names
from watchdog.signals.promql import NOW, NoPromQL

_SEVERITY = {
    "critical": "Users are failed now: page somebody.",
    "warning": "Users feel it or soon will: look today.",
    "info": "Worth knowing; never pages, never leads.",
}


def cause_page(rule: Rule) -> str:
    """One cause as Markdown: what you see, what to do, what will not help, what it is not, how we know."""
    return "\n".join(_cause_lines(rule))


def causes_document(rules: RuleSet) -> str:
    """The page of all causes, the index first."""
    head = [
        "# Causes",
        "",
        "Made from the rule files by `make docs`; a test keeps it in step.",
        "`vllm-watchdog rules show ID` prints one cause.",
        "`{name:format}` stands for a value that the service puts in; [signals](signals.md) explains the names.",
        "A part in `[ ]` is left out if a value in it is unknown.",
        "",
        "| cause | severity | what it says |",
        "|---|---|---|",
    ]
    head += [f"| [{rule.id}](#{rule.id}) | {rule.severity} | {rule.title} |" for rule in rules.rules]
    pages = (cause_page(rule) for rule in rules.rules)
    return "\n".join([*head, "", *pages])


def signals_document() -> str:
    """The page of all signals, those that are facts last."""
    lines = [
        "# Signals",
        "",
        "Made from the catalogue by `make docs`; a test keeps it in step.",
        "Each is computed for one engine of one model over the last 30 s. A signal is unknown, never zero, where its",
        "metric is missing, its window too short, or too little was observed. A quantile beyond the last bucket of its",
        "histogram is a bound (`>= 20000`), and so is what is computed from it.",
        "",
        "Some are remembered: each calm stretch of 15 s to a minute keeps them, for eight hours. Stretches in which a",
        "warning or worse held, and the half minute before it, are left out. An ending to the name of a remembered",
        "signal asks for the past. PromQL has no such past.",
        "",
        "| ending | what it is |",
        "|---|---|",
        *map(_comparison_row, COMPARISONS.values()),
        "",
        f"Remembered are {', '.join(f'`{name}`' for name in sorted(REMEMBERED))}.",
        "",
        "The PromQL means the same, for a server that was up and scraped all the while: a test asks a real Prometheus",
        "over recordings of several versions. It agrees within 2 %, ages within one scrape interval, shares of time",
        "within what one scrape weighs in the window. It sums by `instance`, `model_name` and `engine`; where several",
        "jobs scrape one target, add `job`. Where nothing in PromQL means the same, the page says why.",
        "",
    ]
    declared = [signal for name, signal in sorted(CATALOGUE.items()) if name not in DECLARED]
    for signal in declared:
        lines += _signal_lines(signal)
    lines += [
        "## Facts",
        "",
        "What is known beside the counters of the page; clauses name it like any signal. No series shows it.",
        "",
        "| fact | unit | what it says |",
        "|---|---|---|",
    ]
    lines += [f"| `{one.name}` | {one.unit} | {one.description} |" for _, one in sorted(DECLARED.items())]
    return "\n".join(lines) + "\n"


def _comparison_row(one: Comparison) -> str:
    return f"| `_{one.name}` | {one.description} |"


def _signal_lines(signal: Signal) -> list[str]:
    match signal.formula.promql:
        case NoPromQL(reason=reason):
            text = [f"No PromQL: {reason}."]
        case query:
            text = ["```promql", query(NOW), "```"]
    return [f"## {signal.name}", "", f"{signal.description} Unit: {signal.unit}.", "", *text, ""]


def _cause_lines(rule: Rule) -> Iterator[str]:
    yield f"## {rule.id}"
    yield ""
    yield f"**{rule.title}.** Severity {rule.severity}. {_SEVERITY[rule.severity]}"
    if rule.raise_to:
        severity, clause = rule.raise_to
        yield f"It is {severity} where `{_flat(clause.text)}`."
    if rule.limit:
        yield f"While it holds, `{rule.limit}` is what limits throughput."
    yield ""
    yield f"*What it says:* {_flat(rule.cause)}"
    yield ""
    yield f"*What you see* (all must hold{_waits(rule)}):"
    yield ""
    yield from (f"- `{_flat(clause.text)}`" for clause in rule.when)
    yield from (f"- not `{_flat(clause.text)}`" for clause in rule.unless)
    yield ""
    if rule.lasts_while:
        clauses = " and ".join(f"`{_flat(clause.text)}`" for clause in rule.lasts_while)
        yield f"Once it fires it stays active while {clauses}."
        yield ""
    yield from _section("Where", (f"`{name}` is `{_flat(part.text)}`" for name, part in rule.where.items()))
    yield from _parameters(rule)
    yield from _section("What to do", map(_remedy, rule.remedies), numbered=True)
    yield from _section("What will not help", rule.unhelpful)
    yield from _section("What it is not", rule.false_positives)
    yield from _relations(rule)
    yield from _section("How we know", rule.references)


def _waits(rule: Rule) -> str:
    wait = f" for {rule.for_seconds:g} s" if rule.for_seconds else ""
    return f"{wait}; it ends after {rule.keep_firing_seconds:g} s of no" if rule.keep_firing_seconds else wait


def _parameters(rule: Rule) -> Iterator[str]:
    if not rule.parameters:
        return
    yield "| figure | value | why |"
    yield "|---|---|---|"
    for name, parameter in rule.parameters.items():
        yield f"| `{name}` | {parameter.value:g} {parameter.unit} | {_flat(parameter.why)} |"
    yield ""


def _remedy(remedy: RemedyRule) -> str:
    flag = f" (`{remedy.flag}`)" if remedy.flag and remedy.flag not in remedy.action else ""
    price = f" Trade-off: {_flat(remedy.price)}" if remedy.price else ""
    return f"{_flat(remedy.action)}{flag} {_flat(remedy.why)}{price}{_condition(remedy)}"


def _condition(remedy: RemedyRule) -> str:
    only = f"where `{_flat(remedy.when.text)}`" if remedy.when else ""
    never = f"not where `{_flat(remedy.unless.text)}`" if remedy.unless else ""
    both = ", ".join(part for part in (only, never) if part)
    return f" ({both})" if both else ""


def _relations(rule: Rule) -> Iterator[str]:
    if rule.explains:
        yield "*Explains:* " + ", ".join(f"[{other}](#{other})" for other in rule.explains) + "."
        yield ""
    if rule.explained_by:
        yield "*Explained by:* " + ", ".join(f"[{other}](#{other})" for other in rule.explained_by) + "."
        yield ""


def _section(title: str, items: Iterable[str], numbered: bool = False) -> Iterator[str]:
    lines = [_flat(item) for item in items]
    if not lines:
        return
    yield f"*{title}:*"
    yield ""
    for number, item in enumerate(lines, 1):
        yield f"{number}. {item}" if numbered else f"- {item}"
    yield ""


def _flat(text: str) -> str:
    return " ".join(text.split())


def main() -> None:
    """Writes the pages of the shipped rules: `python -m watchdog.rule.docs FOLDER`."""
    folder = Path(sys.argv[1])
    rules = load([shipped_rules_directory()], signal_names())
    (folder / "causes.md").write_text(causes_document(rules), encoding="utf-8")
    (folder / "signals.md").write_text(signals_document(), encoding="utf-8")
    (folder / "rule-keys.md").write_text(reference_document(), encoding="utf-8")


if __name__ == "__main__":
    main()
