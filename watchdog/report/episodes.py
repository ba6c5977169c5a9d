"""The times that one cause held: each with when it was pending, fired and ended, and the window to show them in."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from watchdog.model import Incident, State, Transition
from watchdog.report.course import Mark
from watchdog.text import seconds_text

MOST_SECONDS = 86400.0
"""What began earlier is left out of a picture: the hours of the last episode would be a hair."""
_LEAST_SECONDS = 120.0
_MARGIN = 0.08


@dataclass(frozen=True, slots=True)
class Episode:
    """One time that a cause held, in unix seconds; `firing` None where it never fired, `ended` None while it holds."""

    pending: float
    firing: float | None
    ended: float | None


@dataclass(frozen=True, slots=True)
class Story:
    """What is known of a cause on one server: its episodes and the changes of the server, and the window of both."""

    episodes: Sequence[Episode]
    marks: Sequence[Mark]
    begin: float
    end: float

    @property
    def text(self) -> str:
        """What a picture of it says, in words."""
        fired = [each for each in self.episodes if each.firing is not None]
        if not fired:
            return "pending, did not fire"
        lasted = [(each.ended if each.ended is not None else self.end) - each.pending for each in fired]
        last = seconds_text(float(round(lasted[-1])))
        told = (
            f"fired {len(fired)} times, {seconds_text(float(round(sum(lasted))))} in all, the last for {last}"
        )
        changes = (
            f"; {len(self.marks)} change{'s' * (len(self.marks) != 1)} of the server" if self.marks else ""
        )
        return (told if len(fired) > 1 else f"fired once, for {last}") + changes


def story(incident: Incident, timeline: Sequence[Transition], marks: Sequence[Mark], wall: float) -> Story:
    """The story of an incident as it stands, or ended; `timeline` its changes of state, the oldest first, of earlier
    times too; `wall` is now.
    """
    ends = {each.at: _episode(each.incident) for each in timeline if each.incident.state is State.RESOLVED}
    own = _episode(incident)
    earlier = [each for each in ends.values() if each.pending < own.pending]
    # A process that ended in the middle of an episode may tell its beginning once more.
    kept = [one for one, after in pairwise([*earlier, own]) if one.pending < after.pending]
    end = wall if own.ended is None else own.ended
    shown = [each for each in (*kept, own) if (each.ended or end) > end - MOST_SECONDS]
    begin = max(min(each.pending for each in shown), end - MOST_SECONDS)
    margin = max(_LEAST_SECONDS, end - begin) * _MARGIN
    begin, last = begin - margin, end if own.ended is None else min(wall, end + margin)
    if last - begin < _LEAST_SECONDS:
        begin = last - _LEAST_SECONDS
    return Story(shown, [each for each in marks if begin <= each.wall <= last], begin, last)


def _episode(incident: Incident) -> Episode:
    return Episode(incident.since, incident.firing_since, incident.resolved_at)
