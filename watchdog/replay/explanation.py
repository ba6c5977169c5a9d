"""Why a rule spoke or stayed silent: each of its clauses over a run of scrapes, with what it compared."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from watchdog.diagnosis.judge import Case
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.history.number import finite
from watchdog.language.expression import Expression
from watchdog.model import Lookup, Scope, Scrape, Subject, Target, Truth
from watchdog.replay.replay import Episode, Story
from watchdog.rule.rule import Rule, evaluate
from watchdog.rule.rule_set import RuleSet
from watchdog.signals.absence import why_unknown

WHEN, UNLESS, RAISE_TO, LASTS = "when", "unless", "raise_to", "lasts_while"


@dataclass(slots=True)
class Range:
    """The least and the greatest known value of a signal over some scrapes; either may be a bound."""

    least: float
    most: float

    def take(self, value: float) -> None:
        """Widens it to a further value."""
        self.least, self.most = min(self.least, value), max(self.most, value)


@dataclass(slots=True)
class TruthSpan:
    """Scrapes in a row with one answer; unix seconds of the first and the last of them.

    `values` are the known values by signal, `unknown` the newest reason by signal.
    """

    truth: Truth
    begin: float
    end: float
    values: dict[str, Range] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ClauseStory:
    """A clause of the rule over time; `kind` is WHEN, UNLESS, RAISE_TO or LASTS."""

    kind: str
    clause: Expression
    spans: list[TruthSpan] = field(default_factory=list)

    def is_against(self, truth: Truth) -> bool:
        """Whether this answer keeps the rule from firing; an `unless` that is unknown does not."""
        if self.kind == WHEN:
            return truth is not Truth.YES
        return self.kind == UNLESS and truth is Truth.YES


@dataclass(frozen=True, slots=True)
class Nearest:
    """The scrape at which the fewest clauses kept the rule from firing, and of such the fewest by being unknown."""

    wall: float
    against: tuple[ClauseStory, ...]
    unknown: int

    @property
    def distance(self) -> tuple[int, int]:
        """How far the rule was from firing; less is nearer."""
        return len(self.against), self.unknown


@dataclass(slots=True)
class SubjectStory:
    """What a rule said of one subject: as a whole (`spans`), and by each of its clauses."""

    subject: Subject
    clauses: tuple[ClauseStory, ...]
    spans: list[TruthSpan] = field(default_factory=list)
    nearest: Nearest | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A rule over a run of scrapes: unix seconds of the first and last (None without one), the subjects in the order
    in which they were seen, and the incidents of the rule that fired."""

    rule: Rule
    target: Target
    scrapes: int
    begin: float | None
    end: float | None
    subjects: tuple[SubjectStory, ...]
    episodes: tuple[Episode, ...]


class Explainer:
    """Runs scrapes through one fresh diagnosis of all rules, and follows one of them, of scope engine or target."""

    def __init__(self, target: Target, rules: RuleSet, rule: Rule) -> None:
        self._target = target
        self._rule = rule
        self._diagnosis = TargetDiagnosis(target, rules, listener=self._hear)
        self._story = Story()
        self._subjects: dict[Subject, SubjectStory] = {}
        self._wall = 0.0

    def observe(self, scrape: Scrape) -> None:
        """One step."""
        self._wall = scrape.wall
        self._story.add(self._diagnosis.observe(scrape))

    def explanation(self) -> Explanation:
        """What was found up to now."""
        timeline = self._story.timeline
        return Explanation(
            rule=self._rule,
            target=self._target,
            scrapes=len(timeline),
            begin=timeline[0].wall if timeline else None,
            end=timeline[-1].wall if timeline else None,
            subjects=tuple(self._subjects.values()),
            episodes=tuple(each for each in self._story.episodes if each.key.rule == self._rule.id),
        )

    def _hear(self, scope: Scope, case: Case, is_on_page: Callable[[str], bool]) -> None:
        if scope is not self._rule.scope:
            return
        story = self._subjects.get(case.subject)
        if story is None:
            story = self._subjects[case.subject] = SubjectStory(case.subject, tuple(_clauses(self._rule)))
        lookup = case.lookup(self._rule)
        _follow(story.spans, evaluate(self._rule, lookup).truth, self._wall)
        against, unknown = [], 0
        for each in story.clauses:
            truth = each.clause.truth(lookup)
            span = _follow(each.spans, truth, self._wall)
            _take_values(span, each.clause, lookup)
            if truth is Truth.UNKNOWN:
                _take_reasons(span, each.clause, lookup, is_on_page)
            if each.is_against(truth):
                against.append(each)
                unknown += truth is Truth.UNKNOWN
        now = Nearest(self._wall, tuple(against), unknown)
        if story.nearest is None or now.distance < story.nearest.distance:
            story.nearest = now


def _clauses(rule: Rule) -> Iterator[ClauseStory]:
    yield from (ClauseStory(WHEN, clause) for clause in rule.when)
    yield from (ClauseStory(UNLESS, clause) for clause in rule.unless)
    if rule.raise_to:
        yield ClauseStory(RAISE_TO, rule.raise_to[1])
    yield from (ClauseStory(LASTS, clause) for clause in rule.lasts_while)


def _follow(spans: list[TruthSpan], truth: Truth, wall: float) -> TruthSpan:
    """The span that this answer belongs to: the last one, or a new one where the answer is another."""
    if spans and spans[-1].truth is truth:
        spans[-1].end = wall
    else:
        spans.append(TruthSpan(truth, wall, wall))
    return spans[-1]


def _take_values(span: TruthSpan, clause: Expression, lookup: Lookup) -> None:
    for name in clause.names:
        value = finite(lookup(name))
        if value is None:
            continue
        known = span.values.get(name)
        if known is None:
            span.values[name] = Range(value, value)
        else:
            known.take(value)


def _take_reasons(
    span: TruthSpan,
    clause: Expression,
    lookup: Lookup,
    is_on_page: Callable[[str], bool],
) -> None:
    for name in clause.missing(lookup):
        span.unknown[name] = why_unknown(name, lookup, is_on_page)


def longest_yes_seconds(spans: Sequence[TruthSpan]) -> float | None:
    """How long the rule held at a stretch at most; None where it never did."""
    return max((span.end - span.begin for span in spans if span.truth is Truth.YES), default=None)
