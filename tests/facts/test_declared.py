"""Every fact is declared once, beside the code that yields it, and every declared one is yielded."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.facts.test_balance import FIRST, SECOND
from tests.facts.test_pool import busy
from tests.facts.test_reachability import VLLM, fail
from tests.facts.test_server import layout
from tests.pages import history_of, page
from tests.places import ROOT
from watchdog.facts import declared
from watchdog.facts.balance import Load, fleet_facts, sister_facts
from watchdog.facts.fact import Fact, Known
from watchdog.facts.gauge_ranges import GaugeRanges
from watchdog.facts.host_memory import HostMemory
from watchdog.facts.inflight import InFlight, Moment
from watchdog.facts.pool import InferredPools
from watchdog.facts.reachability import Reachability
from watchdog.facts.restarts import Restarts
from watchdog.facts.server import KnownServer
from watchdog.facts.watching import Watching
from watchdog.history.history import Reset
from watchdog.model import (
    CanaryReading,
    Expectations,
    ModelShape,
    Objectives,
    Page,
    Reason,
    ServerInfo,
    Subject,
)
from watchdog.signals.catalogue import CATALOGUE, SIGNALS, Signals
from watchdog.signals.functions import View


def of_a_server() -> Iterator[Known]:
    told = Expectations(
        batch_jobs=True,
        expected_shared_prefix_tokens=600,
        objectives=Objectives(1.5, 0.05, 20.0),
        memory_bandwidth_bytes_per_second=3e12,
        shape=ModelShape(weight_bytes=15_000_000_000),
        vllm_args={"--max-num-seqs": "64", "--max-num-batched-tokens": "8k"},
    )
    one = KnownServer(told)
    one.learn(layout(gpu_memory_utilization="0.3"), ServerInfo(max_model_len=4096), False)
    one.learn(
        layout(num_gpu_blocks="900", gpu_memory_utilization="0.3"), ServerInfo(max_model_len=4096), True
    )
    yield from one.facts("m", "0")


def of_its_answers() -> Iterator[Known]:
    one = Reachability()
    one.answered(VLLM, 0.0)
    yield from one.facts(0.0)
    fail(one, 5.0, Reason.STATUS, 503)
    yield from one.facts(5.0)


def of_its_past() -> Iterator[Known]:
    restarts, watching, memory = Restarts(), Watching(), HostMemory()
    ranges = GaugeRanges()
    (frame,) = history_of([(0.0, page(kv_cache_usage_perc=-0.36))]).frames
    ranges.checked(Page(frame.layout.series, tuple(frame.values)))
    yield from ranges.engine_facts(frame.layout, "m", "0")
    memory.note(8e9, 0.0)
    memory.begin_again()
    memory.note(5e9, 10.0)
    yield from memory.facts(20.0, is_current=True)
    restarts.note([Reset("m", "0", 10.0)], 10.0, True, "nothing")
    restarts.began(60.0, 20.0)
    yield from restarts.facts(20.0)
    yield from restarts.engine_facts(("m", "0"), 20.0)
    subject = Subject("t", "m", "0")
    watching.note(subject, 3.0)
    watching.note_prompts(subject, 900.0, 300.0)
    yield from watching.engine_facts(subject, 10.0, 20.0)
    yield from watching.facts([])


def of_its_requests() -> Iterator[Known]:
    idle, stuck = InFlight(counts=True), InFlight()
    for number in range(6):
        idle.note(Moment(5.0 * number, False, 0, 40.0, 9.0))
        waits = CanaryReading(waits_since=2.0)
        stuck.note(Moment(5.0 * number, False, 3, 40.0 + number, 9.0 + number, waits))
    yield from idle.facts()
    yield from stuck.facts()


def of_its_pool() -> Iterator[Known]:
    pools, subject = InferredPools(), Subject("t", "m", "0")
    for _ in range(9):
        pools.note(subject, busy(20).get)
    yield from pools.engine_facts(subject)


def of_the_sisters() -> Iterator[Known]:
    engines = {Subject("t", "m", name): Load.of(SECOND.get) for name in "01"}
    return (known for _, known in sister_facts(engines))


def yielded() -> set[Fact]:
    """What the code yields where all is known."""
    of_the_fleet = fleet_facts([Load.of(FIRST.get), Load.of(SECOND.get)], [0.1, 0.9])
    return {
        fact
        for facts in (
            *(of_a_server(), of_its_pool(), of_its_answers(), of_its_past(), of_its_requests()),
            of_the_fleet,
            of_the_sisters(),
        )
        for fact, _ in facts
    }


def test_every_declared_fact_is_yielded_and_every_yielded_one_declared() -> None:
    assert {fact.name for fact in yielded()} == set(declared.DECLARED)


def test_a_fact_is_declared_in_one_place_only() -> None:
    made = Counter[str]()
    for path in sorted((ROOT / "watchdog").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Fact":
                assert isinstance(node.args[0], ast.Constant), "a fact is declared with its name"
                made[str(node.args[0].value)] += 1
                assert Path(path).stem in {module.__name__.rpartition(".")[2] for module in declared.MODULES}
    assert made == Counter(dict.fromkeys(declared.DECLARED, 1))


def test_a_fact_is_a_signal_by_its_own_name_with_its_own_words() -> None:
    for name, fact in declared.DECLARED.items():
        signal = CATALOGUE[name]
        assert (signal.unit, signal.description) == (fact.unit, fact.description)
        assert Signals(View(facts={name: 7.0}))(name) == 7
        assert Signals(View())(name) is None
        assert fact.description.endswith(".")


def test_no_signal_has_the_name_of_another_or_of_a_fact() -> None:
    assert [name for name, count in Counter(signal.name for signal in SIGNALS).items() if count > 1] == []
