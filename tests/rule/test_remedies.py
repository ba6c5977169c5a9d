"""Remedies that rules share, and groups of which the first that can be offered is."""

from pathlib import Path

import pytest

from watchdog.errors import RuleError
from watchdog.facts.launch import ServerContext
from watchdog.remedy.offer import offer
from watchdog.rule.rule_set import RuleSet, load

SIGNALS = ("waiting_last", "running_last")
RULE = """\
id: {id}
title: A queue
severity: warning
parameters:
  most: {{value: 5, unit: requests, why: "it is enough"}}
when: [waiting_last > most]
cause: "{{waiting_last:.0f}} wait."
remedies:
{remedies}
"""
SHARED = """\
add-replica:
  action: Add a replica.
  lasting: true
  why: "{waiting_last:.0f} wait, more than {most:.0f}."
  price: Another GPU.
"""


def loaded(folder: Path, remedies: str, shared: str = SHARED) -> RuleSet:
    (folder / "queue.yaml").write_text(RULE.format(id="queue", remedies=remedies))
    (folder / "remedies.yaml").write_text(shared)
    return load([folder], SIGNALS, allow_untested=True)


def offered(rules: RuleSet, **values: float) -> list[str]:
    found, _ = offer(rules.by_id("queue"), values.get, ServerContext())
    return [f"{one.action} {one.why}" for one in found]


def faults(folder: Path, remedies: str, shared: str = SHARED) -> str:
    with pytest.raises(RuleError) as raised:
        loaded(folder, remedies, shared)
    return str(raised.value)


def test_a_rule_takes_a_shared_remedy_and_says_beside_it_what_differs(tmp_path: Path) -> None:
    assert offered(loaded(tmp_path, "  - shared: add-replica"), waiting_last=9) == [
        "Add a replica. 9 wait, more than 5."
    ]
    own = "  - shared: add-replica\n    why: It is late."
    assert offered(loaded(tmp_path, own), waiting_last=9) == ["Add a replica. It is late."]


def test_of_a_group_the_first_that_can_be_offered_is(tmp_path: Path) -> None:
    group = """\
  - first:
      - {action: Wait., why: It drains., price: Time., when: running_last > 3}
      - {action: Go., why: It is stuck., price: Time., when: waiting_last > 3}
      - shared: add-replica
  - {action: Look., why: Always., price: Time.}
"""
    rules = loaded(tmp_path, group)
    assert offered(rules, waiting_last=9, running_last=4) == ["Wait. It drains.", "Look. Always."]
    assert offered(rules, waiting_last=9, running_last=1) == ["Go. It is stuck.", "Look. Always."]
    # What is unknown is not offered, and the next one is asked.
    assert offered(rules, waiting_last=9) == ["Go. It is stuck.", "Look. Always."]
    assert offered(rules, waiting_last=1) == ["Add a replica. 1 waits, more than 5.", "Look. Always."]


def test_the_conditions_of_a_group_hold_for_all_of_it(tmp_path: Path) -> None:
    group = """\
  - when: waiting_last > 3
    unless: running_last > 10
    first:
      - {action: Wait., why: It drains., price: Time., when: running_last > 3}
      - shared: add-replica
"""
    rules = loaded(tmp_path, group)
    assert offered(rules, waiting_last=9, running_last=4) == ["Wait. It drains."]
    assert offered(rules, waiting_last=9, running_last=1) == ["Add a replica. 9 wait, more than 5."]
    assert offered(rules, waiting_last=1, running_last=4) == []
    assert offered(rules, waiting_last=9, running_last=11) == []


def test_a_change_of_a_shared_remedy_is_a_change_of_the_rules(tmp_path: Path) -> None:
    before = loaded(tmp_path, "  - shared: add-replica").digest
    assert loaded(tmp_path, "  - shared: add-replica", SHARED.replace("GPU", "server")).digest != before


@pytest.mark.parametrize(
    ("remedies", "place", "text"),
    [
        ("  - shared: add-replicas", "queue.yaml:9", "there is no shared remedy `add-replicas`"),
        ("  - shared: add-replica\n    pric: x", "queue.yaml:10", "the key `pric` is not known here"),
        ("  - first: [{shared: add-replica}]", "queue.yaml:9", "`first` is a list of two remedies or more"),
        (
            "  - first:\n    - shared: add-replica\n    - shared: add-replica\n      when: waiting > 1",
            "queue.yaml:12",
            "waiting",
        ),
        ("  - {action: a, why: w, price: p}\n  - shared: add-replica\n    flag: x", "queue.yaml:11", "flag"),
    ],
)
def test_a_fault_is_told_where_it_stands(tmp_path: Path, remedies: str, place: str, text: str) -> None:
    told = faults(tmp_path, remedies)
    assert place in told
    assert text in told


@pytest.mark.parametrize(
    ("shared", "place", "text"),
    [
        ("add-replica: text", "remedies.yaml:1", "a remedy is a mapping of fields"),
        (SHARED + "  pric: x\n", "remedies.yaml:6", "the key `pric` is not known here"),
        (SHARED + "  shared: other\n", "remedies.yaml:6", "the key `shared` is not known here"),
    ],
)
def test_a_fault_of_the_shared_file_is_told_there(tmp_path: Path, shared: str, place: str, text: str) -> None:
    told = faults(tmp_path, "  - {action: a, why: w, price: p}", shared)
    assert place in told
    assert text in told


def test_a_text_that_a_rule_cannot_fill_is_a_fault_of_the_rule_that_uses_it(tmp_path: Path) -> None:
    told = faults(tmp_path, "  - shared: add-replica", SHARED.replace("{most:.0f}", "{least:.0f}"))
    assert "queue.yaml:9" in told
    assert "least" in told
