"""A diagnosis with the shipped rules, given scrapes one after the other."""

from collections.abc import Iterable
from functools import cache

from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.model import Expectations, Scrape, Snapshot, State, Target
from watchdog.resources import shipped_rules_directory
from watchdog.rule.rule_set import RuleSet, load
from watchdog.signals.catalogue import signal_names


@cache
def shipped_rules() -> RuleSet:
    """The rules that the package ships."""
    return load([shipped_rules_directory()], signal_names())


def diagnosis(name: str = "server", expectations: Expectations | None = None) -> TargetDiagnosis:
    """A fresh diagnosis with the shipped rules."""
    return TargetDiagnosis(
        Target(name, "http://server/metrics", expectations or Expectations()), shipped_rules()
    )


def watch(scrapes: Iterable[Scrape], expectations: Expectations | None = None) -> list[Snapshot]:
    """What a fresh diagnosis says after each scrape."""
    one = diagnosis(expectations=expectations)
    return [one.observe(scrape) for scrape in scrapes]


def firing(snapshot: Snapshot) -> set[str]:
    """The rules that fire."""
    return {incident.key.rule for incident in snapshot.incidents if incident.state is State.FIRING}


def lead(snapshot: Snapshot) -> str | None:
    """The rule that leads."""
    return snapshot.lead.rule if snapshot.lead else None
