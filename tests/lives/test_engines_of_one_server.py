"""Two simulated engines of one server: where one has the room that the other lacks, and where one of them hangs."""

from dataclasses import replace

import pytest

from tests.lives.simulated_engine import Engine
from tests.lives.test_simulated import BEGIN, END, SMALL, load, seen
from tests.watching import firing, lead
from watchdog.model import Incident, Snapshot

TIGHT = replace(SMALL, pool_tokens=12_000)
POOL_RULES = ("kv-pool-exhausted", "preemption-thrash")


def told_of(snapshot: Snapshot, rules: tuple[str, ...]) -> list[Incident]:
    return [one for one in snapshot.firing if one.key.rule in rules]


@pytest.mark.parametrize("share_of_sister", [0.1, 1.5], ids=["sister with room", "sister as full"])
def test_memory_is_asked_for_only_where_no_sister_has_room(share_of_sister: float) -> None:
    calm = [*load(TIGHT, 0.1, 0, BEGIN)]
    hot = Engine(TIGHT, [*calm, *load(TIGHT, 1.5, BEGIN, END)])
    sister = Engine(
        replace(TIGHT, engine="1"),
        [*load(TIGHT, 0.1, 1, BEGIN), *load(TIGHT, share_of_sister, BEGIN + 1, END)],
    )
    told = [
        one
        for at, snapshot, _ in seen([hot, sister], END).snapshots
        if at > BEGIN + 45
        for one in told_of(snapshot, POOL_RULES)
    ]
    assert told, "the pool is exhausted"
    for one in told:
        first, flags = one.remedies[0].action, {remedy.flag for remedy in one.remedies}
        if share_of_sister < 1:
            assert "chooses the engine" in first
            assert not flags & {"--kv-cache-dtype", "--gpu-memory-utilization"}
    if share_of_sister > 1:
        assert any("--kv-cache-dtype" in {remedy.flag for remedy in one.remedies} for one in told)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_hangs_is_named_while_its_sister_works(rank: int) -> None:
    engines = []
    for number in (0, 1):
        setup = replace(SMALL, engine=str(number))
        hangs = ((BEGIN, END),) if number == rank else ()
        engines.append(Engine(setup, load(setup, 0.3, number, END + 60), hangs=hangs))
    told = seen(engines, END)
    assert told.alarms(end=BEGIN) == set()
    for at, snapshot, _ in told.snapshots:
        if at > BEGIN + 30:
            assert lead(snapshot) == "engine-stalled", firing(snapshot)
            assert {one.key.engine for one in told_of(snapshot, ("engine-stalled",))} == {str(rank)}
