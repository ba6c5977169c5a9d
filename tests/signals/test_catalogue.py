"""The catalogue: every signal renders PromQL, says what it is, and is unknown where its metric is missing."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.pages import history_of
from tests.places import SAMPLES
from watchdog.history.names import ALIASES, spellings, wanted
from watchdog.history.span import baseline_span, life_span, now_span, recent_span
from watchdog.model import Subject
from watchdog.signals.algebra import View
from watchdog.signals.catalogue import BASELINE, CATALOGUE, formula, lookup_of, metrics_of, signal_names

PAGES = sorted(SAMPLES.glob("*.prom"))


def test_prometheus_accepts_the_promql_of_every_signal(tmp_path: Path) -> None:
    rules = [
        {"record": f"signal:{name.lower()}", "expr": formula(name).promql("30s")}
        for name in sorted(CATALOGUE)
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "signals", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_names_end_in_their_unit_where_they_have_one() -> None:
    endings = {"s": "_seconds", "ratio": "_ratio", "1/s": "_per_second", "tokens/s": "_per_second"}
    for signal in CATALOGUE.values():
        ending = endings.get(signal.unit)
        named = ending is None or ending.strip("_") in signal.name or signal.name.endswith("_share_of_time")
        assert named, signal.name
        assert signal.description.endswith(".")


def test_every_signal_has_a_baseline() -> None:
    assert {name + BASELINE for name in CATALOGUE} <= signal_names()


def test_every_metric_a_signal_reads_is_taken_from_the_page() -> None:
    for name in signal_names():
        for metric in metrics_of(name):
            assert metric in ALIASES
            assert all(wanted(spelling) for spelling in spellings(metric))


@pytest.mark.parametrize("sample", PAGES, ids=lambda path: path.stem)
def test_every_signal_evaluates_on_a_page_of_every_version(sample: Path) -> None:
    history = history_of((float(at), sample.read_text()) for at in range(0, 61, 5))
    assert history.subjects()
    for model_name, engine in history.subjects():
        subject = Subject("t", model_name, engine)
        spans = (now_span(history, subject), recent_span(history, subject), life_span(history, subject))
        lookup = lookup_of(View(*spans, baseline_span(history, subject)))
        values = {name: lookup(name) for name in signal_names()}
        assert values["running_last"] is not None
        assert values["waiting_last"] is not None
        assert values["kv_usage_last_ratio"] is not None
        assert values["prompt_tokens_per_second"] == 0
        assert values["ttft_p50_seconds"] is None  # nothing was observed in the window


@pytest.mark.parametrize("sample", PAGES, ids=lambda path: path.stem)
def test_old_and_new_names_become_the_same_signals(sample: Path) -> None:
    text = sample.read_text()
    history = history_of([(0.0, text)])
    layout = history.frames[-1].layout
    model_name, engine = history.subjects()[0]
    for core in ("kv_cache_usage_perc", "num_requests_running", "generation_tokens_total"):
        columns = [layout.by_name[name] for name in spellings(f"vllm:{core}") if name in layout.by_name]
        assert columns, core
    usage = lookup_of(View(None, None, life_span(history, Subject("t", model_name, engine))))
    assert usage("kv_usage_last_ratio") == pytest.approx(0.412, abs=0.6)
