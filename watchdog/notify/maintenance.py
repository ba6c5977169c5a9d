"""Windows of maintenance: in which of them a target is at a moment, and until when."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import NamedTuple
from zoneinfo import ZoneInfo

from watchdog.settings.maintenance import MaintenanceSettings, Weekday
from watchdog.settings.values import bounds_of_day, instants

# Windows that follow on each other are one; of those that never end, so many are followed.
_WINDOWS_FOLLOWED = 14
_WEEKDAYS: Sequence[Weekday] = (
    *("monday", "tuesday", "wednesday", "thursday"),
    *("friday", "saturday", "sunday"),
)


class Opening(NamedTuple):
    """A window that is open: its name (empty where it has none), and when notifications go on (unix seconds)."""

    name: str
    until: float


class Maintenance:
    """The windows of the settings.

    A bound that falls into an hour that the clocks skip or repeat is read so that the window is longer.
    """

    def __init__(self, windows: Sequence[MaintenanceSettings]) -> None:
        self._windows = tuple(windows)

    @property
    def is_planned(self) -> bool:
        """Whether there is any window."""
        return bool(self._windows)

    def opening(self, target: str, wall: float) -> Opening | None:
        """The window that a target is in at that unix second; None where it is in none."""
        mine = [one for one in self._windows if any(fnmatchcase(target, each) for each in one.targets)]
        found = _last_to_end(mine, wall)
        if found is None:
            return None
        until = found.until
        for _ in range(_WINDOWS_FOLLOWED):
            more = _last_to_end(mine, until)
            if more is None:
                break
            until = more.until
        return found._replace(until=until)


def _last_to_end(windows: Sequence[MaintenanceSettings], wall: float) -> Opening | None:
    open_now = (
        Opening(window.name, end)
        for window in windows
        for begin, end in _times(window, wall)
        if begin <= wall < end
    )
    return max(open_now, key=lambda each: each.until, default=None)


def _times(window: MaintenanceSettings, wall: float) -> Iterator[tuple[float, float]]:
    """When it begins and ends, as unix seconds; of a weekly one the times about that moment."""
    zone = ZoneInfo(window.zone)
    if window.start is not None and window.end is not None:
        yield instants(window.start, zone)[0], instants(window.end, zone)[1]
    if window.hours is None:
        return
    begin, end, is_over_midnight = bounds_of_day(window.hours)
    today = datetime.fromtimestamp(wall, UTC).astimezone(zone).date()
    # A bound that a change of the clocks moves may lie on the day after.
    for offset in (-2, -1, 0, 1):
        day = today + timedelta(days=offset)
        if window.days and _WEEKDAYS[day.weekday()] not in window.days:
            continue
        last = day + timedelta(days=1) if is_over_midnight else day
        yield instants(datetime.combine(day, begin), zone)[0], instants(datetime.combine(last, end), zone)[1]
