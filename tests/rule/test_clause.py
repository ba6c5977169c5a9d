"""Clauses as people write them in a rule file: groups, named parts, and what explains what from either side."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.errors import Fault, RuleError
from watchdog.language.expression import join, parse
from watchdog.model import Truth
from watchdog.rule.rule import Rule, evaluate
from watchdog.rule.rule_set import RuleOverride, RuleSet, load

SIGNALS = frozenset({"a", "b", "c", "a_baseline"})
RULE = """
id: {id}
title: It is so
severity: warning
parameters:
  most: {{value: 3, unit: requests, why: "so it is"}}
{body}
cause: "a is {{a:.0f}} of {{most:.0f}}."
"""


def read(tmp_path: Path, body: str, strict: bool = False) -> Rule:
    return several(tmp_path, strict=strict, mine=body).by_id("mine")


def several(tmp_path: Path, strict: bool = False, disabled: str = "", **bodies: str) -> RuleSet:
    for name, body in bodies.items():
        (tmp_path / f"{name}.yaml").write_text(RULE.format(id=name, body=body))
    overrides = {disabled: RuleOverride(enabled=False)} if disabled else {}
    return load(
        [tmp_path], SIGNALS, overrides, allow_untested=True, check=(lambda _rule: ()) if strict else None
    )


def faults(tmp_path: Path, body: str, strict: bool = False) -> list[Fault]:
    with pytest.raises(RuleError) as caught:
        read(tmp_path, body, strict)
    return list(caught.value.faults)


def only(tmp_path: Path, body: str, strict: bool = False) -> Fault:
    [fault] = faults(tmp_path, body, strict)
    return fault


def pointed_at(fault: Fault) -> str:
    """The line of the file from the caret on."""
    line, caret = fault.snippet.splitlines()
    return line[caret.index("^") :]


def answer(rule: Rule, **values: float) -> Truth:
    return evaluate(rule, values.get).truth


GROUP = """
when:
  - any:
      - a > most
      - all:
          - b > 1
          - any: [c > 1, c < 0 and a == 0]
"""


def test_a_group_is_the_clause_that_people_wrote_before(tmp_path: Path) -> None:
    [clause] = read(tmp_path, GROUP).when
    assert clause.text == "a > most or (b > 1 and (c > 1 or (c < 0 and a == 0)))"
    assert clause.names == ("a", "b", "c")
    assert clause.parameters == {"most": 3.0}


def test_of_a_group_the_alternatives_that_hold_are_the_evidence(tmp_path: Path) -> None:
    rule = read(tmp_path, GROUP)
    found = evaluate(rule, {"a": 0.0, "b": 2.0, "c": -1.0}.get)
    assert found.truth is Truth.YES
    assert [each.text for each in found.evidence] == ["b (2) > 1 and c (-1) < 0 and a (0) == 0"]
    assert answer(rule, a=0, b=2) is Truth.UNKNOWN
    assert answer(rule, a=5) is Truth.YES


CLAUSES = st.sampled_from(
    ["a > 1", "b < 2", "not a == b", "a > 1 or b > 1", "known(a) and b > 0", "0 < a < 2"]
)
VALUES = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from([-1.0, 0.0, 1.0, 2.0, 3.0]))


@given(st.lists(CLAUSES, min_size=2, max_size=4), st.sampled_from(["and", "or"]), VALUES)
def test_a_group_answers_as_its_clauses_together(
    texts: list[str], word: str, values: dict[str, float]
) -> None:
    clauses = [parse(text, SIGNALS) for text in texts]
    truths = [clause.truth(values.get) for clause in clauses]
    decisive, other = (Truth.NO, Truth.YES) if word == "and" else (Truth.YES, Truth.NO)
    expected = decisive if decisive in truths else Truth.UNKNOWN if Truth.UNKNOWN in truths else other
    assert join(word, clauses, SIGNALS).truth(values.get) is expected


PARTS = """
where:
  load: a + b
  is_high: load > most
