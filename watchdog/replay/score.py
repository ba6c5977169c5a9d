"""How well rules name the cause in labelled recordings: how soon, and whether calm stays quiet."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from watchdog.replay.replay import Moment
from watchdog.scrape.recording import Phase

# What a phase may be called when all is well.
CALM_LABELS = frozenset({"healthy", "idle", "healthy-busy", "healthy-bursty", "prefill-chunked"})
# Phases that prove nothing: a backlog may still drain, or the remedy may not be enough for this load.
UNJUDGED_LABELS = frozenset({"recovery", "same-load-with-remedy"})
# A recording named so is at the edge of its cause, which holds in a part of its phase only.
EDGE_MARK = "-mild"
# Worth a line, not a lead: it is enough that the rule fires, at any severity.
MENTIONED_LABELS = frozenset({"length-truncation", "prefix-cache-disabled", "long-context-decode"})
# Words that people write on a phase -> the rules that say the same.
# A label that is a rule's id needs no entry unless a second rule is right as well.
RULES_OF_LABEL: Mapping[str, frozenset[str]] = {
    label: frozenset(rules.split())
    for label, rules in {
        "kv-pool-exhausted": "kv-pool-exhausted preemption-thrash",
        "preemption-thrash": "kv-pool-exhausted preemption-thrash",
        "engine-hang": "engine-stalled",
        "engine-crash": "target-down engine-stalled errors-high crash-loop",
        "down": "target-down",
        "token-budget-too-small": "token-budget-limited",
        "long-prompts": "prefill-bound prompt-length-shift",
        "length-truncation": "output-truncated",
        "lora-contention": "lora-slots-exhausted deferred-backlog",
        "admission-rejection": "admission-rejections seqs-limited",
        "traffic-surge": "traffic-surge api-server-cpu-bound",
        "batch-job": "traffic-surge seqs-limited",
        "spec-decode-no-drafts": "spec-decode-low-acceptance speculation-stopped",
        "prefix-cache-evicted": "prefix-cache-evicted prefix-cache-ineffective",
        "prefix-cache-ineffective": "prefix-cache-evicted prefix-cache-ineffective",
        "prefill-bound": "prefill-bound prefill-interference",
    }.items()
}


class Outcome(StrEnum):
    """What became of one phase."""

    NAMED = "named"
    MISSED = "missed"
    QUIET = "quiet"
    FALSE_ALARM = "false alarm"
    NO_SUCH_RULE = "no such rule"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Limits:
    """How soon a cause must lead, how long after an incident an alarm may still stand, and the share of the
    rest of the phase for which the cause must hold the lead."""

    name_within_seconds: float = 45.0
    forgive_after_seconds: float = 30.0
    least_held_share: float = 0.6


@dataclass(frozen=True, slots=True)
class PhaseScore:
    """One phase's outcome. `named_after_seconds` is None if the cause never led; `rules` are the leads of a
    phase with a cause, or the alarms of a calm one; `misled_by` are the leads that were not the cause."""

    recording: str
    label: str
    outcome: Outcome
    named_after_seconds: float | None = None
    held_share: float = 0.0
    listed: bool = False
    rules: tuple[str, ...] = ()
    misled_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over phases; times are None where nothing was named; `misled` had another lead at some time."""

    causes: int
    named: int
    listed: int
    misled: int
    calm: int
    quiet: int
    no_such_rule: int
    median_seconds: float | None
    longest_seconds: float | None

    @property
    def perfect(self) -> bool:
        """True when every cause is named and every calm phase quiet; labels without a rule do not count."""
        return self.named == self.causes and self.quiet == self.calm


def score(
    recording: str,
    phases: Iterable[Phase],
    timeline: Sequence[Moment],
    known_rules: Collection[str],
    limits: Limits | None = None,
) -> tuple[PhaseScore, ...]:
    """Judges each labelled phase of one recording, in their order."""
    limits = limits or Limits()
    forgiven_until = float("-inf")
    scores = []
    for phase in phases:
        wanted = RULES_OF_LABEL.get(phase.label, frozenset({phase.label}))
        if phase.label in CALM_LABELS:
            scores.append(_calm(recording, phase, timeline, forgiven_until))
            continue
        forgiven_until = phase.end + limits.forgive_after_seconds
        if phase.label in UNJUDGED_LABELS or EDGE_MARK in (phase.part or recording):
            scores.append(PhaseScore(recording, phase.label, Outcome.NOT_JUDGED))
        elif wanted.isdisjoint(known_rules):
            scores.append(PhaseScore(recording, phase.label, Outcome.NO_SUCH_RULE))
        else:
            scores.append(_cause(recording, phase, timeline, wanted, limits))
    return tuple(scores)


