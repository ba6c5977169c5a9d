"""An announcement as a message to people: what, where, since when, why, what to do first, and where to read on."""

from typing import NamedTuple

from watchdog.diagnosis.fleet import FLEET
from watchdog.notify.alert import Alert
from watchdog.notify.announcements import Announcement
from watchdog.text import seconds_text, timestamp


class Message(NamedTuple):
    """A title of one line and a body of a few, without markup."""

    title: str
    body: str


def beginning(announcement: Announcement) -> Message:
    """What is said when it begins, or gets worse."""
    alert = announcement.alert
    lines = [
        f"Since {_moment(alert.starts_at)}.",
        alert.cause or alert.annotations.get("description", ""),
        f"First: {alert.step}" if alert.step else "",
        alert.generator_url,
    ]
    return Message(f"{announcement.severity.upper()} {_about(alert)}", _joined(lines))


def ending(alert: Alert, ended_at: float) -> Message:
    """What is said when it is over; `ended_at` is in unix seconds."""
    lasted = seconds_text(max(0.0, round(ended_at - alert.starts_at)))
    lines = [f"From {_moment(alert.starts_at)} to {_moment(ended_at)}, {lasted}.", alert.generator_url]
    return Message(f"RESOLVED {_about(alert)}", _joined(lines))


def _about(alert: Alert) -> str:
    target = alert.labels.get("target", "")
    where = f"fleet {alert.labels.get('model_name', '')}".strip() if target == FLEET else target
    return f"{where}: {alert.title or alert.labels.get('alertname', '')}"


def _moment(wall: float) -> str:
    return timestamp(wall).replace("T", " ").partition(".")[0] + " UTC"


def _joined(lines: list[str]) -> str:
    return "\n".join(filter(None, lines))
