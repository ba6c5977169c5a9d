"""A server at which nobody could look: what was known is unknown, and nothing begins, ends or counts as failed."""

from tests.pages import failed, page, scrape
from tests.watching import diagnosis, watch
from watchdog.model import Reason, Scrape, State, Verdict


def down(at: float) -> Scrape:
    return failed(at, Reason.REFUSED, 0)


def unseen(at: float) -> Scrape:
    return failed(at, Reason.NOT_SEEN, 0)


def test_a_server_that_nobody_could_look_at_is_unknown_and_never_down() -> None:
    pages = [scrape(5.0 * number, page(num_requests_running=0.0)) for number in range(12)]
    for snapshot in watch([*pages, *(unseen(60.0 + 15 * number) for number in range(100))])[12:]:
        assert (snapshot.verdict, snapshot.up, snapshot.incidents) == (Verdict.UNKNOWN, False, ())
        assert (snapshot.scrapes, snapshot.failures, snapshot.readings) == (12, {}, ())


def test_what_fires_goes_on_while_nobody_looks_and_ends_once_somebody_does() -> None:
    one = diagnosis()
    one.observe(scrape(0.0, page(num_requests_running=0.0)))
    for number in range(1, 8):
        fires = one.observe(down(5.0 * number))
    assert fires.lead is not None
    away = [one.observe(unseen(40.0 + 15 * number)) for number in range(100)]
    assert {each.verdict for each in away} == {Verdict.UNKNOWN}
    assert {(each.lead, each.transitions) for each in away} == {(fires.lead, ())}
    assert all(incident.unknown for each in away for incident in each.incidents)
    back = [one.observe(scrape(1600.0 + 5 * number, page(num_requests_running=0.0))) for number in range(20)]
    assert back[0].lead == fires.lead
    assert [each.state for each in back[-1].incidents if each.key == fires.lead] == [State.RESOLVED]


def test_what_an_earlier_life_has_judged_is_seen_and_not_judged_again() -> None:
    one, other = diagnosis(), diagnosis()
    scrapes = [scrape(5.0 * number, page(generation_tokens_total=9.0 * number)) for number in range(12)]
    for each in scrapes[:-1]:
        one.recollect(each)
        other.observe(each)
    now, same = one.observe(scrapes[-1]), other.observe(scrapes[-1])
    assert (now.verdict, now.readings, now.scrapes) == (same.verdict, same.readings, 12)
