"""Pages of Ray's metrics agent: several replicas on one, and counters that appear with their first event."""

import pytest

from tests.pages import page, scrape
from tests.places import CASES
from tests.watching import shipped_rules, watch
from watchdog.model import Snapshot, Target
from watchdog.replay.replay import Replay, replay
from watchdog.scrape.recording import read


def told(name: str) -> Replay:
    recording, scrapes = read(CASES / f"{name}.jsonl.xz")
    return replay(Target(recording.name, ""), scrapes, shipped_rules())


@pytest.mark.parametrize("name", ["72d-ray-slots-full", "72e-same-not-through-ray"])
def test_the_sequence_limit_leads_through_ray_as_without_it(name: str) -> None:
    leads = [moment.lead for moment in told(name).timeline]
    assert leads[-1] == "seqs-limited"
    assert set(leads) == {None, "seqs-limited"}


def test_replicas_on_one_page_are_compared_with_each_other() -> None:
    story = told("72b-ray-one-replica-starved")
    assert story.timeline[-1].lead == "replica-imbalance"
    assert story.timeline[5].alarming == ()
    full = [one for one in story.episodes if one.key.rule == "kv-pool-exhausted"]
    assert [one.explained_by for one in full] == [["replica-imbalance"]]


def replicas(at: float, rates: dict[str, float]) -> str:
    """A page of replicas, each with as many first tokens a second and requests in its batch."""
    texts = (
        page(
            f'model_name="m",engine="0",ReplicaId="{name}"',
            num_requests_running=rate,
            num_requests_waiting=0.0,
            time_to_first_token_seconds_count=rate * at,
            generation_tokens_total=100 * rate * at,
            prompt_tokens_total=500 * rate * at,
        )
        for name, rate in rates.items()
    )
    return "".join(texts)


def fleet_rules(snapshot: Snapshot) -> set[str]:
    return {one.key.rule for one in snapshot.incidents if one.key.rule == "replica-imbalance"}


def test_replicas_that_share_alike_and_a_replica_alone_are_no_imbalance() -> None:
    for rates in ({"a": 6.0, "b": 7.0, "c": 5.0}, {"a": 9.0}):
        last = watch(scrape(float(at), replicas(at, rates)) for at in range(0, 181, 5))[-1]
        assert fleet_rules(last) == set()
        assert last.replicated_models == (("m",) if len(rates) > 1 else ())


def test_a_replica_that_gets_nothing_is_named() -> None:
    last = watch(scrape(float(at), replicas(at, {"a": 9.0, "b": 0.0})) for at in range(0, 181, 5))[-1]
    assert fleet_rules(last) == {"replica-imbalance"}


def test_only_on_rays_page_is_an_absent_counter_zero() -> None:
    text = page('model_name="m",engine="0"', num_requests_running=2.0, generation_tokens_total=5.0)
    for name, is_blind in ((text, True), (text.replace("vllm:", "ray_vllm_"), False)):
        last = watch(scrape(float(at), name) for at in range(0, 61, 5))[-1]
        missing = {metric for one in last.blind for metric in one.missing}
        assert ("vllm:num_preemptions_total" in missing) is is_blind
