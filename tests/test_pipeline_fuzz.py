"""Whatever a server sends, through the whole pipeline and out of every output: all of them stay well formed."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from pydantic import TypeAdapter

from tests.a_service import AService
from tests.a_site import Answer, Site, a_site
from tests.places import RECORDINGS, SAMPLES
from watchdog.diagnosis.fleet import FLEET
from watchdog.diagnosis.readings import LIMITS
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.model import (
    Expectations,
    Failure,
    Incident,
    ModelShape,
    Objectives,
    Reason,
    Scrape,
    ServerInfo,
    Severity,
    Snapshot,
    State,
    Target,
    Verdict,
)
from watchdog.notify.alert import Alert, AlertBuilder
from watchdog.report.bodies import DiagnosisBody
from watchdog.resources import shipped_rules_directory
from watchdog.rule.rule_set import RuleSet, load
from watchdog.scrape.recording import read
from watchdog.signals.catalogue import signal_names

INCIDENT, ALERT = TypeAdapter(Incident), TypeAdapter(Alert)
SAMPLE_PAGES = sorted(SAMPLES.glob("*.prom"))
NAME = "fuzzed"
WALL = 1_790_000_000.0
# Ours are closed sets; a server may fill these two and nothing else.
FROM_TARGETS = frozenset({"model_name", "engine"})
# Of ours, and of the settings.
PLAIN_LABELS = frozenset({"version", "revision", "pythonversion", "external_url"})
SCRIPT = "<script>alert(1)</script>"
EXPECTATIONS = Expectations(
    expected_shared_prefix_tokens=500,
    objectives=Objectives(1.0, 0.05, 10.0),
    gpu="H200",
    shape=ModelShape(32, 8, 128, 16_000_000_000),
    vllm_args={"--max-num-seqs": "64", "--max-model-len": "8192", "--tensor-parallel-size": "2"},
)


# A rule that always speaks, and quotes every signal, so that every value reaches every text.
def quoting(identity: str, scope: str, names: Sequence[str]) -> str:
    shown = " ".join(f"{name} {{{name}:.2f}} {{{name}}}" for name in names)
    clauses = [f"known({name}) or not known({name}) or {name} > 0" for name in names[::10]]
    return f"""
id: {identity}
title: Quotes all that it is told
severity: warning
scope: {scope}
for: 0s
keep_firing_for: 0s
parameters: {{}}
when: {json.dumps(clauses)}
explains: []
cause: "{{failure}} {{last_words}} {{blind}} {{version}} {shown}"
remedies:
  - {{action: "Set {{value}}", flag: --max-model-len, suggest: "{names[0]} * 2", why: "a", price: "b"}}