when: [is_high, "2 * load < c"]
"""


def test_a_named_part_stands_for_its_text_in_brackets(tmp_path: Path) -> None:
    rule = read(tmp_path, PARTS)
    assert [clause.text for clause in rule.when] == ["is_high", "2 * load < c"]
    assert answer(rule, a=2, b=2, c=9) is Truth.YES
    assert answer(rule, a=2, b=2, c=8) is Truth.NO
    assert answer(rule, a=2, c=8) is Truth.UNKNOWN
    found = evaluate(rule, {"a": 2.0, "b": 2.0, "c": 9.0}.get)
    assert [each.text for each in found.evidence] == [
        "((a (2) + b (2)) > most (3))",
        "2 * (a (2) + b (2)) < c (9)",
    ]
    assert rule.where["is_high"].text == "load > most"


@given(
    st.lists(st.sampled_from(["a", "b", "total", "(total + a)", "-total"]), min_size=1, max_size=4), VALUES
)
def test_a_part_counts_as_if_it_was_written_out(terms: list[str], values: dict[str, float]) -> None:
    written = " * ".join(terms)
    named = parse(written, SIGNALS, parts={"total": "a + b"})
    whole = parse(written.replace("total", "(a + b)"), SIGNALS)
    assert named.number(values.get) == whole.number(values.get)
    assert (named.names, named.parts) == (whole.names, frozenset({"total"}) if "total" in written else set())


@pytest.mark.parametrize(
    ("body", "place", "text"),
    [
        ("when: [{any: [a > most, b > }]}]", 0, "not YAML"),
        ("when:\n  - any:\n      - a > most\n      - bb > 1", 10, "no signal is named `bb`"),
        ("when:\n  - any:\n      - a > most\n      - b", 10, "a clause compares"),
        ("when:\n  - any:\n      - a > most", 8, "`any` is a list of two clauses or more"),
        ("when:\n  - any: a > most", 8, "`any` is a list of two clauses or more"),
        ("when:\n  - either: [a > most, b > 1]", 8, "a group has one key, `any` or `all`"),
        ("when:\n  - {any: [a > most, b > 1], all: [a > 1, b > 1]}", 8, "a group has one key"),
        ("where:\n  load: a + bb\nwhen: [a > most]", 8, "no signal is named `bb`"),
        ("where:\n  a: b + c\nwhen: [a > most]", 8, "the part `a` has the name of a signal"),
        ("where:\n  most: b + c\nwhen: [a > most]", 8, "the part `most` has the name of a parameter"),
        ("where:\n  known: b + c\nwhen: [a > most]", 8, "`known` cannot name a part"),
        ("where:\n  load: b + c\nwhen: [a > most]", 8, "no clause uses the part `load`"),
        ("where: [load]\nwhen: [a > most]", 7, "`where` is a mapping"),
        ("where:\n  load: b + c\nwhen: [a > most, lod > 1]", 9, "no signal is named `lod`"),
        ("where:\n  load: b + c\nwhen: [a > most, load]", 9, "a clause compares"),
        ("where:\n  load: b + c\nwhen: [a > most, load and b > 1]", 9, "a yes or no is expected here"),
    ],
)
def test_a_fault_in_a_group_or_a_part_is_told_at_its_place(
    tmp_path: Path, body: str, place: int, text: str
) -> None:
    found = faults(tmp_path, body)
    fault = next(each for each in found if text in each.text)
    assert fault.line == place or not place


def test_every_fault_of_a_group_is_told_at_once(tmp_path: Path) -> None:
    body = "when:\n  - any:\n      - aa > most\n      - all:\n          - b\n          - cc > 1"
    assert [(each.line, each.column) for each in faults(tmp_path, body)] == [(9, 9), (11, 13), (12, 13)]


def test_a_misspelt_part_is_told_with_the_nearest_and_its_column(tmp_path: Path) -> None:
    fault = only(tmp_path, "where: {average: a / b}\nwhen: [average > most, 'c > 1 and averge > 1']")
    assert (fault.text, fault.hint) == ("no signal is named `averge`", "did you mean `average`?")
    assert pointed_at(fault) == "averge > 1']"


def test_a_fault_behind_a_part_keeps_its_column(tmp_path: Path) -> None:
    fault = only(tmp_path, "where: {average: a / b}\nwhen: [average > most + cc]")
    assert pointed_at(fault) == "cc]"


def test_a_group_of_many_long_clauses_has_an_end(tmp_path: Path) -> None:
    long = "a + " * 110 + "a > 1"
    body = "when:\n  - any:\n" + f"      - {long}\n" * 12 + "  - b > most"
    assert "longer than 4000 characters" in only(tmp_path, body).text


@pytest.mark.parametrize("body", ["when: [{clause}]", "where: {{long: {clause}}}\nwhen: [long]"])
def test_who_writes_rules_is_told_of_a_clause_too_long_to_read(tmp_path: Path, body: str) -> None:
    fits = "a > most and " + "b > 1 and " * 9 + "c > "
    longest = fits + "0." + "0" * (118 - len(fits))
    assert read(tmp_path, body.format(clause=longest), strict=True)
    longer = body.format(clause=longest + "0")
    assert read(tmp_path, longer)
    fault = only(tmp_path, longer, strict=True)
    assert fault.text == "a clause of 121 characters; 120 are the most"
    assert "`any:`" in fault.hint


@pytest.mark.parametrize("clause", ["a > 20", "a > most or b < 0.5 * c", "a_baseline + 2 > b"])
def test_who_writes_rules_is_told_of_a_bare_threshold(tmp_path: Path, clause: str) -> None:
    rest = "\nunless: [a == 0, b > 1 - most]"
    assert read(tmp_path, f"when: [a > most]{rest}", strict=True)
    for body in (f"when: [{clause}]{rest}", f"where: {{x: {clause}}}\nwhen: [x]{rest}"):
        assert read(tmp_path, body)
        fault = only(tmp_path, body, strict=True)
        number = fault.text.partition(" ")[0]
        assert fault.text == f"{number} is a bare threshold"
        assert pointed_at(fault).startswith(number)


def test_a_number_that_a_remedy_computes_with_is_no_threshold(tmp_path: Path) -> None:
    remedy = "remedies: [{action: Act., flag: --max-num-seqs, suggest: a + 0.5, why: w, price: p}]"
    assert read(tmp_path, f"when: [a > most]\n{remedy}", strict=True)


# What explains what


def test_a_symptom_may_name_its_causes(tmp_path: Path) -> None:
    when = "when: [a > most]"
    rules = several(
        tmp_path, cause=when, other=f"{when}\nexplains: [mine]", mine=f"{when}\nexplained_by: [cause]"
    )
    assert rules.by_id("cause").explains == ("mine",)
    assert rules.by_id("mine").explained_by == ("cause", "other")
    again = several(tmp_path, disabled="cause")
    assert again.by_id("mine").explained_by == ("other",)


def test_a_cause_that_is_not_there_is_told(tmp_path: Path) -> None:
    when = "when: [a > most]"
    with pytest.raises(RuleError) as caught:
        several(tmp_path, cause=when, mine=f"{when}\nexplained_by: [cuase]")
    [fault] = caught.value.faults
    assert fault.text == "`explained_by` names the rule `cuase`, which does not exist"
    assert (fault.hint, fault.line) == ("did you mean `cause`?", 8)


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        ("explained_by: [second]", "explained_by: [first]", 8),
        ("explains: [second]", "explains: [first]", 8),
        ("explains: [second]\nexplained_by: [second]", "", 8),
        ("", "explains: [first]\nexplained_by: [first]", 2),
    ],
)
def test_a_circle_is_found_from_whichever_side_it_is_named(
    tmp_path: Path, first: str, second: str, line: int
) -> None:
    when = "when: [a > most]"
    with pytest.raises(RuleError) as caught:
        several(tmp_path, first=f"{when}\n{first}", second=f"{when}\n{second}")
    [fault] = caught.value.faults
    assert "goes in a circle: first -> second -> first" in fault.text
    assert fault.line == line
