"""Everyone who is told of incidents, as one: built from the settings, fed at each step, drained at the end."""

import threading
from collections.abc import Callable, Collection, Iterable

from watchdog.model import Incident, Key
from watchdog.notify.alertmanager import AlertmanagerSender
from watchdog.notify.announcements import Ledger, no_ledger
from watchdog.notify.outbox import Statistics
from watchdog.notify.webhook import WebhookSender
from watchdog.settings.model import Settings


class Notifiers:
    """The Alertmanagers and webhooks of one configuration."""

    def __init__(self, settings: Settings, ledgers: Callable[[str], Ledger] = no_ledger) -> None:
        external_url = settings.web.external_url
        self._alertmanager = AlertmanagerSender(
            settings.alertmanager,
            external_url,
            interval_seconds=settings.longest_interval_seconds,
            ledgers=ledgers,
        )
        self._webhooks = WebhookSender(
            settings.webhooks,
            external_url,
            external_labels=settings.alertmanager.external_labels,
            symptoms=settings.alertmanager.symptoms,
            ledgers=ledgers,
        )

    @staticmethod
    def are_alike(one: Settings, other: Settings) -> bool:
        """Whether both configurations tell the same receivers in the same way."""

        def way(settings: Settings) -> tuple[object, ...]:
            # An alert's end lies several intervals ahead: with the old interval it would come between two scrapes.
            return (settings.alertmanager, settings.webhooks, settings.longest_interval_seconds)

        return way(one) == way(other)

    def observe(
        self, incidents: Iterable[Incident], at: float, wall: float, leads: Collection[Key] | None = None
    ) -> None:
        """Takes in incidents as they stand and which of them lead; those not passed are left as they were."""
        incidents = tuple(incidents)
        self._alertmanager.observe(incidents, at, wall, leads)
        self._webhooks.observe(incidents, at, wall, leads)

    def run(self) -> None:
        """Begins to send."""
        self._alertmanager.run()
        self._webhooks.run()

    def stop(self, drain_seconds: float) -> None:
        """Sends what is queued, for so long at most, to all of them at once; resolves nothing."""
        senders = (self._alertmanager, self._webhooks)
        threads = [threading.Thread(target=sender.stop, args=(drain_seconds,)) for sender in senders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def statistics(self) -> tuple[Statistics, ...]:
        """The counts of each receiver."""
        return (*self._alertmanager.statistics(), *self._webhooks.statistics())
