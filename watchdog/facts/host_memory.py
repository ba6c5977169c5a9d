"""The host memory of the API server's process: how large it is, and since when it grows without a pause."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from watchdog.facts.fact import Fact, Known
from watchdog.history.number import AtLeast

# fmt: off
HOST_MEMORY_LAST = Fact(
    "host_memory_last_gigabytes", "GB",
    "Host memory of the API server's process on the last page.")
HOST_MEMORY_BEFORE_RESTART = Fact(
    "host_memory_before_restart_gigabytes", "GB",
    "Host memory of the process before the last restart, on its last page.")
HOST_MEMORY_GROWTH = Fact(
    "host_memory_growth_gigabytes", "GB", "How much host memory has grown since it was last stable.")
HOST_MEMORY_GROWTH_SECONDS = Fact(
    "host_memory_growth_seconds", "s", "How long host memory has been growing without becoming stable.")
# fmt: on

GIGABYTE = 1e9
# Scrapes come a little early; a sample a minute is fine enough for a leak that takes minutes to hours.
SAMPLE_SECONDS = 59.0
# A garbage collector or a lull in the traffic holds it for a minute or two, and the leak goes on.
PAUSE_SAMPLES = 3
# Slower than a tenth of its pace is level: a cache that is full still moves a little.
LEVEL_SHARE = 0.1


@dataclass(slots=True)
class HostMemory:
    """Follows the process of one target; times are monotonic seconds, sizes are bytes.

    `rising_from` is where the present rise began, `samples` are the last few after that, a minute apart, the oldest
    first. Both are empty (None) before the first page that shows the size. `began_unseen` while the rise is that of the
    first page: it may have begun before.
    """

    last: float | None = None
    before_restart: float | None = None
    rising_from: tuple[float, float] | None = None
    samples: list[tuple[float, float]] = field(default_factory=list)
    began_unseen: bool = True

    def note(self, size: float, at: float) -> None:
        """Takes the size on a page."""
        self.last = size
        if self.rising_from is None:
            self.rising_from, self.samples = (at, size), [(at, size)]
        elif at - self.samples[-1][0] >= SAMPLE_SECONDS:
            self.samples = [*self.samples[-PAUSE_SAMPLES:], (at, size)]
            if self._is_level():
                self.rising_from, self.samples = (at, size), [(at, size)]
                self.began_unseen = False

    def begin_again(self) -> None:
        """The process restarted."""
        self.before_restart, self.last = self.last, None
        self.rising_from = None
        self.samples.clear()
        self.began_unseen = False

    def _is_level(self) -> bool:
        """Whether it hardly rose over the last few minutes, by the pace of the whole rise."""
        began, first = self.rising_from or self.samples[0]
        (before, earlier), (now, size) = self.samples[0], self.samples[-1]
        if size <= first:
            return True
        pace = (size - first) / (now - began)
        return len(self.samples) > PAUSE_SAMPLES and size - earlier < LEVEL_SHARE * pace * (now - before)

    def facts(self, at: float, *, is_current: bool) -> Iterator[Known]:
        """The facts of the target; `is_current` is whether a page came, without which no growth is known."""
        if self.before_restart is not None:
            yield HOST_MEMORY_BEFORE_RESTART, self.before_restart / GIGABYTE
        if self.last is None:
            return
        yield HOST_MEMORY_LAST, self.last / GIGABYTE
        if is_current and self.rising_from is not None:
            began, first = self.rising_from
            known = AtLeast if self.began_unseen else float
            yield HOST_MEMORY_GROWTH, known(max(0.0, self.last - first) / GIGABYTE)
            yield HOST_MEMORY_GROWTH_SECONDS, known(at - began)
