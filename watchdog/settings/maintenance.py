"""Windows of maintenance: when notifications are held, and of which targets."""

from datetime import datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from watchdog.settings.section import Line, Section
from watchdog.settings.values import hours_of_day, instants, point_of_calendar, zone_name

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


class MaintenanceSettings(Section):
    """A time in which nothing new is sent: once, or every week. Incidents are still recorded and shown."""

    name: Line = Field(default="", max_length=200, description="What work is done; shown beside the servers.")
    targets: list[Line] = Field(
        default_factory=lambda: ["*"],
        min_length=1,
        description="Names of targets; `*` and `?` stand for others, as in `chat-*`.",
    )
    zone: Annotated[Line, AfterValidator(zone_name)] = Field(
        default="UTC", description="Time zone of times without one, such as Europe/Berlin."
    )
    start: Annotated[datetime, BeforeValidator(point_of_calendar)] | None = Field(
        default=None,
        validation_alias="from",
        serialization_alias="from",
        description="When it begins, such as 2026-12-05T22:00; once.",
    )
    end: Annotated[datetime, BeforeValidator(point_of_calendar)] | None = Field(
        default=None, validation_alias="to", serialization_alias="to", description="When it ends."
    )
    days: list[Weekday] = Field(
        default_factory=list, description="The days on which `hours` begin, every week; all where not given."
    )
    hours: Annotated[Line, AfterValidator(hours_of_day)] | None = Field(
        default=None,
        description="From when to when on these days, such as 22:00-06:00: over midnight where the end is no later.",
    )

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    @field_validator("hours")
    @classmethod
    def _one_time(cls, hours: str | None, info: ValidationInfo) -> str | None:
        """Of the keys together; those that have a fault of their own are left out."""
        known = info.data
        faults = []
        start, end = known.get("start"), known.get("end")
        is_dated = start is not None or end is not None or not {"start", "end"} <= known.keys()
        is_weekly = hours is not None or bool(known.get("days", True))
        if is_dated and is_weekly:
            faults.append("give from and to for once, or days and hours for every week, not both")
        elif not (is_dated or is_weekly):
            faults.append("give from and to for once, or hours for every week")
        if {"start", "end"} <= known.keys() and (start is None) != (end is None):
            faults.append("from and to go together")
        if known.get("days") and hours is None:
            faults.append("days need hours, such as 00:00-24:00")
        if start is not None and end is not None and "zone" in known:
            zone = ZoneInfo(known["zone"])
            if instants(start, zone)[0] >= instants(end, zone)[1]:
                faults.append("to must be later than from")
        if faults:
            raise ValueError("; ".join(faults))
        return hours
