"""Remedies: only what this server can use, does not do already, and gains from."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.watching import shipped_rules
from watchdog.facts import flags as flags_module
from watchdog.facts.flags import (
    Kind,
    all_flags,
    find_flag,
    known_versions,
)
from watchdog.facts.gpus import MemoryClass
from watchdog.facts.hints import missing_expectations
from watchdog.facts.launch import ServerContext, amount
from watchdog.facts.version import Engine, Version, VersionRange, default_engine, version, version_range
from watchdog.history.number import AtLeast
from watchdog.language.template import Template
from watchdog.model import Expectations, Incident, Key, ModelShape, Objectives, Remedy, Severity, State, Truth
from watchdog.remedy.instruction import instruction
from watchdog.remedy.lint import lint
from watchdog.remedy.offer import offer
from watchdog.remedy.order import reconcile
from watchdog.rule.file import rule_file
from watchdog.rule.reader import read_rule
from watchdog.rule.rule import Direction, RemedyRule, Rule

SIGNALS = frozenset(
    {"waiting_last", "pool_tokens", "fp8_pool_tokens", "request_tokens_mean", "request_tokens_p99", "wanted"}
    | {"gpu_memory_utilization_ratio"}
)
LABELS = {"cache_dtype": "auto", "enable_prefix_caching": "True", "gpu_memory_utilization": "0.9"}
NOTHING: dict[str, float] = {}
LATE = ServerContext(version=version("0.32.0"), engine="v1", config=LABELS)
OLD = ServerContext(version=version("0.6.6"), engine="v0", config=LABELS | {"enable_prefix_caching": "False"})


def rule_of(*remedies: Mapping[str, Any], **fields: Any) -> Rule:
    told = [{"action": "Act.", "why": "w", "price": "p"} | dict(remedy) for remedy in remedies]
    content: dict[str, Any] = {
        "id": "example",
        "title": "An example",
        "severity": "warning",
        "when": ["waiting_last > 0"],
        "cause": "c",
        "remedies": told,
    }
    file = rule_file("example.yaml", yaml.safe_dump(content | fields).encode())
    read = read_rule(file, Path("example.yaml"), SIGNALS, {})
    assert read is not None, [str(fault) for fault in file.faults]
    return read.rule


def complaints(rule: Rule) -> list[str]:
    return [complaint.text for complaint in lint(rule)]


def offered(remedy: Mapping[str, Any], context: ServerContext = LATE, **signals: float) -> Remedy | None:
    remedies, _ = offer(rule_of(remedy), signals.get, context)
    return remedies[0] if remedies else None


def value_of(remedy: Mapping[str, Any], context: ServerContext = LATE, **signals: float) -> str | None:
    found = offered(remedy, context, **signals)
    return found.value if found else None


def switch(flag: str) -> dict[str, str]:
    return {"flag": flag, "action": f"Set {flag}."}


SEQUENCES = {
    "flag": "--max-num-seqs",
    "suggest": "pool_tokens / request_tokens_mean",
    "direction": "lower",
    "action": "Lower it to {value}.",
    "why": "The pool holds {pool_tokens:,.0f} tokens.",
}
CONTEXT_LENGTH = {
    "flag": "--max-model-len",
    "suggest": "2 * request_tokens_p99",
    "direction": "lower",
    "action": "To {value}.",
}
FP8 = {
    "flag": "--kv-cache-dtype",
    "value": "fp8",
    "action": "Keep the cache in fp8: {fp8_pool_tokens:,.0f} tokens.",
}
SHARE = {
    "flag": "--gpu-memory-utilization",
    "value": "0.95",
    "direction": "raise",
    "action": "Raise it to {value}.",
}


def budget(direction: str) -> dict[str, str]:
    return {"flag": "--max-num-batched-tokens", "suggest": "wanted", "direction": direction}


# What is computed


def test_a_remedy_carries_its_value_and_the_figures_behind_it() -> None:
    remedy = offered(SEQUENCES, pool_tokens=439_184, request_tokens_mean=1_500)
    assert remedy == Remedy(
        action="Lower it to 292.",
        flag="--max-num-seqs",
        value="292",
        why="The pool holds 439,184 tokens.",
        price="p",
        direction="lower",
        lasting=True,
    )


@pytest.mark.parametrize(
    ("flag", "said", "lasting"),
    [
        (True, None, True),
        (True, False, False),
        (False, None, False),
        (False, True, True),
    ],
)
def test_a_flag_lasts_and_an_action_helps_now_unless_the_rule_says_otherwise(
    flag: bool, said: bool | None, lasting: bool
) -> None:
    remedy = {**(SEQUENCES if flag else {"action": "Wait."}), **({} if said is None else {"lasting": said})}
    found = offered(remedy, pool_tokens=439_184, request_tokens_mean=1_500)
    assert found is not None
    assert found.lasting is lasting


@pytest.mark.parametrize(
    ("remedy", "wanted", "value"),
    [
        (SEQUENCES | {"suggest": "wanted"}, 0.4, "1"),
        (SEQUENCES | {"suggest": "wanted"}, 292.9, "292"),
        (CONTEXT_LENGTH | {"suggest": "wanted"}, 4_100, "4352"),
        (CONTEXT_LENGTH | {"suggest": "wanted"}, 4_096, "4096"),
        (CONTEXT_LENGTH | {"suggest": "wanted"}, 9_000, "9216"),
        (budget("raise"), 2_049, "4096"),
        (budget("raise"), 90_000, "16384"),
        (budget("lower"), 2_049, "2048"),
        (budget("lower"), 100, "256"),
        (SHARE | {"value": None, "suggest": "wanted"}, 0.9349, "0.93"),
        (SHARE | {"value": None, "suggest": "wanted"}, 1.2, "0.95"),
        (SHARE | {"value": None, "suggest": "wanted"}, 0.6, None),
        ({"flag": "--watermark", "suggest": "wanted"}, 0.0213, "0.02"),
        ({"flag": "--kv-offloading-size", "suggest": "wanted"}, 7.2, "8"),
        (SEQUENCES | {"suggest": "wanted"}, -3.0, None),
    ],
)
def test_values_are_what_people_would_type(remedy: dict[str, Any], wanted: float, value: str | None) -> None:
    remedy = {name: text for name, text in remedy.items() if text is not None}
    assert value_of(remedy, wanted=wanted) == value


def test_a_value_that_is_not_known_takes_a_remedy_away_only_where_its_text_needs_it() -> None:
    assert offered(SEQUENCES, pool_tokens=439_184) is None
    assert offered(SEQUENCES, pool_tokens=439_184, request_tokens_mean=AtLeast(1_500)) is None
    plain = offered(SEQUENCES | {"action": "Lower it.", "why": "w"}, pool_tokens=439_184)
    assert plain is not None
    assert plain.value is None


def test_a_batch_never_holds_more_requests_than_a_step_takes_tokens() -> None:
    context = replace(LATE, args={"--max-num-batched-tokens": "512", "--max-num-seqs": "256"})
    remedy = SEQUENCES | {"suggest": "wanted", "direction": "raise"}
    assert value_of(remedy, context, wanted=900, pool_tokens=1) == "512"


def test_a_budget_below_the_batch_or_below_a_whole_prompt_is_not_offered() -> None:
    assert value_of(budget("lower"), replace(LATE, args={"--max-num-seqs": "1024"}), wanted=512) is None
    assert value_of(budget("lower"), replace(LATE, args={"--max-num-seqs": "128"}), wanted=512) == "512"
    whole = replace(OLD, max_model_len=8192)
    assert value_of(budget("lower"), whole, wanted=2048) is None
    assert (
        value_of(budget("lower"), replace(whole, args={"--enable-chunked-prefill": ""}), wanted=2048)
        == "2048"
    )


# What this version and engine have


@pytest.mark.parametrize(
    ("flag", "text", "engine", "is_offered"),
    [
        ("--watermark", "0.23.0", "v1", False),
        ("--watermark", "0.24.0", "v1", True),
        ("--max-num-partial-prefills", "0.10.2", "v1", False),
        ("--max-num-partial-prefills", "0.10.2", "v0", True),
        ("--swap-space", "0.9.1", "v1", False),
        ("--swap-space", "0.6.6", "v0", True),
        ("--swap-space", "0.18.0", "v1", False),
        ("--preemption-mode", "0.10.2", "v0", True),
        ("--preemption-mode", "0.11.0", "v1", False),
        ("--num-scheduler-steps", "0.8.5", "v1", False),
        ("--calculate-kv-scales", "0.27.0", "v1", True),
        ("--calculate-kv-scales", "0.28.0", "v1", False),
        ("--enable-chunked-prefill", "0.6.6", "v0", True),
        ("--enable-chunked-prefill", "0.8.5", "v1", False),
        ("--async-scheduling", "0.13.0", "v1", True),
        ("--async-scheduling", "0.14.0", "v1", False),
        ("--no-async-scheduling", "0.13.0", "v1", False),
        ("--no-async-scheduling", "0.14.0", "v1", True),
        ("--enable-prefix-caching", "0.6.6", "v0", True),
        ("--enable-prefix-caching", "0.9.1", "v1", False),
        ("--scheduler-reserve-full-isl", "0.19.0", "v1", False),
        ("--show-hidden-metrics-for-version", "0.12.0", "v1", True),
        ("--show-hidden-metrics-for-version", "0.15.0", "v1", False),
        ("--scheduling-policy", "0.9.1", "v1", False),
        ("--scheduling-policy", "0.9.2", "v1", True),
        ("--max-num-seqs", "0.2.7", "v0", True),
    ],
)
def test_a_flag_is_offered_where_it_is_there_and_does_something(
    flag: str, text: str, engine: Engine, is_offered: bool
) -> None:
    found = offered(switch(flag), ServerContext(version=version(text), engine=engine))
    assert (found is not None) is is_offered
    assert found is None or "if your version" not in found.action


def test_without_a_told_engine_a_version_runs_its_usual_one() -> None:
    assert offered(switch("--swap-space"), ServerContext(version=version("0.9.1"))) is None
    assert offered(switch("--swap-space"), ServerContext(version=version("0.7.3"))) is not None


@pytest.mark.parametrize(
    ("context", "action"),
    [
        (ServerContext(), "Set --watermark, if your version has it (since 0.24.0)."),
        (
            ServerContext(bracket=version_range("0.20.0", "0.26.0")),
            "Set --watermark, if your version has it (since 0.24.0).",
        ),
        (ServerContext(bracket=version_range("0.24.0", "0.26.0")), "Set --watermark."),
        (ServerContext(bracket=version_range("", "0.24.0")), None),
        (ServerContext(engine="v0"), None),
        # A release between two that were looked at may have what the later one has.
        (ServerContext(version=version("0.23.1")), "Set --watermark, if your version has it (since 0.24.0)."),
        (
            ServerContext(version=version("0.24.0rc1")),
            "Set --watermark, if your version has it (since 0.24.0).",
        ),
    ],
)
def test_a_version_not_known_well_enough_is_said(context: ServerContext, action: str | None) -> None:
    found = offered(switch("--watermark"), context)
    assert (found.action if found else None) == action


def test_what_is_the_default_in_later_versions_says_so_where_the_version_is_not_known() -> None:
    found = offered(switch("--async-scheduling"), ServerContext(engine="v1"))
    assert found is not None
    assert found.action.endswith("(since 0.10.0, on by default from 0.14.0).")
    gone = offered({"flag": "--calculate-kv-scales", "action": "Calibrate"}, ServerContext(engine="v1"))
    assert gone is not None
    assert gone.action == "Calibrate, if your version has it (gone in 0.28.0)"


def test_a_flag_that_every_version_has_needs_no_such_words() -> None:
    found = offered(SEQUENCES, ServerContext(), pool_tokens=10_000, request_tokens_mean=100)
    assert found is not None
    assert found.action == "Lower it to 100."


def test_a_rules_own_versions_narrow_further_also_without_a_flag() -> None:
    late_only = {"action": "Do.", "first_version": "0.26.0", "last_version": "0.30.0"}
    assert offered(late_only, ServerContext(version=version("0.25.1"))) is None
    assert offered(late_only, ServerContext(version=version("0.28.0"))) is not None
    assert offered(late_only, ServerContext(version=version("0.31.0"))) is None
    hung = offered(late_only, ServerContext())
    assert hung is not None
    assert hung.action == "Do, if your version is 0.26.0 or later and 0.30.0 or earlier."


def test_a_flag_nobody_knows_is_offered_with_a_doubt() -> None:
    found = offered(switch("--brand-new"), LATE)
    assert found is not None
    assert found.action == "Set --brand-new, if your version has it."
    assert complaints(rule_of(switch("--brand-new"), switch("--watermark"))) == [
        "no flag of vLLM is named `--brand-new`"
    ]


# What is set already


@pytest.mark.parametrize("told", ["fp8", "fp8_e4m3", "fp8_ds_mla", "int8_per_token_head", "nvfp4"])
def test_a_quantised_cache_is_not_quantised_again(told: str) -> None:
    assert offered(FP8, replace(LATE, config=LABELS | {"cache_dtype": told}), fp8_pool_tokens=1) is None
    assert offered(FP8, replace(LATE, args={"--kv-cache-dtype": told}), fp8_pool_tokens=1) is None


def test_fp8_is_offered_with_both_figures_where_the_cache_is_not_quantised() -> None:
    found = offered(FP8, LATE, fp8_pool_tokens=878_368)
    assert found is not None
    assert found.action == "Keep the cache in fp8: 878,368 tokens."


@pytest.mark.parametrize(
    ("remedy", "labels", "is_offered"),
    [
        (SHARE, {"gpu_memory_utilization": "0.9"}, True),
        (SHARE, {"gpu_memory_utilization": "0.92"}, True),
        (SHARE, {"gpu_memory_utilization": "0.94"}, False),
        (SHARE, {"gpu_memory_utilization": "0.95"}, False),
        (SHARE, {"gpu_memory_utilization": "0.97"}, False),
        (
            {"flag": "--gpu-memory-utilization", "direction": "raise"},
            {"gpu_memory_utilization": "0.92"},
            False,
        ),
        ({"flag": "--gpu-memory-utilization", "direction": "raise"}, {"gpu_memory_utilization": "0.9"}, True),
        (SHARE | {"value": "0.6", "direction": "lower"}, {"gpu_memory_utilization": "0.9"}, False),
        (SHARE | {"value": "0.8", "direction": "lower"}, {"gpu_memory_utilization": "0.9"}, True),
        (SHARE, {"num_gpu_blocks_override": "2000"}, False),
        (SHARE, {"kv_cache_memory_bytes": "1073741824"}, False),
        (SHARE, {"num_gpu_blocks_override": "None", "kv_cache_memory_bytes": "None"}, True),
    ],
)
def test_the_share_of_memory(remedy: dict[str, str], labels: dict[str, str], is_offered: bool) -> None:
    assert (offered(remedy, replace(LATE, config=LABELS | labels)) is not None) is is_offered


@pytest.mark.parametrize("name", ["--gpu-memory-utilization", "--device-memory-utilization"])
def test_the_share_of_memory_is_known_under_both_its_names(name: str) -> None:
    told = replace(LATE, config={}, args={name: "0.94"})
    assert offered(SHARE, told) is None
    assert offered(SHARE, replace(told, args={name: "0.9"})) is not None


def test_a_cap_on_the_pool_is_taken_away_instead_of_raising_the_share() -> None:
    rule = rule_of({"flag": "--num-gpu-blocks-override", "action": "Remove the cap."}, SHARE)
    capped = replace(LATE, config=LABELS | {"num_gpu_blocks_override": "2000"})
    remedies, unhelpful = offer(rule, NOTHING.get, capped)
    assert [remedy.flag for remedy in remedies] == ["--num-gpu-blocks-override"]
    assert remedies[0].direction == "off"
    assert unhelpful == (
        "A larger --gpu-memory-utilization changes nothing while --num-gpu-blocks-override fixes the KV cache size.",
    )
    free = replace(LATE, config=LABELS | {"num_gpu_blocks_override": "None"})
    remedies, unhelpful = offer(rule, NOTHING.get, free)
    assert [remedy.flag for remedy in remedies] == ["--gpu-memory-utilization"]
    assert unhelpful == ()


def test_prefix_caching_is_offered_only_where_it_is_off() -> None:
    remedy = switch("--enable-prefix-caching")
    for label, is_offered in (("True", False), ("False", True), ("None", True)):
        assert (
            offered(remedy, replace(LATE, config={"enable_prefix_caching": label})) is not None
        ) is is_offered
    assert offered(remedy, replace(LATE, config={})) is None, "on by default"
    switched_off = replace(LATE, config={}, args={"--no-enable-prefix-caching": ""})
    assert offered(remedy, switched_off) is not None
    assert offered(remedy, OLD) is not None
    assert offered(remedy, replace(OLD, config={}, args={"--enable-prefix-caching": ""})) is None


def test_what_is_only_to_be_taken_away_is_named_only_where_it_may_be_set() -> None:
    eager = switch("--enforce-eager")
    assert offered(eager, LATE) is not None
    assert offered(eager, replace(LATE, args={"--enforce-eager": ""})) is not None
    assert offered(eager, replace(LATE, args={"--max-num-seqs": "8"})) is None


def test_weights_quantised_already_stay_so() -> None:
    remedy = {"flag": "--quantization", "value": "fp8"}
    assert offered(remedy, LATE) is not None
    assert offered(remedy, replace(LATE, args={"-q": "awq"})) is None


@pytest.mark.parametrize(
    ("remedy", "args", "wanted", "value"),
    [
        (SEQUENCES | {"direction": "raise"}, {"--max-num-seqs": "256"}, 200, None),
        (SEQUENCES | {"direction": "raise"}, {"--max-num-seqs": "128"}, 200, "200"),
        (SEQUENCES, {"--max-num-seqs": "128"}, 200, None),
        (SEQUENCES, {"--max-num-seqs": "256"}, 200, "200"),
        (SEQUENCES | {"flag": "--max-num-active-seqs"}, {"--max-num-seqs": "128"}, 200, None),
        (SEQUENCES | {"flag": "--max-num-active-seqs"}, {"--max-num-seqs": "256"}, 200, "200"),
        (budget("raise"), {"--max-num-batched-tokens": "8k"}, 8_000, "8192"),
        (budget("raise"), {"--max-num-batched-tokens": "8K"}, 8_000, None),
        (budget("lower"), {"--max-num-batched-tokens": "2048"}, 2_500, None),
        (SEQUENCES | {"direction": "set"}, {"--max-num-seqs": "200"}, 200, None),
        (CONTEXT_LENGTH, {"--max-model-len": "-1"}, 4_096, "4096"),
    ],
)
def test_a_value_moves_the_flag_the_way_the_remedy_says(
    remedy: dict[str, str], args: dict[str, str], wanted: float, value: str | None
) -> None:
    given = replace(LATE, args=args)
    assert value_of(remedy | {"suggest": "wanted"}, given, wanted=wanted, pool_tokens=1) == value


def test_the_length_a_server_tells_counts_before_any_argument() -> None:
    assert value_of(CONTEXT_LENGTH, replace(LATE, max_model_len=4096), request_tokens_p99=2048) is None
    assert value_of(CONTEXT_LENGTH, replace(LATE, max_model_len=32_768), request_tokens_p99=2048) == "4096"


def test_told_arguments_make_the_default_of_what_is_not_among_them_known() -> None:
    small = replace(LATE, args={"--port": "8000"}, memory_class=MemoryClass.UNDER_70_GIB)
    assert value_of(budget("raise"), small, wanted=2_000) is None, "2048 is what it takes by itself"
    assert value_of(budget("raise"), small, wanted=4_000) == "4096"
    assert (
        value_of(budget("raise"), replace(small, memory_class=MemoryClass.FROM_70_GIB), wanted=4_000) is None
    )


def test_a_value_that_is_the_default_is_not_offered() -> None:
    remedy = {"flag": "--stream-interval", "value": "1"}
    assert offered(remedy, LATE) is None
    assert offered(remedy, replace(LATE, args={"--stream-interval": "10"})) is not None


def test_what_is_the_default_in_some_of_the_possible_versions_is_offered_without_a_doubt_about_the_flag() -> (
    None
):
    remedy = SHARE | {"value": "0.9"}
    found = offered(remedy, ServerContext(engine="v1"))
    assert found is not None
    assert found.action == "Raise it to 0.9."
    assert offered(remedy, ServerContext(bracket=version_range("", "0.20.0"))) is None


def test_a_remedys_own_conditions_hold() -> None:
    remedy = SEQUENCES | {"when": "waiting_last > 5", "unless": "request_tokens_p99 > 100"}

    def value(**signals: float) -> str | None:
        return value_of(remedy, LATE, pool_tokens=10_000, request_tokens_mean=100, **signals)

    assert value() is None, "unknown does not offer"
    assert value(waiting_last=6) == "100"
    assert value(waiting_last=6, request_tokens_p99=101) is None


# The whole table, walked


@cache
def table() -> dict[str, dict[str, Any]]:
    path = Path(flags_module.__file__).with_name("flags.yaml")
    rows: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["flags"]
    return rows


def absent(flag: str, running: Version, engine: Engine) -> bool:
    """Read from the table's own words, not by the code under test."""
    row = table()["--" + flag.removeprefix("--no-").removeprefix("--")]
    if (
        "since" in row
        and running < version(row["since"])
        and running <= version(row.get("absent_in", "0.0.1"))
    ):
        return True
    if "gone_in" in row and running >= version(row["gone_in"]):
        return True
    return bool(row.get("engine", engine) != engine)


