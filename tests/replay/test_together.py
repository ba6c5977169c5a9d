"""Recordings of several servers, run side by side."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.places import CASES
from tests.watching import shipped_rules
from watchdog.cli.main import app
from watchdog.model import Scrape, State, Target, Verdict
from watchdog.replay.together import Together, replay_together
from watchdog.report.bodies import fleet_verdicts
from watchdog.scrape.recording import read

PAIR = ("prefill", "decode")


def recorded(name: str, later: float = 0.0) -> tuple[Target, list[Scrape]]:
    """A recorded server, as if so many seconds later."""
    scrapes = read(CASES / f"{name}.jsonl.xz")[1]
    moved = [replace(one, at=one.at + later, wall=one.wall + later) for one in scrapes]
    return Target(name, ""), moved


def among(together: Together) -> dict[str, tuple[str, ...]]:
    """What fires among the servers, each with what explains it."""
    return {each.key.rule: each.explained_by for each in together.fleet if each.state is State.FIRING}


def test_a_prefill_server_that_nobody_asks_is_told_with_its_name() -> None:
    pair = [recorded(f"79b-pd-decode-only-{side}") for side in PAIR]
    together = replay_together(pair, shipped_rules())
    assert among(together) == {"prefill-side-unused": (), "replica-imbalance": ("prefill-side-unused",)}
    assert "Without a request: 79b-pd-decode-only-prefill." in together.fleet[0].cause
    assert [each.target.name for each in together.last] == [target.name for target, _ in pair]


def test_what_is_about_to_fire_among_servers_is_unsettled() -> None:
    pair = [recorded(f"79b-pd-decode-only-{side}") for side in PAIR]
    short = [(target, scrapes[:5]) for target, scrapes in pair]  # 20 s
    assert fleet_verdicts(replay_together(short, shipped_rules()).fleet) == {Verdict.UNSETTLED}
    assert fleet_verdicts(replay_together(pair, shipped_rules()).fleet) == {Verdict.DEGRADED}
    assert fleet_verdicts(()) == set()


def test_a_pair_at_work_is_no_incident() -> None:
    pair = [recorded(f"79a-pd-works-{side}") for side in PAIR]
    assert replay_together(pair, shipped_rules()).fleet == ()


def test_what_was_not_recorded_at_one_time_is_not_compared() -> None:
    prefill, decode = (
        recorded(f"79b-pd-decode-only-{side}", later) for side, later in zip(PAIR, (0, 900), strict=True)
    )
    assert replay_together([prefill, decode], shipped_rules()).fleet == ()


def test_one_recording_is_no_fleet() -> None:
    alone = replay_together([recorded("79b-pd-decode-only-decode")], shipped_rules())
    assert (len(alone.last), alone.fleet) == (1, ())


def diagnosed(*names: str) -> tuple[int, str]:
    files = [str(CASES / f"{name}.jsonl.xz") for name in names]
    done = CliRunner().invoke(app, ["diagnose", *files])
    return done.exit_code, done.stdout


def test_diagnose_judges_what_is_wrong_among_its_recordings() -> None:
    status, text = diagnosed(*(f"79b-pd-decode-only-{side}" for side in PAIR))
    assert status == 1
    assert "WARNING  fleet llama-70b: The prefill servers are unused" in text
    assert text.count("WARNING") == 1  # its symptom is not told as one more
    status, text = diagnosed(*(f"79a-pd-works-{side}" for side in PAIR))
    assert "fleet" not in text
    assert "WARNING" not in text


def test_diagnose_names_the_recording_without_a_scrape(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"name": "empty"}\n')
    done = CliRunner().invoke(app, ["diagnose", str(empty)])
    assert "it has no scrapes" in f"{done.output} {done.exception}"


@pytest.mark.parametrize("file", [f"79{one}" for one in ("a-pd-works", "b-pd-decode-only")])
def test_both_sides_of_a_pair_are_well_by_themselves(file: str) -> None:
    for side in PAIR:
        target, scrapes = recorded(f"{file}-{side}")
        last = replay_together([(target, scrapes)], shipped_rules()).last[0]
        assert last.lead is None
