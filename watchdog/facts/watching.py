"""What the watching itself knows: how long an engine was seen, what its clients did, which rules are blind."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from watchdog.facts.fact import Fact, Known
from watchdog.model import BlindRule, Incident, Subject

SECONDS_SEEN = Fact("seconds_seen", "s", "How long this engine's present life was watched.")
OPEN_FILES_DROP_SEEN = Fact(
    "open_files_drop_seen",
    "files",
    "`open_files_drop` as it was last seen: progress may have stopped longer ago than pages are remembered.",
)
PROMPT_GROWTH = Fact(
    "prompt_growth_ratio",
    "ratio",
    "Prompt tokens of an average request over their baseline, as they were when a step last ended.",
)
BLIND_RULES = Fact("blind_rules", "rules", "Rules that need series this page lacks.")


@dataclass(slots=True)
class Watching:
    """Remembers of each engine what was seen when progress stopped, until its next life."""

    open_files_drops: dict[Subject, float] = field(default_factory=dict)
    prompt_growths: dict[Subject, float] = field(default_factory=dict)

    def note(self, subject: Subject, open_files_drop: float | None) -> None:
        """Takes the signal of that name; None leaves what was seen before."""
        if open_files_drop is not None:
            self.open_files_drops[subject] = open_files_drop

    def recall(self, incidents: Iterable[Incident]) -> None:
        """Takes from the incidents of an earlier life what the connections of their engines did."""
        for incident in incidents:
            for evidence in incident.evidence:
                self.note(Subject(*incident.key[1:]), evidence.values.get("open_files_drop"))

    def note_prompts(self, subject: Subject, tokens: float | None, baseline: float | None) -> None:
        """Takes what prompts are and were while steps end; where either is unknown nothing is said of their growth."""
        if tokens is not None and baseline:
            self.prompt_growths[subject] = tokens / baseline
        else:
            self.prompt_growths.pop(subject, None)

    def forget(self, subject: Subject) -> None:
        """The engine began a new life, or is gone."""
        self.open_files_drops.pop(subject, None)
        self.prompt_growths.pop(subject, None)

    def engine_facts(self, subject: Subject, since: float | None, at: float) -> Iterator[Known]:
        """The facts of one engine; `since` is when its present life was first seen, monotonic as `at` is."""
        if subject in self.open_files_drops:
            yield OPEN_FILES_DROP_SEEN, self.open_files_drops[subject]
        if subject in self.prompt_growths:
            yield PROMPT_GROWTH, self.prompt_growths[subject]
        if since is not None:
            yield SECONDS_SEEN, at - since

    @staticmethod
    def facts(blind: Iterable[BlindRule]) -> Iterator[Known]:
        """The facts of the target, once all engines were judged."""
        yield BLIND_RULES, float(len({one.rule for one in blind}))