def fault_of(remedy: Remedy, context: ServerContext) -> str | None:
    """What an expert would object to, by rules written down from vLLM's code; None where there is nothing."""
    assert context.version
    assert context.engine
    flag, value, labels = remedy.flag or "", remedy.value, context.config
    on_v1, caching = context.engine == "v1", labels.get("enable_prefix_caching")
    is_quantised = labels.get("cache_dtype", "auto").startswith(("fp8", "nvfp4", "int"))
    label = table().get(flag, {}).get("label", "")
    objections = {
        "absent": absent(flag, context.version, context.engine),
        "chunked prefill is on by default": flag == "--enable-chunked-prefill"
        and on_v1
        and "--no-enable-chunked-prefill" not in context.args,
        "prefix caching is on": flag == "--enable-prefix-caching"
        and (caching == "True" or (caching is None and on_v1)),
        "on by default": flag == "--async-scheduling" and context.version >= version("0.14.0"),
        "nothing is hidden": flag == "--show-hidden-metrics-for-version"
        and context.version >= version("0.15.0"),
        "quantised already": flag == "--kv-cache-dtype" and value == "fp8" and is_quantised,
        "set already": value is not None and value in {labels.get(label), context.args.get(flag)},
        "share": flag == "--gpu-memory-utilization" and share_fault(remedy, labels) is not None,
    }
    return next((objection for objection, holds in objections.items() if holds), None)