def _calm(recording: str, phase: Phase, timeline: Sequence[Moment], forgiven_until: float) -> PhaseScore:
    begin = max(phase.start, forgiven_until)
    alarms = sorted({rule for at in timeline if begin <= at.wall < phase.end for rule in at.alarming})
    # A recording that says nothing at all is no proof of calm.
    quiet = bool(timeline) and not alarms
    return PhaseScore(
        recording, phase.label, Outcome.QUIET if quiet else Outcome.FALSE_ALARM, rules=tuple(alarms)
    )


def _cause(
    recording: str, phase: Phase, timeline: Sequence[Moment], wanted: frozenset[str], limits: Limits
) -> PhaseScore:
    # The verdict of a scrape lags the phase by up to one interval.
    moments = [at for at in timeline if phase.start <= at.wall < phase.end + 5.0]
    listed_after = _first(moments, phase.start, [not wanted.isdisjoint(at.firing) for at in moments])
    if phase.label in MENTIONED_LABELS:
        told = [not wanted.isdisjoint(at.firing) for at in moments]
    else:
        told = [at.lead in wanted for at in moments]
    named_after = _first(moments, phase.start, told)
    held = _held_share(moments, told, phase, limits, named_after)
    in_time = named_after is not None and named_after <= limits.name_within_seconds
    named = in_time and held >= limits.least_held_share
    return PhaseScore(
        recording,
        phase.label,
        Outcome.NAMED if named else Outcome.MISSED,
        named_after,
        held,
        listed_after is not None,
        tuple(sorted({at.lead or "-" for at in moments})),
        () if phase.label in MENTIONED_LABELS else _misled_by(moments, phase, wanted),
    )


def _misled_by(moments: Sequence[Moment], phase: Phase, wanted: frozenset[str]) -> tuple[str, ...]:
    # In the first scrape of a phase the lead is still that of what came before.
    leads = {at.lead for at in moments if phase.start + 5.0 <= at.wall < phase.end and at.lead is not None}
    return tuple(sorted(leads - wanted))


def _first(moments: Sequence[Moment], start: float, told: Sequence[bool]) -> float | None:
    return next((at.wall - start for at, yes in zip(moments, told, strict=True) if yes), None)


def _held_share(
    moments: Sequence[Moment], told: Sequence[bool], phase: Phase, limits: Limits, named_after: float | None
) -> float:
    """The share of scrapes that tell the cause once there was time to find it; in a phase too short for that,
    from the moment it was named."""
    if named_after is None:
        return 0.0
    pairs = [(at.wall, yes) for at, yes in zip(moments, told, strict=True)]
    held = [yes for wall, yes in pairs if phase.start + limits.name_within_seconds <= wall < phase.end]
    if len(held) < 2:
        held = [yes for wall, yes in pairs if phase.start + named_after <= wall < phase.end]
    return sum(held) / len(held) if held else 1.0


def totals(scores: Iterable[PhaseScore]) -> Totals:
    """Adds phases up."""
    scores = tuple(scores)
    count = {outcome: sum(each.outcome is outcome for each in scores) for outcome in Outcome}
    times = sorted(each.named_after_seconds for each in scores if each.named_after_seconds is not None)
    return Totals(
        causes=count[Outcome.NAMED] + count[Outcome.MISSED],
        named=count[Outcome.NAMED],
        listed=sum(each.listed for each in scores),
        misled=sum(bool(each.misled_by) for each in scores),
        calm=count[Outcome.QUIET] + count[Outcome.FALSE_ALARM],
        quiet=count[Outcome.QUIET],
        no_such_rule=count[Outcome.NO_SUCH_RULE],
        median_seconds=median(times) if times else None,
        longest_seconds=times[-1] if times else None,
    )