false_positives: ["always"]
references: ["none"]
tests: []
"""


class House:
    """A service whose one target is told what to say, and its API."""

    def __init__(self, service: AService, site: Site[AService]) -> None:
        self.service = service
        self.site = site

    def __repr__(self) -> str:
        return "House()"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("rules")
    names = sorted(signal_names())
    for scope in ("engine", "target"):
        for part in range(0, len(names), 60):
            identity = f"quotes-{scope}-{part}"
            (folder / f"{identity}.yaml").write_text(quoting(identity, scope, names[part : part + 60]))
    rules = load([shipped_rules_directory(), folder], signal_names(), allow_untested=True)
    service = AService(rules, (Target(NAME, "http://fuzzed/metrics", EXPECTATIONS),))
    with a_site(service) as site:
        yield House(service, site)


class Made(NamedTuple):
    """A page as it was made: a real one (its place in `PAGES`, or in a recording) or bytes, and what was done to it."""

    base: int | bytes | tuple[str, int]
    changes: tuple["Change", ...] = ()

    @property
    def body(self) -> bytes:
        """The page."""
        match self.base:
            case bytes():
                body = self.base
            case int():
                body = PAGES[self.base]
            case name, place:
                pages = story(name)
                body = pages[place % len(pages)]
        for change in self.changes:
            body = change.apply(body)
        return body


class Step(NamedTuple):
    """What comes next: seconds later, how the wall clock jumps, and a page or None for a scrape that failed."""

    seconds: float
    jump: float
    page: Made | None


def feed(house: House, steps: Sequence[Step]) -> Snapshot:
    """The steps through a fresh diagnosis; the last snapshot, checked as far as no request is needed."""
    diagnosis = TargetDiagnosis(house.service.targets()[0], house.service.rules)
    at, shift = 1000.0, 0.0
    for index, step in enumerate(steps):
        at, shift = at + step.seconds, shift + step.jump
        wall = WALL + at + shift
        body = step.page.body if step.page else b""
        failure = None if step.page else Failure(Reason.TIMEOUT, "no page within 4 s")
        server_info = ServerInfo("0.24.0", 8192, ("m",)) if index % 3 == 1 else ServerInfo()
        status = 200 if failure is None else 0
        snapshot = diagnosis.observe(Scrape(at, wall, 0.01, status, body, failure, server_info))
    check_snapshot(snapshot, house.service.rules)
    return snapshot


def check_snapshot(snapshot: Snapshot, rules: RuleSet) -> None:
    assert not snapshot.rule_errors
    assert len({incident.key for incident in snapshot.incidents}) == len(snapshot.incidents)
    assert snapshot.lead is None or snapshot.lead in {incident.key for incident in snapshot.firing}
    builder = AlertBuilder({"cluster": "a"}, "http://watchdog:9847")
    for incident in snapshot.incidents:
        assert incident.key.target == NAME
        assert rules.find(incident.key.rule) is not None
        assert INCIDENT.validate_json(INCIDENT.dump_json(incident)) == incident
        assert incident.resolved_at is None or incident.resolved_at >= (
            incident.firing_since or incident.pending_since
        )
        alert = builder.build(incident)
        assert set(alert.labels) <= {"alertname", "rule", "severity", "target", "cluster", *FROM_TARGETS}
        assert alert.labels["target"] == NAME
        assert ALERT.validate_json(ALERT.dump_json(alert)) == alert
        check_texts(json.loads(ALERT.dump_json(alert).decode()))
        assert (incident.state is State.RESOLVED) == (incident.resolved_at is not None)


def check_outputs(house: House, snapshot: Snapshot) -> None:
    house.service.last = {NAME: snapshot}
    DiagnosisBody.model_validate(strict_json(asked(house, "/diagnose", "application/json")))
    for path in ("/diagnose", "/incidents", "/targets", "/rules", "/readyz"):
        check_texts(strict_json(asked(house, path, "application/json")))
    told = asked(house, "/diagnose?format=text", "text/plain").body.decode()
    assert all(letter.isprintable() or letter == "\n" for letter in told)
    assert NAME in told
    assert SCRIPT not in asked(house, "/", "text/html").body.decode()
    check_metrics(house, asked(house, "/metrics", "text/plain").body.decode())


def check_texts(value: Any) -> None:
    """No text that leaves holds what a terminal, a page or a pager takes for something else."""
    if isinstance(value, str):
        assert all(letter.isprintable() or letter == "\n" for letter in value), ascii(value)
    elif isinstance(value, dict):
        check_texts([*value, *value.values()])
    elif isinstance(value, list):
        for each in value:
            check_texts(each)


def asked(house: House, path: str, kind: str) -> Answer:
    answer = house.site.ask(path)
    assert answer.status == 200, answer.text
    assert answer.headers["content-type"].startswith(kind)
    return answer


def strict_json(answer: Answer) -> Any:
    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    return json.loads(answer.body.decode(), parse_constant=no_constant, object_pairs_hook=no_repeats)


def check_metrics(house: House, text: str) -> None:
    allowed: dict[str, Collection[str]] = {
        "target": {NAME, FLEET},
        "rule": {rule.id for rule in house.service.rules.rules},
        "severity": set(Severity),
        "reason": set(Reason),
        "limit": set(LIMITS),
        "phase": {"before_engine", "queue", "prefill", "decode"},
        "verdict": set(Verdict),
    }
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    assert len(lines) == len(samples)
    assert len({(one.name, frozenset(one.labels.items())) for one in samples}) == len(samples)
    for sample in samples:
        assert sample.name.startswith(("vllm_watchdog_", "process_"))
        assert set(sample.labels) <= {*allowed, *FROM_TARGETS, *PLAIN_LABELS}
        # A rule that fires nowhere has one series of no target, for alerts on its absence.
        is_of_no_target = sample.value == 0 and sample.labels.get("target") == ""
        for name, value in sample.labels.items():
            is_known = name in FROM_TARGETS | PLAIN_LABELS or value in allowed[name]
            assert is_known or (is_of_no_target and not value)
            assert len(value) <= 200


@cache
def story(name: str) -> tuple[bytes, ...]:
    """The first pages of a recording."""
    _, scrapes = read(RECORDINGS / f"{name}.jsonl.xz")
    return tuple(scrape.body for scrape in islice(scrapes, 150))


def real_pages() -> list[bytes]:
    """One real page of each version, and some in the middle of a fault."""
    told = [path.read_bytes() for path in SAMPLE_PAGES]
    names = ("kv-pool-exhausted", "dp-imbalance", "v0.8.5-V0-kv-pool-exhausted", "spec-decode")
    return told + [story(name)[60] for name in names]


PAGES = real_pages()
# Written in short, so that what fails can be printed.
LONG = {"<400 digits>": "9" * 400, "<5000 digits>": "9" * 5000, "<long>": "a" * 500}
STRANGE_NUMBERS = (
    "NaN",
    "+Inf",
    "-Inf",
    "-1",
    "0",
    "-0.0",
    "5e-324",
    "1e308",
    "1e999",
    "<400 digits>",
    "0x10",
    "1_0",
    "",
    "1.5 1700000000000",
    "1 # {} 1",
)
STRANGE_TEXTS = (
    "",
    " ",
    "-",
    "*",
    "\\n",
    '\\"',
    "\\\\",
    "\x1b[31m",
    "\r",
    "\x85",
    "\u2028",
    "\u202e",
    "{{ 7*7 }}",
    "{0}",
    "%s",
    SCRIPT,
    '\\",rule=\\"x',
    '\\"} 1\\nvllm_watchdog_lead{x=\\"',
    "<long>",
    "ü☃\U0001f600",
    "\udfff",
    "1e300",
    "<5000 digits>",
    "None",
)
CLAIMED = (
    "target",
    "rule",
    "severity",
    "alertname",
    "__name__",
    "cluster",
    "instance",
    "le",
    "reason",
    "limit",
)
numbers = st.one_of(st.sampled_from(STRANGE_NUMBERS), st.floats().map(repr))
texts = st.one_of(st.sampled_from(STRANGE_TEXTS), st.text(max_size=20))
places = st.floats(0, 1, exclude_max=True)


class Change(NamedTuple):
    """A change to a page: what is done, where (a share of the page), and with which text."""

    kind: str
    place: float
    text: str

    def apply(self, body: bytes) -> bytes:
        """The page after it."""
        text = LONG.get(self.text, self.text).encode("utf-8", "surrogatepass")
        if self.kind in {"cut", "splice"}:
            place = int(self.place * len(body))
            return body[:place] + (b"" if self.kind == "cut" else text + body[place + len(text) :])
        lines = body.split(b"\n")
        return b"\n".join(LINE_CHANGES[self.kind](lines, int(self.place * len(lines)), text))


Lines = list[bytes]


def with_value_at(lines: Lines, at: int, text: bytes) -> Lines:
    return [*lines[:at], _valued(lines[at], text), *lines[at + 1 :]]


def with_values_of_a_metric(lines: Lines, at: int, text: bytes) -> Lines:
    name = lines[at].partition(b"{")[0]
    return [_valued(line, text) if line.startswith(name) else line for line in lines]


def with_label(lines: Lines, at: int, text: bytes) -> Lines:
    label = lines[at].partition(b'="')[0].rpartition(b"{")[2].rpartition(b",")[2]
    changed = [_relabelled(line, label, text) for line in lines[at : at + 40]]
    return lines[:at] + changed + lines[at + 40 :]


def with_claim(lines: Lines, at: int, text: bytes) -> Lines:
    """Labels that are ours to give, on every series."""
    claim = b"{" + CLAIMED[at % len(CLAIMED)].encode() + b'="' + text + b'",'
    return [line if line[:1] == b"#" else line.replace(b"{", claim, 1) for line in lines]


def without_some(lines: Lines, at: int, text: bytes) -> Lines:
    return lines[:at] + lines[at + 1 + len(text) :]


def with_repeats(lines: Lines, at: int, text: bytes) -> Lines:
    return lines[: at + 20] + lines[at:]


def with_another_engine(lines: Lines, at: int, text: bytes) -> Lines:
    return lines + [line.replace(b'engine="0"', b'engine="' + text + b'"') for line in lines]


def with_config(lines: Lines, at: int, text: bytes) -> Lines:
    first = at % len(CONFIG)
    for label in CONFIG[first : first + 2]:
        lines = [_relabelled(line, label, text) if b"config_info{" in line else line for line in lines]
    return lines


def _valued(line: bytes, text: bytes) -> bytes:
    return line.rpartition(b" ")[0] + b" " + text


def _relabelled(line: bytes, label: bytes, text: bytes) -> bytes:
    begin = line.find(label + b'="')
    if begin < 0 or not label:
        return line
    begin += len(label) + 2
    return line[:begin] + text + line[line.find(b'"', begin) :]


LINE_CHANGES: Mapping[str, Callable[[Lines, int, bytes], Lines]] = {
    "value": with_value_at,
    "values": with_values_of_a_metric,
    "label": with_label,
    "claim": with_claim,
    "drop": without_some,
    "repeat": with_repeats,
    "engines": with_another_engine,
    "config": with_config,
}
CONFIG = (
    b"block_size",
    b"num_gpu_blocks",
    b"kv_cache_size_tokens",
    b"kv_cache_memory_bytes",
    b"cache_dtype",
    b"engine",
    b"enable_prefix_caching",
)
changes = st.builds(
    Change, st.sampled_from([*LINE_CHANGES, "cut", "splice"]), places, st.one_of(numbers, texts)
)
damaged = st.builds(Made, st.integers(0, len(PAGES) - 1), st.lists(changes, max_size=4).map(tuple))
odd_pages = st.one_of(st.binary(max_size=60), st.just(b"process_open_fds 9\n")).map(Made)
seconds = st.sampled_from([0.0, 0.001, 1.0, 5.0, 5.0, 5.0, 15.0, 30.0, 61.0, 700.0, 4000.0])
jumps = st.sampled_from([0.0, 0.0, 0.0, 3600.0, -3600.0, -1.9e9, 1e12, -1e12, 1e300])
any_page = st.one_of(st.none(), damaged, damaged, damaged, odd_pages)
steps = st.builds(Step, seconds, jumps, any_page)
# Without shrinking, which would take minutes here: what fails is small enough as it is.
bounded = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


@given(st.lists(steps, min_size=1, max_size=8))
@bounded
def test_any_sequence_of_pages_leaves_every_output_well_formed(house: House, given_steps: list[Step]) -> None:
    check_outputs(house, feed(house, given_steps))


@given(
    st.sampled_from(
        ["kv-pool-exhausted", "restart", "dp-imbalance", "engine-hang", "v0.10.2-preemption-thrash"]
    ),
    st.integers(0, 5),
    st.lists(st.tuples(st.integers(0, 11), changes), max_size=6),
    st.lists(st.tuples(st.integers(0, 11), st.one_of(st.none(), seconds)), max_size=4),
)
@settings(bounded, max_examples=15)
def test_a_real_incident_with_damaged_pages_between_leaves_every_output_well_formed(
    house: House,
    name: str,
    place: int,
    hurt: list[tuple[int, Change]],
    odd: list[tuple[int, float | None]],
) -> None:
    told: list[Made | None] = [Made((name, place * 24 + index)) for index in range(12)]
    for index, change in hurt:
        made = told[index]
        told[index] = made and Made(made.base, (*made.changes, change))
    pauses = [5.0] * len(told)
    for index, pause in odd:
        if pause is None:
            told[index] = None
        else:
            pauses[index] = pause
    check_outputs(house, feed(house, [Step(p, 0.0, one) for p, one in zip(pauses, told, strict=True)]))


@given(st.binary(max_size=200), st.lists(numbers, min_size=3, max_size=3))
@example(b"", ["1e308", "1e308", "1e308"])
@bounded
def test_numbers_at_the_edge_of_what_a_float_holds_break_nothing(
    house: House, tail: bytes, three: list[str]
) -> None:
    told = [Made(b"\n".join([*with_value(value), tail])) for value in three]
    check_outputs(house, feed(house, [Step(15.0, 0.0, one) for one in told]))


def with_value(value: str) -> Iterator[bytes]:
    """The lines of a real page, all of vLLM's numbers this one."""
    for line in PAGES[-4].split(b"\n"):
        is_number = line.startswith(b"vllm:") and b"_info{" not in line
        yield line.rpartition(b" ")[0] + b" " + LONG.get(value, value).encode() if is_number else line


def test_the_pages_that_are_changed_are_read_as_they_are(house: House) -> None:
    for place in range(len(PAGES)):
        snapshot = feed(house, [Step(15.0, 0.0, Made(place))] * 2)
        assert snapshot.up
        assert snapshot.readings
        check_outputs(house, snapshot)
