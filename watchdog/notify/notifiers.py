"""All receivers of alerts as one: built from the settings, fed at each step, drained at the end."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping

from watchdog.diagnosis.fleet import FLEET
from watchdog.model import NO_LABELS, Incident, Key
from watchdog.notify.alert import AlertBuilder
from watchdog.notify.alertmanager import AlertmanagerSender
from watchdog.notify.announcements import EARLIER_LEDGERS, LEDGER, Announcements, Ledger, memory_ledger
from watchdog.notify.apprise import AppriseSender
from watchdog.notify.outbox import Statistics
from watchdog.notify.webhook import WebhookSender
from watchdog.settings.model import Settings

# How often to look for ends that nobody needs any longer.
SWEEP_SECONDS = 60.0


class Notifiers:
    """Whom one configuration notifies, and the one book of what is announced. For many threads."""

    def __init__(self, settings: Settings, ledgers: Callable[[str], Ledger] = memory_ledger) -> None:
        external_url = settings.web.external_url or ""
        builder = AlertBuilder(
            settings.alertmanager.external_labels,
            external_url,
            settings.instance,
            _of_instance(settings),
            target_labels=settings.target_labels,
            dashboard_url=settings.web.dashboard_url,
        )
        self._builder = builder
        self._lock = threading.Lock()
        self._announcements = Announcements(
            builder, settings.alertmanager.symptoms, ledgers(LEDGER), map(ledgers, EARLIER_LEDGERS)
        )
        self._alertmanagers = AlertmanagerSender(
            settings.alertmanager, builder, settings.longest_interval_seconds, self._announcements.ended
        )
        self._webhooks = WebhookSender(
            settings.webhooks, external_url, self._announcements, self._lock, ledgers
        )
        self._messages = AppriseSender(settings.apprise, self._announcements, self._lock, ledgers)
        self._swept_at = float("-inf")

    @staticmethod
    def are_alike(one: Settings, other: Settings) -> bool:
        """Whether both configurations notify the same receivers in the same way."""

        def way(settings: Settings) -> tuple[object, ...]:
            # An alert's end lies several intervals ahead: with the old interval it would come between two scrapes.
            return (
                settings.alertmanager,
                settings.webhooks,
                settings.apprise,
                settings.longest_interval_seconds,
            )

        return way(one) == way(other)

    def know(self, settings: Settings) -> None:
        """Goes over to other targets: what is sent of those that stay is sent as before, under their labels of now."""
        with self._lock:
            self._builder.know(_of_instance(settings), settings.target_labels)

    def observe(
        self,
        incidents: Iterable[Incident],
        at: float,
        wall: float,
        pageable: Collection[Key],
        held: Collection[Key] = (),
        labels: Mapping[str, str] = NO_LABELS,
    ) -> None:
        """Takes in incidents as they stand and which of them are worth a page, and queues what is due.

        Call it at every step, also with no incidents; those not passed are left as they were. `at` is monotonic,
        `wall` unix seconds. Of those in `held` nothing new is said: their targets are in maintenance. `labels` are
        those under which others know the server.
        """
        senders = (self._alertmanagers, self._webhooks, self._messages)
        if not any(each.has_receivers for each in senders):
            return
        with self._lock:
            announced = self._announcements.observe(incidents, wall, pageable, held, labels)
            self._alertmanagers.observe(announced, at, wall)
            self._webhooks.observe(announced, at, wall)
            self._messages.observe(announced, wall)
            if at - self._swept_at >= SWEEP_SECONDS:
                self._swept_at = at
                self._sweep(wall)

    def _sweep(self, wall: float) -> None:
        """Forgets the ends that every receiver has heard of for long enough."""
        self._announcements.forget(
            [
                fingerprint
                for fingerprint, ended in self._announcements.ended.items()
                if not (
                    self._alertmanagers.needs(fingerprint)
                    or self._webhooks.needs(fingerprint, ended, wall)
                    or self._messages.needs(ended, wall)
                )
            ]
        )

    def run(self) -> None:
        """Begins to send."""
        self._alertmanagers.run()
        self._webhooks.run()
        self._messages.run()

    def stop(self, drain_seconds: float) -> None:
        """Flushes all queues in parallel, for at most `drain_seconds`. Does not resolve alerts."""
        senders = (self._alertmanagers, self._webhooks, self._messages)
        threads = [threading.Thread(target=sender.stop, args=(drain_seconds,)) for sender in senders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def statistics(self) -> tuple[Statistics, ...]:
        """The counts of each receiver."""
        return (*self._alertmanagers.statistics(), *self._webhooks.statistics(), *self._messages.statistics())


def _of_instance(settings: Settings) -> frozenset[str]:
    """The targets whose alerts say which watchdog saw them."""
    fleet = frozenset({FLEET}) if settings.alertmanager.instance is not None else frozenset()
    return settings.instance_targets | fleet