def named_flags(remedy: Remedy) -> list[str]:
    """Flags that its texts name, which people will try as well."""
    text = f"{remedy.action} {remedy.why} {remedy.price}"
    return [flag for flag in re.findall(r"--[a-z][a-z0-9-]+", text) if find_flag(flag)]


def share_fault(remedy: Remedy, labels: Mapping[str, str]) -> str | None:
    share, now = amount(remedy.value), amount(labels.get("gpu_memory_utilization"))
    if share is not None and not 0.7 <= share <= 0.95:
        return "out of bounds"
    if remedy.direction == "raise" or (share is not None and now is not None and share > now):
        if {labels.get("num_gpu_blocks_override", "None"), labels.get("kv_cache_memory_bytes", "None")} != {
            "None"
        }:
            return "without effect"
        if now is not None and now >= 0.95:
            return "risks running out of memory"
    return "set already" if share is not None and share == now else None


ARGUMENTS = {"--max-num-seqs": "256", "--max-num-batched-tokens": "2048", "--no-enable-chunked-prefill": ""}
# What the page says, and what the owner said.
SETTINGS: tuple[tuple[Mapping[str, str], Mapping[str, str]], ...] = (
    ({}, {}),
    ({}, ARGUMENTS),
    ({"cache_dtype": "auto", "enable_prefix_caching": "True", "gpu_memory_utilization": "0.9"}, {}),
    ({"cache_dtype": "fp8", "enable_prefix_caching": "False", "gpu_memory_utilization": "0.95"}, ARGUMENTS),
    ({"cache_dtype": "fp8_e4m3", "enable_prefix_caching": "None", "num_gpu_blocks_override": "256"}, {}),
    ({"cache_dtype": "nvfp4", "kv_cache_memory_bytes": "1073741824", "gpu_memory_utilization": "0.5"}, {}),
)


