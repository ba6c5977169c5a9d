"""F94: a library that warns in a new way, and a vLLM that renames a metric."""

import re
import tomllib
import warnings
from pathlib import Path

import pytest

from tests.pages import scrape
from tests.watching import diagnosis, firing, lead, watch
from watchdog.facts.version import fingerprint, version
from watchdog.history.names import CORE, spellings, wanted
from watchdog.model import Snapshot, Verdict
from watchdog.scrape.exposition import SeriesCache, parse
from watchdog.scrape.recording import read, thin

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
SAMPLES = sorted((HERE.parent / "samples").glob("*.prom"))
NEWEST = HERE.parent / "samples" / "0.33.0-v1.prom"
SICK = HERE.parent / "recordings" / "kv-pool-exhausted.jsonl.xz"
# What a page of the newest vLLM lacks because nobody uses it there: connectors, LoRA, drafts, an HTTP layer.
UNUSED = {
    "vllm:corrupted_requests_total",
    "vllm:lora_requests_info",
    "vllm:nixl_num_failed_transfers_total",
    "vllm:nixl_num_kv_expired_reqs_total",
    "vllm:nixl_num_notifications_after_expiry_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "http_requests_total",
}


def seen(text: str, seconds: int = 60) -> Snapshot:
    """What is said after a minute of a server that shows this page and does nothing."""
    return watch(scrape(float(at), text) for at in range(0, seconds + 1, 5))[-1]


def missing(snapshot: Snapshot) -> set[str]:
    """The metrics for want of which some rule is blind."""
    return {metric for blind in snapshot.blind for metric in blind.missing}


def test_f94_a_warning_fails_the_tests() -> None:
    options = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["filterwarnings"] == ["error"]
    with pytest.raises(DeprecationWarning):
        warnings.warn("soon this will be gone", DeprecationWarning, stacklevel=1)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_f94_a_page_of_each_version_is_read_as_what_it_is(sample: Path) -> None:
    said, engine = re.fullmatch(r"([0-9.]+)-(v[01]).*", sample.stem).groups()  # type: ignore[union-attr]
    snapshot = seen(sample.read_text())
    # Three wait and nothing moves: nothing that a rule would call a stall yet is proof of health either.
    assert snapshot.verdict is Verdict.UNSETTLED
    assert snapshot.lead is None
    assert not snapshot.rule_errors
    assert snapshot.vllm.engine == engine
    names = [series.name for series in parse(sample.read_bytes(), SeriesCache(wanted)).series]
    assert fingerprint(names, snapshot.vllm.config).contains(version(said))
    for readings in snapshot.readings:
        known = {name for name, value in readings.values.items() if value is not None}
        assert known >= {
            "running_requests",
            "waiting_requests",
            "kv_usage_ratio",
            "generation_tokens_per_second",
        }


def test_f94_the_newest_version_lacks_nothing_but_what_is_not_in_use() -> None:
    """Fails when a rule needs a metric that no current page has: then the table of names is behind vLLM."""
    assert missing(seen(NEWEST.read_text())) <= UNUSED


# The families that every rule of weight leans on.
LEANED_ON = (
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "prompt_tokens",
    "generation_tokens",
    "iteration_tokens_total",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_success",
    "request_prompt_tokens",
    "request_generation_tokens",
    "prefix_cache_queries",
    "num_preemptions",
    "cache_config_info",
)


def sick(family: str = "") -> Snapshot:
    """What is said of a server whose KV cache is exhausted and whose metrics of one family have another name."""
    one = diagnosis()
    pattern = re.compile(rf"\bvllm:{family}(_total|_bucket|_sum|_count)?\b")
    for each in list(thin(read(SICK)[1], 5))[2:30]:
        text = each.body.decode()
        assert not family or pattern.search(text)
        snapshot = one.observe(
            scrape(each.at, pattern.sub(rf"vllm:new_{family}\1", text) if family else text)
        )
    return snapshot


@pytest.mark.parametrize("family", LEANED_ON)
def test_f94_a_renamed_metric_makes_rules_blind_by_its_name_and_never_makes_one_fire(family: str) -> None:
    """What needs it says so, what does not need it goes on; nothing is made of its absence."""
    before, after = sick(), sick(family)
    assert firing(before) >= {"kv-pool-exhausted", "ttft-high"}
    assert not after.rule_errors
    assert firing(after) <= firing(before) | {"blind-rules"}
    lost = missing(after) - missing(before)
    # A rule of a feature that is not in use may now lack both.
    assert all(metric.startswith(f"vllm:{family}") or metric in UNUSED for metric in lost)
    assert bool(lost) == (family not in UNDECIDED)
    if family not in {"num_requests_waiting", "kv_cache_usage_perc"}:
        assert lead(after) == "kv-pool-exhausted"


# No rule hangs on these alone here: each is decided by other figures, or they are only quoted.
UNDECIDED = {
    "request_queue_time_seconds",
    "iteration_tokens_total",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
}


@pytest.mark.parametrize("core", [core for core in CORE if f"\n{core}{{" in NEWEST.read_text()])
def test_f94_an_engine_is_seen_by_any_one_of_its_core_series(core: str) -> None:
    text = NEWEST.read_text()
    others = [name for one in CORE if one != core for name in spellings(one)]
    for name in others:
        text = re.sub(rf"^{re.escape(name)}\b", f"vllm:gone_{name[5:]}", text, flags=re.MULTILINE)
    assert [readings.subject.engine for readings in seen(text, 20).readings] == ["0"]
