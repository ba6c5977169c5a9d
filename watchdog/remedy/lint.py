"""What works in a rule but is a mistake: flags that vLLM does not have, an order that contradicts itself."""

from collections.abc import Iterator

from watchdog.facts.flags import all_flags, find_flag
from watchdog.remedy.order import check_order
from watchdog.rule.rule import Complaint, Rule
from watchdog.text import nearest


def lint(rule: Rule) -> Iterator[Complaint]:
    """Every complaint about a rule, in the order of its file."""
    yield from check_order(rule)
    yield from unknown_flags(rule)


def unknown_flags(rule: Rule) -> Iterator[Complaint]:
    """The flags in remedies and in the rule's own tests that the table of flags does not have."""
    for index, remedy in enumerate(rule.remedies):
        if remedy.flag:
            yield from _unknown(("remedies", index, "flag"), remedy.flag)
    for index, test in enumerate(rule.tests):
        for flag in test.remedy:
            yield from _unknown(("tests", index, "remedy", flag), flag)
        for position, flag in enumerate(test.not_offered):
            yield from _unknown(("tests", index, "not_offered", position), flag)


def _unknown(path: tuple[str | int, ...], flag: str) -> Iterator[Complaint]:
    if find_flag(flag) is None:
        hint = nearest(flag, all_flags()) or "no known version of vLLM has it"
        yield Complaint(path, f"no flag of vLLM is named `{flag}`", hint)