def contexts() -> Iterator[ServerContext]:
    for running in known_versions():
        engines: list[Engine] = ["v0"] if running < version("0.11.0") else []
        engines += ["v1"] if running >= version("0.7.0") else []
        for engine in engines:
            for labels, args in SETTINGS:
                yield ServerContext(running, None, engine, labels, args, max_model_len=8192)


def every_remedy() -> Iterator[RemedyRule]:
    base = rule_of({}).remedies[0]
    for name, flag in all_flags().items():
        remedy = replace(base, flag=name)
        if flag.kind is Kind.SWITCH:
            yield from (remedy, replace(base, flag=f"--no-{name.removeprefix('--')}"))
            continue
        yield remedy
        is_share = flag.kind is Kind.SHARE
        values = ("0.6", "0.9", "0.92", "0.95", "0.97") if is_share else ("fp8", "256")
        yield from (replace(remedy, value=Template.read(value, ())) for value in values)
        ways = (Direction.RAISE, Direction.LOWER) if is_share else ()
        yield from (replace(remedy, direction=direction) for direction in ways)


@pytest.mark.slow
def test_no_remedy_on_any_flag_is_absent_default_or_set_in_any_version() -> None:
    rule = replace(rule_of({}), remedies=tuple(every_remedy()))
    seen: set[str] = set()
    for context in contexts():
        for remedy in offer(rule, NOTHING.get, context)[0]:
            assert fault_of(remedy, context) is None, (remedy, context)
            seen.add(remedy.flag or "")
    # Flags of one engine or of few versions are offered somewhere too: the walk is not empty.
    assert len(seen) > 80, sorted(seen)


