"""What a probe's measurements mean: findings with evidence and remedies, as rules give them. Pure arithmetic."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from watchdog.model import Evidence, Finding, Remedy, Severity, Subject, Truth
from watchdog.probe.counts import Counts
from watchdog.probe.prefix import Divergence
from watchdog.probe.stream import Streamed
from watchdog.text import quantity_text, seconds_text

# Users call a first token slow beyond these; below them no part of it is a fault.
_SLOW_QUEUE_SECONDS = 0.2
_SLOW_PREFILL_SECONDS = 1.0
# Kernels reach some two thirds of the bandwidth; below this share something else is slow.
_LEAST_OF_CEILING = 0.4
# Faster than people read is 10 tokens a second; an absolute floor where no GPU is named.
_SLOW_GAP_SECONDS = 0.1
# A first token this much earlier on the second time was not computed again.
_FASTER = 0.6
_LEAST_GAIN_SECONDS = 0.02
_MOST_HIT = 0.5
_NEARLY_FULL = 0.9
# A gap beside a prompt ten times as long may take this much longer, as attention reads more.
_GAP_GROWTH = 1.5


class Life(StrEnum):
    """What one token, asked for under a deadline, says of a server."""

    ALIVE = "alive"
    QUEUED = "queued"
    STALLED = "stalled"
    ASLEEP = "asleep"
    COMPILING = "compiling"
    STALE_GAUGES = "stale-gauges"
    REFUSED = "refused"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Prefill:
    """First tokens over prompt lengths: the slope is the cost of a prompt token, the rest what is paid anyway."""

    tokens_per_second: float | None
    fixed_seconds: float
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class PrefixTwice:
    """One prompt, asked twice: its tokens, both times to first token, and what the server's counters say.

    `hit_tokens` and `queried_tokens` cover all requests between the pages; None where no page shows them.
    """

    prompt_tokens: int | None
    first: Streamed
    second: Streamed
    hit_tokens: float | None
    queried_tokens: float | None
    counts: Counts | None


def prefill_of(points: Sequence[tuple[int, float]]) -> Prefill | None:
    """The line through (prompt tokens, seconds to first token), by least squares; None for fewer than two lengths."""
    if len({tokens for tokens, _ in points}) < 2:
        return None
    mean_tokens = sum(tokens for tokens, _ in points) / len(points)
    mean_seconds = sum(seconds for _, seconds in points) / len(points)
    spread = sum((tokens - mean_tokens) ** 2 for tokens, _ in points)
    slope = sum((tokens - mean_tokens) * (seconds - mean_seconds) for tokens, seconds in points) / spread
    fixed = max(0.0, mean_seconds - slope * mean_tokens)
    return Prefill(1 / slope if slope > 0 else None, fixed, tuple(points))


def life_of(
    answered: bool, refused: bool, before: Counts | None, after: Counts | None, began: bool = True
) -> Life:
    """What an answer, or none within the deadline, means beside the pages before and after it.

    `began` is whether the engine ever generated a token, by its counters. Where no page of vLLM answers, a late
    token is only late.
    """
    if refused:
        return Life.REFUSED
    if answered:
        moved = before is None or after is None or before.progress() != after.progress()
        return Life.ALIVE if moved else Life.STALE_GAUGES
    if before is None or after is None:
        return Life.LATE
    if after.asleep:
        return Life.ASLEEP
    if before.progress() != after.progress():
        return Life.QUEUED
    return Life.STALLED if began else Life.COMPILING


_LIVES: Mapping[Life, tuple[Severity, str, str, tuple[Remedy, ...]]] = {
    Life.QUEUED: (
        Severity.WARNING,
        "The engine works, but one token waits",
        "Steps complete, but the probe waits: it is in the queue or behind a long prefill.",
        (
            Remedy(
                "Find out why the queue waits: run vllm-watchdog diagnose.",
                None, None, "Every queue has a cause.", "None.",
            ),
        ),
    ),
    Life.STALLED: (
        Severity.CRITICAL,
        "The engine is stalled",
        "No token came and no counter moved: no step has ended since we asked.",
        (
            Remedy(
                "Take the server out of the load balancer, save a stack (py-spy dump) and restart it.",
                None, None, "An engine that completes no steps does not recover.", "Requests in flight are lost.",
            ),
        ),
    ),
    Life.ASLEEP: (
        Severity.WARNING,
        "The engine sleeps",
        "The engine was put to sleep and has not been woken.",
        (
            Remedy(
                "Wake it: POST /wake_up.",
                None, None, "A sleeping engine answers nothing.", "It loads its weights first.",
            ),
        ),
    ),
    Life.COMPILING: (
        Severity.WARNING,
        "The engine has not generated a token yet",
        "No token was ever generated: the first steps compile kernels and capture graphs.",
        (
            Remedy(
                "Ask again in some minutes; send a warm-up request before the server takes traffic.",
                None, None, "Compilation happens once per start.", "Startup takes longer.",
            ),
        ),
    ),
    Life.STALE_GAUGES: (
        Severity.WARNING,
        "The metrics page stands still",
        "A token arrived and no counter moved: this page belongs to another engine than the one that answered.",
        (
            Remedy(
                "Use one process for both: each replica's own page, not one behind a load balancer.",
                None, None, "Every diagnosis from this page is about another engine.", "None.",
            ),
        ),
    ),
    Life.REFUSED: (
        Severity.WARNING,
        "The server refuses the request",
        "The server answered at once, but without a token.",
        (
            Remedy(
                "Check the key (--api-key-file), the model's name (--model) and the endpoint (--chat).",
                None, None, "Nothing was measured.", "None.",
            ),
        ),
    ),
    Life.LATE: (
        Severity.WARNING,
        "No token within the deadline",
        "No metrics page of vLLM answers, so a queue and a stall look the same here.",
        (),
    ),
}  # fmt: skip


def life_finding(life: Life, target: str, waited_seconds: float) -> tuple[str, Finding] | None:
    """The title and finding of what is not alive; None for what is."""
    if life is Life.ALIVE:
        return None
    severity, title, cause, remedies = _LIVES[life]
    evidence = _evidence("one token was asked for", seconds=waited_seconds)
    return title, _finding(f"probe-{life}", target, severity, cause, evidence, remedies)


def slow_parts(
    target: str,
    stream: Streamed,
    queue_seconds: float | None,
    prefill: Prefill | None,
    ceiling_tokens_per_second: float | None,
) -> Iterator[tuple[str, Finding]]:
    """Which of queue, prefill and decode is slow, beyond what a user would feel or the GPU explains."""
    first = stream.first_token_seconds
    if first is None:
        return
    if queue_seconds is not None and queue_seconds >= _SLOW_QUEUE_SECONDS and queue_seconds > first / 2:
        cause = (
            f"Of {seconds_text(first)} to the first token requests spend {seconds_text(queue_seconds)} in the "
            "queue: prefill and decode are not the slow part."
        )
        evidence = _evidence("queue over half of TTFT", queue_seconds=queue_seconds, ttft_seconds=first)
        remedy = Remedy(
            "Find out why requests wait: run vllm-watchdog diagnose.", None, None,
            "KV cache, batch limit and compute all cause queues.", "None.",
        )  # fmt: skip
        yield (
            "Requests wait in the queue",
            _finding("probe-queue", target, Severity.WARNING, cause, evidence, (remedy,)),
        )
    elif first >= _SLOW_PREFILL_SECONDS:
        speed = prefill.tokens_per_second if prefill else None
        cause = f"The first token takes {seconds_text(first)}" + (
            f", prefill runs at {speed:,.0f} tokens/s." if speed else "."
        )
        remedy = Remedy(
            "Share prefixes, or raise the token budget of a step.", "--max-num-batched-tokens", None,
            "Fewer steps for one prompt.", "Longer gaps for streams beside it.", "raise", True,
        )  # fmt: skip
        evidence = _evidence("TTFT without a queue", ttft_seconds=first)
        yield (
            "Prefill is slow",
            _finding("probe-prefill", target, Severity.WARNING, cause, evidence, (remedy,)),
        )
    yield from _slow_decode(target, stream, ceiling_tokens_per_second)


def _slow_decode(target: str, stream: Streamed, ceiling: float | None) -> Iterator[tuple[str, Finding]]:
    if len(stream.gaps) < 5:
        return
    gap = median(stream.gaps)
    speed = 1 / gap if gap > 0 else None
    slow = gap >= _SLOW_GAP_SECONDS
    if ceiling and speed:
        slow = speed < _LEAST_OF_CEILING * ceiling
    if not slow or speed is None:
        return
    cause = f"One stream gets {speed:,.0f} tokens/s" + (
        f", {speed / ceiling:.0%} of the {ceiling:,.0f} that the GPU's bandwidth allows." if ceiling else "."
    )
    evidence = _evidence("the median gap between tokens", gap_seconds=gap)
    remedies = (
        Remedy(
            "Look at what else is in the batch, at clocks and neighbours of the GPU.", None, None,
            "A stream alone should reach two thirds of the ceiling.", "None.",
        ),
        Remedy(
            "Do not use --enforce-eager in production.", "--enforce-eager", None,
            "CUDA graphs avoid the launch cost of each kernel.", "Startup takes longer.", "off", True,
        ),
    )  # fmt: skip
    yield "Decode is slow", _finding("probe-decode", target, Severity.WARNING, cause, evidence, remedies)


def gap_finding(target: str, short: Streamed, long: Streamed) -> tuple[str, Finding] | None:
    """Gaps that grow with the prompt before them: decode reads more, or other prompts lie between."""
    if min(len(short.gaps), len(long.gaps)) < 5:
        return None
    before, after = median(short.gaps), median(long.gaps)
    if after <= before * _GAP_GROWTH or after - before < 0.005:
        return None
    cause = f"Gaps grow from {seconds_text(before)} to {seconds_text(after)} after the longer prompt."
    evidence = _evidence("the median gap at both lengths", short_seconds=before, long_seconds=after)
    return "Gaps depend on the prompt", _finding("probe-gaps", target, Severity.INFO, cause, evidence, ())


def prefix_findings(target: str, seen: PrefixTwice) -> tuple[str, list[tuple[str, Finding]]]:
    """What the cache did with one prompt asked twice, in a word (works, off, evicted, block too large, unknown)."""
    tokens, block = seen.prompt_tokens, seen.counts.block_size_tokens if seen.counts else None
    hits = float(seen.second.cached_tokens) if seen.second.cached_tokens is not None else seen.hit_tokens
    first, second = seen.first.first_token_seconds, seen.second.first_token_seconds
    faster = (
        first is not None
        and second is not None
        and second < first * _FASTER
        and first - second > _LEAST_GAIN_SECONDS
    )
    if tokens and hits is not None and hits >= tokens * _MOST_HIT:
        return "works", []
    if faster and not (hits is not None and seen.queried_tokens):
        return "works", []
    if hits is None and seen.counts is None:
        return "unknown", []
    evidence = _evidence(
        "one prompt, asked twice",
        prompt_tokens=float(tokens) if tokens is not None else None,
        hit_tokens=hits,
        first_seconds=first,
        second_seconds=second,
    )
    return _prefix_word(target, seen, tokens, block, evidence)


def _prefix_word(
    target: str, seen: PrefixTwice, tokens: int | None, block: int | None, evidence: tuple[Evidence, ...]
) -> tuple[str, list[tuple[str, Finding]]]:
    config = seen.counts.config if seen.counts else {}
    off = config.get("enable_prefix_caching", "").lower() == "false" or (
        seen.queried_tokens == 0 and seen.counts is not None
    )
    if off:
        cause = "Prefix caching is off: the same prompt is computed every time."
        remedy = Remedy(
            "Enable it.", "--enable-prefix-caching", None, "A shared prefix is computed once.",
            "None if prompts share anything.", "on", True,
        )  # fmt: skip
        found = _finding("probe-prefix-off", target, Severity.INFO, cause, evidence, (remedy,))
        return "off", [("Prefix caching is off", found)]
    if block is not None and tokens is not None and tokens < 2 * block:
        cause = f"A block holds {block} tokens and the prompt {tokens}: only whole blocks are shared."
        remedy = Remedy(
            "Use smaller blocks.", "--block-size", "16", "Short prefixes are shared too.",
            "Slightly more bookkeeping.", "lower", True,
        )  # fmt: skip
        found = _finding("probe-block-too-large", target, Severity.INFO, cause, evidence, (remedy,))
        return "block too large", [("The block is larger than the prefix", found)]
    usage = seen.counts.kv_usage_ratio if seen.counts else None
    if usage is not None and usage >= _NEARLY_FULL:
        cause = f"The pool is {usage:.0%} full: cached blocks are evicted before they are reused."
        remedy = Remedy(
            "Halve the cache's bytes.", "--kv-cache-dtype", "fp8", "The pool holds twice the tokens.",
            "Slight loss of precision.", "set", True,
        )  # fmt: skip
        found = _finding("probe-prefix-evicted", target, Severity.WARNING, cause, evidence, (remedy,))
        return "evicted", [("The prefix was evicted", found)]
    return "unknown", []


def divergence_finding(target: str, worst: Divergence, block: int | None) -> tuple[str, Finding] | None:
    """Two prompts of a file that differ within the first block, though they are alike behind it."""
    if worst.shared_tokens >= (block or 16) or worst.of_characters == 0:
        return None
    cause = (
        f"Prompts {worst.first} and {worst.second} part after {worst.shared_characters} characters: "
        f"{worst.first_text!r} against {worst.second_text!r}. Nothing behind that is shared."
    )
    remedy = Remedy(
        "Move variable parts (time, name, id) behind the fixed parts.", None, None,
        "A prefix is shared up to its first difference.", "The prompt template changes.", None, True,
    )  # fmt: skip
    evidence = _evidence("characters both begin with", shared_characters=float(worst.shared_characters))
    return "The head of the prompt changes", _finding(
        "probe-prefix-broken", target, Severity.INFO, cause, evidence, (remedy,)
    )


def _evidence(clause: str, **values: float | None) -> tuple[Evidence, ...]:
    told = ", ".join(f"{name} = {quantity_text(name, value)}" for name, value in values.items())
    return (Evidence(clause, values, f"{clause}: {told}"),)


def _finding(
    rule: str,
    target: str,
    severity: Severity,
    cause: str,
    evidence: tuple[Evidence, ...],
    remedies: tuple[Remedy, ...],
) -> Finding:
    return Finding(rule, Subject(target), Truth.YES, severity, cause, evidence, remedies)
