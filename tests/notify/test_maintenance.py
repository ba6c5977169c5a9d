"""Windows of maintenance: open by the clock of their zone, and quiet about all that is new."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.pagers import WALL, Inbox, Pager, Senders, incident, resolved, running, senders
from tests.waiting import until
from watchdog.errors import ConfigError
from watchdog.model import Severity
from watchdog.notify.maintenance import Maintenance, Opening
from watchdog.settings.maintenance import MaintenanceSettings
from watchdog.settings.model import load

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia")
SPRING = datetime(2026, 3, 29, 0, 45, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 25, 0, 45, tzinfo=UTC)


def maintenance(**window: Any) -> Maintenance:
    return Maintenance([MaintenanceSettings.model_validate(window)])


def at(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


TIMES = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from((0, 1, 15, 30, 59)))


@given(
    zone=st.sampled_from(ZONES),
    days=st.sets(st.sampled_from(DAYS)),
    bounds=st.tuples(TIMES, TIMES).filter(lambda pair: pair[0] != pair[1]),
    moment=st.builds(datetime.fromtimestamp, st.integers(1_767_225_600, 1_798_761_600), st.just(UTC)),
)
@example(zone="Europe/Berlin", days=set(), bounds=("02:30", "03:30"), moment=SPRING + timedelta(minutes=20))
@example(zone="Europe/Berlin", days=set(), bounds=("01:30", "02:30"), moment=AUTUMN)
@example(zone="Europe/Berlin", days=set(), bounds=("02:15", "02:45"), moment=AUTUMN + timedelta(minutes=14))
def test_a_weekly_window_is_open_by_the_clock_on_the_wall_there(
    zone: str, days: set[str], bounds: tuple[str, str], moment: datetime
) -> None:
    """Open wherever that clock says so; beyond that only about a change of the clocks, and in one piece."""
    begin, end = bounds
    window = maintenance(zone=zone, days=sorted(days), hours=f"{begin}-{end}")

    def by_the_clock(there: datetime) -> bool:
        day, time = (
            (there if begin < end or f"{there:%H:%M}" >= begin else there - timedelta(days=1)),
            f"{there:%H:%M}",
        )
        if days and DAYS[day.weekday()] not in days:
            return False
        return begin <= time < end if begin < end else time >= begin or time < end

    opening = window.opening("chat", moment.timestamp())
    there = moment.astimezone(ZoneInfo(zone))
    about = [
        (moment + timedelta(hours=hours)).astimezone(ZoneInfo(zone)).utcoffset() for hours in range(-26, 27)
    ]
    if by_the_clock(there):
        assert opening is not None
    elif opening is not None:
        assert len(set(about)) > 1
    if opening is not None:
        assert moment.timestamp() < opening.until
        assert window.opening("chat", (moment.timestamp() + opening.until) / 2) is not None
        close = datetime.fromtimestamp(opening.until, ZoneInfo(zone))
        assert f"{close:%H:%M}" == end or len(set(about)) > 1 or close - moment > timedelta(days=1)


def test_windows_that_follow_on_each_other_are_one_and_their_names_are_globs() -> None:
    weekend = maintenance(name="move", targets=["chat-?"], days=["saturday", "sunday"], hours="00:00-24:00")
    assert weekend.opening("chat-1", at("2026-12-05T12:00Z")) == Opening("move", at("2026-12-07T00:00Z"))
    assert weekend.opening("chat-1", at("2026-12-07T00:00Z")) is None
    assert weekend.opening("chat-10", at("2026-12-05T12:00Z")) is None


def test_a_window_of_once_has_dates_in_its_zone_or_with_their_own_offset() -> None:
    window = maintenance(**{"from": "2026-12-05T22:00", "to": "2026-12-06T02:00:00Z", "zone": "Asia/Kolkata"})
    assert window.opening("any", at("2026-12-05T16:29:59Z")) is None
    assert window.opening("any", at("2026-12-05T16:30Z")) == Opening("", at("2026-12-06T02:00Z"))


def test_every_fault_of_every_window_is_told_at_the_start() -> None:
    windows = [
        {"zone": "Europe/Berlni", "from": "tomorrow", "days": ["mondy"], "hours": "8-9", "targets": []},
        {"name": "empty"},
        {"from": "2026-12-06T02:00", "to": "2026-12-06T02:00"},
        {"from": "2026-12-06T02:00", "hours": "06:00-06:00"},
        {"days": ["monday"], "to": "2026-12-06T02:00"},
    ]
    with pytest.raises(ConfigError) as caught:
        load(None, {"maintenance": windows}, {})
    told = "\n".join(map(str, caught.value.faults))
    for fault in (
        "maintenance[0].zone: must be a time zone such as Europe/Berlin or UTC; did you mean `Europe/Berlin`?",
        "maintenance[0].from: must be a date and time such as 2026-12-05T22:00",
        "maintenance[0].days[0]",
        "did you mean `monday`?",
        "maintenance[0].hours: must be two times of day such as 22:00-06:00",
        "maintenance[0].targets",
        "maintenance[1].hours: give from and to for once, or hours for every week",
        "maintenance[2].hours: to must be later than from",
        "maintenance[3].hours: begins and ends at once; the whole day is 00:00-24:00",
        "maintenance[4].hours: give from and to for once, or days and hours for every week, not both",
        "from and to go together; days need hours, such as 00:00-24:00",
    ):
        assert fault in told, told


def test_a_window_of_no_known_target_is_warned_of() -> None:
    targets = [{"name": "chat", "url": "http://a"}]
    windows = [{"hours": "22:00-23:00", "targets": ["chta", "ch*"]}]
    [warning] = [
        one for one in load(None, {"targets": targets, "maintenance": windows}, {}).warnings if "main" in one
    ]
    assert warning == "maintenance[0]: no target is called chta (did you mean `chat`?)"


def receivers(pager: Pager, inbox: Inbox) -> Senders:
    return senders({"urls": [pager.url], "resend_seconds": 20}, [{"url": inbox.url, "name": "hook"}])


def test_what_begins_in_a_window_is_told_when_the_window_ends_and_still_holds() -> None:
    lasts, passes = incident(), incident("engine-stalled", target="gpu-1")
    keys = {lasts.key, passes.key}
    with Pager(lambda: WALL + 50) as pager, Inbox() as inbox, running(receivers(pager, inbox)) as one:
        one.observe([lasts, passes], 0, WALL, keys, keys)
        one.observe([resolved(WALL + 4, "engine-stalled", target="gpu-1")], 5, WALL + 5, (), keys)
        assert [each.queue_length for each in one.statistics()] == [0, 0]
        one.observe([lasts], 10, WALL + 10, keys)
        [post] = inbox.wait_for(1)
        until(lambda: one.statistics()[0].sent == 1)
        assert post.json["alerts"][0]["startsAt"] == "2023-11-14T22:13:20.000Z"
        assert pager.page_log == [("VllmKvPoolExhausted", "firing")]


def test_what_fires_as_a_window_begins_goes_on_to_its_end_and_no_graver_page_is_added() -> None:
    milder, graver = incident(severity=Severity.WARNING), incident(severity=Severity.CRITICAL)
    held = {milder.key}
    with Pager(lambda: WALL + 50) as pager, Inbox() as inbox, running(receivers(pager, inbox)) as one:
        one.observe([milder], 0, WALL)
        until(lambda: one.statistics()[0].sent == 1)
        one.observe([graver], 20, WALL + 20, None, held)
        until(lambda: one.statistics()[0].sent == 2)
        assert {each["labels"]["severity"] for each in pager.alerts.values()} == {"warning"}
        assert pager.posts[-1].json[0]["endsAt"] > pager.posts[0].json[0]["endsAt"]
        one.observe([resolved(WALL + 40)], 40, WALL + 40, (), held)
        until(lambda: one.statistics()[0].sent == 3)
        inbox.wait_for(2)
        assert [post.json["status"] for post in inbox.posts] == ["firing", "resolved"]
        assert not any(each["firing"] for each in pager.alerts.values())