@pytest.mark.slow
def test_within_a_bracket_a_flag_without_doubt_is_there_in_every_version_of_it() -> None:
    rule = replace(rule_of({}), remedies=tuple(each for each in every_remedy() if each.value is None))
    versions = known_versions()
    for low, high in zip(versions, versions[4:], strict=False):
        engine: Engine = "v0" if high < version("0.8.0") else "v1"
        context = ServerContext(bracket=VersionRange(low, high), engine=engine)
        within = [
            each for each in versions if low <= each < high and (engine == "v0" or each >= version("0.7.0"))
        ]
        for remedy in offer(rule, NOTHING.get, context)[0]:
            missing = [each for each in within if absent(remedy.flag or "", each, engine)]
            assert len(missing) < len(within), (remedy, context)
            assert not missing or "if your version has it" in remedy.action, (remedy, context)


RULES = shipped_rules().rules


def lookups(rule: Rule) -> Iterator[Mapping[str, float]]:
    names = {
        name
        for each in rule.remedies
        for text in (each.suggest, each.when, each.unless)
        if text
        for name in text.names
    }
    yield from (dict.fromkeys(names, number) for number in (0.5, 3_000.0))
    yield from [test.signals for test in rule.tests if test.expect == "fires"][:2]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_no_remedy_of_a_shipped_rule_is_absent_default_or_set_in_any_version(rule: Rule) -> None:
    with_flags = replace(rule, remedies=tuple(each for each in rule.remedies if each.flag))
    signals = list(lookups(rule))
    for context in contexts():
        for known in signals:
            for remedy in offer(with_flags, known.get, context)[0]:
                assert fault_of(remedy, context) is None, (remedy, context)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_no_text_of_a_shipped_remedy_names_a_flag_its_version_does_not_have(rule: Rule) -> None:
    for running in known_versions():
        context = ServerContext(version=running, engine=default_engine(running))
        for known in lookups(rule):
            for remedy in offer(rule, known.get, context)[0]:
                for flag in named_flags(remedy):
                    assert not absent(flag, running, default_engine(running)), (flag, running, remedy)


