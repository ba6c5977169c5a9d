"""Messages to people through Apprise: where its URLs are, and whether they can be used."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from watchdog.settings.section import Line, Seconds, Section

MISSING = "needs the optional part: pip install 'vllm-watchdog[apprise]'"


class AppriseSettings(Section):
    """A chat, a pager, a phone or a mailbox: what a URL of Apprise leads to."""

    name: Line = Field(
        default="",
        max_length=200,
        description="Its name in logs and metrics; that of the file where not given.",
    )
    url_file: Path = Field(
        description="File with one URL of Apprise, such as slack://TOKEN/#channel; read again at each message."
    )
    least_severity: Literal["warning", "critical"] = Field(
        default="warning", description="Less severe incidents are not sent here."
    )
    send_resolved: bool = Field(default=True, description="Also send when it ends.")
    timeout_seconds: Seconds = Field(
        default=30, ge=1, description="A message that takes longer counts as failed."
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        """Accepts a bare file name, and takes its name from it."""
        if isinstance(values, str):
            values = {"url_file": values}
        if not isinstance(values, dict) or not isinstance(values.get("url_file"), str | Path):
            return values
        return {"name": Path(values["url_file"]).stem} | values


class UrlFileError(Exception):
    """The file of a URL cannot be used; the text holds nothing of it but its path."""


def url_in(path: Path) -> str:
    """The URL in a file; lines that are empty or begin with # do not count. Raises UrlFileError."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise UrlFileError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'no text'}"
        ) from None
    urls = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    if len(urls) != 1:
        raise UrlFileError(f"{path} must hold one URL, and has {len(urls)}; one entry leads to one place")
    return urls[0]


def service_of(url: str) -> Any:
    """What Apprise makes of a URL, by itself; raises UrlFileError where that is nothing, or Apprise is missing."""
    try:
        import apprise  # noqa: PLC0415 - an optional part
    except ImportError:
        raise UrlFileError(MISSING) from None
    # It quotes URLs, which are secrets; what has to be told of a failure is told by us.
    logging.getLogger("apprise").propagate = False
    asset = apprise.AppriseAsset(app_id="vllm-watchdog", app_desc="vllm-watchdog", app_url="")
    service = apprise.Apprise(asset=asset)
    if not service.add(url):
        raise UrlFileError(
            "Apprise takes no such URL: its first part names the service, as in ntfy://host/topic; "
            "`apprise -vv --dry-run URL` says more"
        )
    return service


def apprise_faults(entries: Sequence[AppriseSettings]) -> Iterator[str]:
    """What keeps messages from being sent, each with the place of its setting."""
    for index, entry in enumerate(entries):
        try:
            service_of(url_in(entry.url_file))
        except UrlFileError as error:
            yield f"apprise[{index}].url_file: {error}"
