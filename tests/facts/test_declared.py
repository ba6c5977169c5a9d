"""Every fact is declared once, beside the code that yields it, and every declared one is yielded."""

from collections.abc import Iterator

from tests.facts.test_balance import FIRST, SECOND
from tests.facts.test_reachability import VLLM, fail
from tests.facts.test_server import layout
from watchdog.facts import declared
from watchdog.facts.balance import Load, fleet_facts
from watchdog.facts.fact import Fact, Known
from watchdog.facts.reachability import Reachability
from watchdog.facts.restarts import Restarts
from watchdog.facts.server import ServerFacts
from watchdog.facts.watching import Watching
from watchdog.history.history import Reset
from watchdog.model import Expectations, Facts, ModelShape, Objectives, Reason, Subject


def of_a_server() -> Iterator[Known]:
    told = Expectations(
        expected_shared_prefix_tokens=600,
        objectives=Objectives(1.5, 0.05, 20.0),
        memory_bandwidth_bytes_per_second=3e12,
        shape=ModelShape(weight_bytes=15_000_000_000),
        vllm_args={"--max-num-seqs": "64", "--max-num-batched-tokens": "8k"},
    )
    one = ServerFacts(told)
    one.learn(layout(), Facts(max_model_len=4096), False)
    one.learn(layout(num_gpu_blocks="900"), Facts(max_model_len=4096), True)
    yield from one.facts("m", "0")


def of_its_answers() -> Iterator[Known]:
    one = Reachability()
    one.answered(VLLM, 0.0)
    yield from one.facts(0.0)
    fail(one, 5.0, Reason.STATUS, 503)
    yield from one.facts(5.0)


def of_its_past() -> Iterator[Known]:
    restarts, watching = Restarts(), Watching()
    restarts.note([Reset("m", "0", 10.0)], 10.0, True, "nothing")
    yield from restarts.facts(20.0)
    yield from restarts.engine_facts(("m", "0"), 20.0)
    subject = Subject("t", "m", "0")
    watching.note(subject, 3.0)
    yield from watching.engine_facts(subject, 10.0, 20.0)
    yield from watching.facts([])


def yielded() -> set[Fact]:
    """What the code yields where all is known."""
    of_the_fleet = fleet_facts([Load.of(FIRST.get), Load.of(SECOND.get)], [0.1, 0.9])
    return {
        fact for facts in (of_a_server(), of_its_answers(), of_its_past(), of_the_fleet) for fact, _ in facts
    }


def test_every_declared_fact_is_yielded_and_every_yielded_one_declared() -> None:
    assert {fact.name for fact in yielded()} == set(declared.DECLARED)