@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_a_shipped_rule_names_known_flags_in_the_order_of_the_field(rule: Rule) -> None:
    assert complaints(rule) == []


# Order and contradictions


@pytest.mark.slow
def test_the_order_for_a_full_pool_is_checked() -> None:
    rule = rule_of(CONTEXT_LENGTH, FP8, {"flag": "--quantization", "value": "fp8"}, SHARE, SEQUENCES)
    assert complaints(rule) == []
    assert complaints(rule_of(SHARE, FP8)) == [
        "--kv-cache-dtype belongs before --gpu-memory-utilization: model length, quantisation, memory share last",
    ]
    idle = SHARE | {"when": "gpu_memory_utilization_ratio < 0.85"}
    assert complaints(rule_of(idle, FP8)) == []
    assert len(complaints(rule_of(FP8, CONTEXT_LENGTH))) == 1
    assert complaints(rule_of(SHARE | {"value": "0.6"})) == [
        "--gpu-memory-utilization never goes under 0.7",
    ]
    assert complaints(rule_of(SHARE | {"value": "0.98"})) == [
        "--gpu-memory-utilization never goes over 0.95",
    ]
    assert complaints(rule_of({"flag": "--gpu-memory-utilization", "direction": "lower"})) != []


def incident(rule: str, *remedies: Remedy, target: str = "a", state: State = State.FIRING) -> Incident:
    key = Key(rule, target, "m", "0")
    return Incident(key, rule, Severity.WARNING, state, "c", (), remedies, (), "", 0.0)


def move(flag: str, direction: str | None, value: str | None = None) -> Remedy:
    return Remedy("a", flag, value, "w", "p", direction)


def kept(*incidents: Incident) -> list[list[str | None]]:
    return [[remedy.flag for remedy in each.remedies] for each in reconcile(incidents)]


def test_of_two_remedies_that_contradict_each_other_the_less_leading_one_goes() -> None:
    lead = incident(
        "preemption-thrash", move("--max-num-active-seqs", "lower", "100"), move("--watermark", "raise")
    )
    second = incident(
        "seqs-limited", move("--max-num-seqs", "raise", "512"), move("--api-server-count", "raise")
    )
    assert kept(lead, second) == [["--max-num-active-seqs", "--watermark"], ["--api-server-count"]]
    assert kept(second, lead) == [["--max-num-seqs", "--api-server-count"], ["--watermark"]]


