"""A bounded queue to one receiver and its thread: oldest first, the newest state of each identity."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from watchdog.clock import steady_seconds

_log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
_PAUSE_WHILE_DRAINING_SECONDS = 0.2
# What a post under way gets to notice that it was cut.
_GRACE_SECONDS = 0.5

Content = TypeVar("Content")


@dataclass(frozen=True, slots=True)
class Parcel(Generic[Content]):
    """Something to deliver; after `expires_at` (steady seconds) it is no longer true and is dropped."""

    identity: str
    content: Content
    expires_at: float = float("inf")


@dataclass(frozen=True, slots=True)
class Delivery:
    """What came of a batch: how many were taken, failed or were given up, and which to try again after a pause."""

    sent: int = 0
    errors: int = 0
    again: frozenset[str] = frozenset()
    detail: str = ""
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a receiver got so far: `errors` counts each failed try, `dropped` what was given up unsent."""

    receiver: str
    sent: int
    errors: int
    dropped: int
    queue_length: int
    queue_capacity: int
    last_error: str = ""


class Outbox(Generic[Content]):
    """The queue to one receiver; `deliver` gets a batch and the seconds it may take, in its own thread."""

    def __init__(
        self,
        receiver: str,
        deliver: Callable[[Sequence[Parcel[Content]], float], Delivery],
        abort: Callable[[], None],
        *,
        capacity: int,
        batch_size: int,
        timeout_seconds: float,
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
    ) -> None:
        self.receiver = receiver
        self._deliver = deliver
        self._abort = abort
        self._capacity = capacity
        self._batch_size = batch_size
        self._timeout_seconds = timeout_seconds
        self._longest_pause_seconds = longest_pause_seconds
        self._changed = threading.Condition()
        self._waiting: dict[str, Parcel[Content]] = {}
        self._drain_until: float | None = None
        self._pause_seconds = 0.0
        self._under_way = False
        self._sent = self._errors = self._dropped = 0
        self._last_error = ""
        self._thread: threading.Thread | None = None

    def put(self, parcel: Parcel[Content]) -> None:
        """Queues, in the place of what waits under the same identity; drops the oldest when full."""
        with self._changed:
            self._waiting[parcel.identity] = parcel
            self._drop_beyond_capacity()
            self._changed.notify_all()

    def run(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._work, name=f"outbox {self.receiver}", daemon=True)
        self._thread.start()

    def begin_stop(self, drain_seconds: float) -> None:
        """Lets the thread end once the queue is empty, or after `drain_seconds`; returns at once."""
        with self._changed:
            self._drain_until = steady_seconds() + drain_seconds
            self._changed.notify_all()

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        with self._changed:
            return not self._waiting and not self._under_way

    def wait(self, until: float) -> None:
        """Waits for the thread to end, until that steady time at most."""
        if self._thread is not None:
            self._thread.join(max(until - steady_seconds(), 0))

    def cut(self) -> None:
        """Cuts off the post under way, if any."""
        if self._thread is not None and self._thread.is_alive():
            self._abort()

    def report_unsent(self) -> None:
        """Says what stays behind."""
        unsent = self.statistics().queue_length
        if unsent:
            _log.warning("notifications_left_unsent", extra={"receiver": self.receiver, "count": unsent})

    def statistics(self) -> Statistics:
        """The counts up to now."""
        with self._changed:
            return Statistics(
                self.receiver,
                self._sent,
                self._errors,
                self._dropped,
                len(self._waiting),
                self._capacity,
                self._last_error,
            )

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                delivery = self._deliver(batch, self._seconds_for_a_post())
            except Exception as error:  # a bug here must not end the way to the pager
                _log.exception("notification_failed", extra={"receiver": self.receiver})
                delivery = Delivery(errors=len(batch), detail=type(error).__name__)
            self._settle(batch, delivery)

    def _next_batch(self) -> Sequence[Parcel[Content]] | None:
        """The oldest parcels, once there are some and the pause is over; None when it is time to end."""
        with self._changed:
            resume_at = steady_seconds() + self._pause_seconds
            while True:
                now = steady_seconds()
                if self._drain_until is not None:
                    resume_at = min(resume_at, now + _PAUSE_WHILE_DRAINING_SECONDS)
                    if not self._waiting or now >= self._drain_until:
                        return None
                if self._waiting and now >= resume_at:
                    batch = self._take(now)
                    self._under_way = bool(batch)
                    if batch:
                        return batch
                    continue
                self._changed.wait(max(resume_at - now, 0.001) if self._waiting else None)

    def _take(self, now: float) -> list[Parcel[Content]]:
        batch: list[Parcel[Content]] = []
        while self._waiting and len(batch) < self._batch_size:
            parcel = self._waiting.pop(next(iter(self._waiting)))
            if parcel.expires_at > now:
                batch.append(parcel)
            else:
                self._dropped += 1
        return batch

    def _settle(self, batch: Sequence[Parcel[Content]], delivery: Delivery) -> None:
        with self._changed:
            self._under_way = False
            self._sent += delivery.sent
            self._errors += delivery.errors
            self._dropped += delivery.dropped
            self._put_back([parcel for parcel in batch if parcel.identity in delivery.again])
            failing = self._last_error
            self._last_error = delivery.detail if delivery.errors else ""
            if delivery.again:
                self._pause_seconds = min(
                    max(2 * self._pause_seconds, FIRST_PAUSE_SECONDS), self._longest_pause_seconds
                )
            else:
                self._pause_seconds = 0.0
        if bool(failing) != bool(self._last_error):
            event = "notifications_failing" if self._last_error else "notifications_recovered"
            _log.log(
                logging.WARNING if self._last_error else logging.INFO,
                event,
                extra={"receiver": self.receiver, "error": self._last_error or failing},
            )

    def _put_back(self, failed: Sequence[Parcel[Content]]) -> None:
        """Before the younger ones, unless a newer state of the same identity has come meanwhile."""
        returned = {parcel.identity: parcel for parcel in failed if parcel.identity not in self._waiting}
        self._waiting = returned | self._waiting
        self._drop_beyond_capacity()

    def _drop_beyond_capacity(self) -> None:
        while len(self._waiting) > self._capacity:
            del self._waiting[next(iter(self._waiting))]
            self._dropped += 1

    def _seconds_for_a_post(self) -> float:
        if self._drain_until is None:
            return self._timeout_seconds
        return min(self._timeout_seconds, max(self._drain_until - steady_seconds(), 0.05))


def stop_all(outboxes: Sequence[Outbox[Content]], drain_seconds: float) -> None:
    """Sends what is queued to all of them at once, for so long at most; those that hang are cut off then."""
    until = steady_seconds() + drain_seconds
    for outbox in outboxes:
        outbox.begin_stop(drain_seconds)
    for outbox in outboxes:
        outbox.wait(until)
    for outbox in outboxes:
        outbox.cut()
    for outbox in outboxes:
        outbox.wait(until + _GRACE_SECONDS)
        outbox.report_unsent()