def test_what_goes_the_same_way_or_concerns_another_server_stays() -> None:
    up, down = move("--max-num-seqs", "raise", "512"), move("--max-num-seqs", "lower", "64")
    assert kept(incident("x", up), incident("y", up)) == [["--max-num-seqs"], ["--max-num-seqs"]]
    assert kept(incident("x", up), incident("y", down, target="b")) == [
        ["--max-num-seqs"],
        ["--max-num-seqs"],
    ]
    resolved = incident("y", down, state=State.RESOLVED)
    assert kept(incident("x", up), resolved) == [["--max-num-seqs"], ["--max-num-seqs"]]
    unflagged = Remedy("Add a replica.", None, None, "w", "p")
    assert kept(incident("x", unflagged), incident("y", unflagged)) == [[None], [None]]


def test_on_and_off_and_two_values_of_one_flag_contradict_each_other() -> None:
    on, off = move("--enable-prefix-caching", "on"), move("--no-enable-prefix-caching", "off")
    assert kept(incident("x", on), incident("y", off)) == [["--enable-prefix-caching"], []]
    fp8, auto = move("--kv-cache-dtype", "set", "fp8"), move("--kv-cache-dtype", "set", "auto")
    assert kept(incident("x", fp8), incident("y", auto)) == [["--kv-cache-dtype"], []]
    assert kept(incident("x", fp8), incident("y", fp8)) == [["--kv-cache-dtype"], ["--kv-cache-dtype"]]


def test_an_incident_that_keeps_its_remedies_is_the_same_object() -> None:
    alone = incident("x", move("--watermark", "raise"))
    assert reconcile([alone])[0] is alone


def test_the_direction_follows_from_the_value_where_the_rule_leaves_it_open() -> None:
    context = replace(LATE, args={"--max-num-seqs": "128"})
    open_remedy = {name: text for name, text in SEQUENCES.items() if name != "direction"} | {
        "suggest": "wanted"
    }
    for wanted, direction in ((64, "lower"), (256, "raise")):
        found = offered(open_remedy, context, wanted=wanted, pool_tokens=1)
        assert found is not None
        assert found.direction == direction


# Defaults and hints


@pytest.mark.parametrize(
    ("text", "memory", "tokens", "requests"),
    [
        ("0.8.5", MemoryClass.UNDER_70_GIB, 2048, 256),
        ("0.8.5", MemoryClass.A100, 8192, 1024),
        ("0.9.1", MemoryClass.A100, 2048, 256),
        ("0.24.0", MemoryClass.FROM_70_GIB, 8192, 1024),
        ("0.27.0", MemoryClass.FROM_160_GIB, 8192, 1024),
        ("0.28.0", MemoryClass.FROM_160_GIB, 16384, 1024),
        ("0.33.0", MemoryClass.A100, 2048, 256),
        ("0.33.0", None, None, None),
    ],
)
def test_defaults_by_version_and_memory(
    text: str, memory: MemoryClass | None, tokens: int | None, requests: int | None
) -> None:
    for flag, number in (("--max-num-batched-tokens", tokens), ("--max-num-seqs", requests)):
        default = all_flags()[flag].default(version(text), "v1", memory)
        assert default == (None if number is None else str(number))


def test_flags_are_found_by_every_spelling() -> None:
    for text, name in (
        ("--max_num_seqs", "--max-num-seqs"),
        ("-tp", "--tensor-parallel-size"),
        ("-q", "--quantization"),
        ("--device-memory-utilization", "--gpu-memory-utilization"),
    ):
        flag = find_flag(text)
        assert flag is not None
        assert flag.name == name
    assert find_flag("--no-max-num-seqs") is None
    assert find_flag("--unheard-of") is None


def test_a_negative_form_came_later_than_its_switch() -> None:
    flag = find_flag("--no-enable-prefix-caching")
    assert flag is not None
    assert flag.presence(version("0.8.0"), "v1") is Truth.NO
    assert flag.presence(version("0.8.5"), "v1") is Truth.UNKNOWN
    assert flag.presence(version("0.9.1"), "v1") is Truth.YES


def test_the_table_of_flags_holds_together() -> None:
    for flag in all_flags().values():
        if flag.since and flag.absent_in:
            assert flag.absent_in < flag.since, flag.name
        if flag.last and flag.gone_in:
            assert flag.last < flag.gone_in, flag.name
        assert flag.falls_to is None or flag.falls_to in all_flags(), flag.name
    assert list(known_versions()) == sorted(known_versions())


def test_hints_say_what_could_be_added() -> None:
    everything = missing_expectations(Expectations())
    assert len(everything) == 5
    for name in (
        "vllm_args",
        "gpu",
        "model.weight_bytes",
        "model.layers",
        "slo",
        "expected_shared_prefix_tokens",
    ):
        assert any(f"`{name}`" in hint for hint in everything), name


def test_nothing_is_asked_that_was_told() -> None:
    told = Expectations(
        expected_shared_prefix_tokens=512,
        objectives=Objectives(ttft_p95_seconds=1.0),
        gpu="H100",
        shape=ModelShape(layers=32, kv_heads=8, head_dimension=128, weight_bytes=16_000_000_000),
        vllm_args={"--max-num-seqs": "256"},
    )
    assert missing_expectations(told) == ()
    (hint,) = missing_expectations(replace(told, gpu="RTX 4091"))
    assert "'RTX 4091' is not in the table (known: GeForce RTX 4090" in hint
    assert missing_expectations(replace(told, gpu="RTX 4091", memory_bandwidth_bytes_per_second=1e12)) == ()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("256", 256),
        ("8k", 8_000),
        ("8K", 8_192),
        ("1.5m", 1_500_000),
        ("-1", -1),
        ("auto", None),
        ("", None),
        (None, None),
    ],
)
def test_amounts_are_read_as_vllm_reads_them(text: str | None, number: float | None) -> None:
    assert amount(text) == number


# How they are told


@pytest.mark.parametrize(
    ("action", "flag", "value", "direction", "told"),
    [
        ("Raise --max-num-seqs to 8.", "--max-num-seqs", "8", "raise", "Raise --max-num-seqs to 8."),
        ("Draft less.", "--spec-tokens", "2", "lower", "--spec-tokens 2: Draft less."),
        ("Lower --x to 2048.", "--x", "2", "lower", "--x 2: Lower --x to 2048."),
        ("Set --x to 0.9.", "--x", "0", "set", "--x 0: Set --x to 0.9."),
        ("Set --x-y to 2.", "--x", "2", "set", "--x 2: Set --x-y to 2."),
        ("Remove --x.", "--x", None, "off", "Remove --x."),
        ("Keep more of them.", "--max-cpu-loras", None, "raise", "raise --max-cpu-loras: Keep more of them."),
        ("Turn it on.", "--x", None, "on", "--x: Turn it on."),
        ("Add a replica.", None, None, None, "Add a replica."),
    ],
)
def test_a_flag_and_its_value_are_told_once(
    action: str, flag: str | None, value: str | None, direction: str | None, told: str
) -> None:
    assert instruction(Remedy(action, flag, value, "w", "p", direction)) == told


def test_an_action_without_a_flag_may_quote_a_number_but_has_no_value() -> None:
    remedy = offered(
        {"action": "Gone in {value} s.", "suggest": "waiting_last / wanted"}, waiting_last=90, wanted=3
    )
    assert remedy == Remedy("Gone in 30 s.", None, None, "w", "p", None)


def shipped(rule: str, signals: Mapping[str, float], context: ServerContext = LATE) -> list[str]:
    """The actions that a shipped rule offers, in order."""
    return [instruction(each) for each in offer(shipped_rules().by_id(rule), signals.get, context)[0]]


LOADED = {
    "waiting_last": 707,
    "arrivals_per_second": 3.0,
    "finished_per_second": 2.7,
    "gpu_memory_utilization_ratio": 0.9,
    "fp8_pool_tokens": 299_168,
    "pool_tokens": 149_584,
}


@pytest.mark.parametrize(
    ("arrivals", "first"),
    [
        (19.1, "Shed load now: rate-limit at the gateway or reroute. Then add a replica."),
        (3.0, "Use an 8-bit KV cache: --kv-cache-dtype fp8."),
        (1.0, "Wait: at this rate the queue drains in about 416 s."),
    ],
)
def test_a_full_pool_is_relieved_first_where_the_queue_runs_away_and_left_alone_where_it_drains(
    arrivals: float, first: str
) -> None:
    told = shipped("kv-pool-exhausted", LOADED | {"arrivals_per_second": arrivals})
    assert told[0] == first
    assert ("Add a replica, or reroute part of the traffic." in told) is (arrivals == 3.0)


@pytest.mark.parametrize("rule", ["seqs-limited", "traffic-surge"])
def test_nobody_is_told_to_add_a_replica_while_the_queue_drains(rule: str) -> None:
    told = shipped(rule, LOADED | {"running_peak": 24, "requests_that_fit": 95})
    assert any(each.startswith("Add ") for each in told)
    told = shipped(rule, LOADED | {"running_peak": 24, "requests_that_fit": 95, "finished_per_second": 5.4})
    assert told[0].startswith("Wait: at this rate the queue drains")
    assert not any(each.startswith("Add ") for each in told)


@pytest.mark.parametrize(("share", "is_early"), [(0.17, True), (0.9, False)])
def test_memory_that_lies_idle_is_taken_before_another_checkpoint(share: float, is_early: bool) -> None:
    context = replace(LATE, config=LABELS | {"gpu_memory_utilization": str(share)})
    told = shipped("kv-pool-exhausted", LOADED | {"gpu_memory_utilization_ratio": share}, context)
    places = [at for at, each in enumerate(told) if "--gpu-memory-utilization" in each]
    assert len(places) == 1
    assert (places[0] < told.index("Serve quantised weights (FP8, AWQ or GPTQ).")) is is_early


def test_speculation_that_never_hits_is_turned_off_first() -> None:
    told = shipped("spec-decode-low-acceptance", {"draft_acceptance_ratio": 0.0, "draft_length_tokens": 3.98})
    assert told[0] == "Turn speculation off: start without its flags."
    assert told[1].startswith("Draft fewer tokens: --spec-tokens 2,")
    told = shipped("spec-decode-low-acceptance", {"draft_acceptance_ratio": 0.2, "draft_length_tokens": 3.98})
    assert told[-1].startswith("Turn speculation off, at least for large batches")
