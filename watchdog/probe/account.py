"""What a probe saw, as JSON and as text for a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from watchdog.model import Finding
from watchdog.probe.examination import Examined, median_gap
from watchdog.probe.judgement import Life
from watchdog.probe.prefix import Divergence
from watchdog.probe.stream import Split, Streamed
from watchdog.remedy.instruction import instruction
from watchdog.text import seconds_text

_MARGIN = 11


def examined_body(found: Examined, target: str, divergences: list[Divergence]) -> dict[str, Any]:
    """All figures and findings; null for what was not measured."""
    prefill = found.prefill
    return {
        "target": target,
        "life": str(found.life),
        "one_token_seconds": found.waited_seconds,
        "streams": [_stream_body(each) for each in found.streams],
        "queue_seconds": found.queue_seconds,
        "time_went_seconds": found.time_went,
        "decode_ceiling_tokens_per_second": found.ceiling_tokens_per_second,
        "prefill": None
        if prefill is None
        else {
            "tokens_per_second": prefill.tokens_per_second,
            "fixed_seconds": prefill.fixed_seconds,
            "points": [list(each) for each in prefill.points],
        },
        "prefix": {
            "state": found.prefix_word,
            "first_ttft_seconds": found.prefix.first.first_token_seconds if found.prefix else None,
            "second_ttft_seconds": found.prefix.second.first_token_seconds if found.prefix else None,
            "hit_tokens": found.prefix.hit_tokens if found.prefix else None,
            "prompt_tokens": found.prefix.prompt_tokens if found.prefix else None,
        },
        "prompts": [
            {
                "pair": [each.first, each.second],
                "shared_characters": each.shared_characters,
                "shared_ratio": each.shared_ratio,
                "first": each.first_text,
                "second": each.second_text,
            }
            for each in divergences
        ],
        "own_account": _split_body(found.split),
        "findings": [_finding_body(title, finding) for title, finding in found.findings],
        "stopped": found.stopped,
        "cost": found.cost,
    }


def examined_text(found: Examined, target: str, divergences: list[Divergence], sees_page: bool) -> str:
    """What a person reads: the figures, what they mean, what cannot be seen here, and the cost."""
    lines = [f"{name:{_MARGIN}}{text}" for name, text in _facts(found, divergences)]
    for title, finding in found.findings:
        lines += ["", f"{finding.severity.upper()}  {title}", f"  {finding.cause}"]
        lines += [f"  do: {instruction(each)}  {each.why}" for each in finding.remedies]
    if not found.findings and found.life is Life.ALIVE and not found.stopped:
        lines += ["", "No fault found."]
    lines.append("")
    if not sees_page:
        lines.append(
            "No metrics page of vLLM: the queue's share, evictions and stale gauges cannot be seen here."
        )
    if found.stopped:
        lines.append(f"Stopped: {found.stopped}.")
    lines.append(f"Asked of {target}: {found.cost}.")
    return "\n".join(lines)


def _facts(found: Examined, divergences: list[Divergence]) -> Iterator[tuple[str, str]]:
    if found.waited_seconds:
        yield "one token", f"{found.life.replace('-', ' ')}, after {seconds_text(found.waited_seconds)}"
    for name, stream in zip(("first run", "second run"), found.streams, strict=False):
        yield name, _stream_text(stream) + (" (kept)" if stream is found.kept and name != "first run" else "")
    yield from _split_of_time(found)
    if found.prefill is not None:
        yield "prefill", _prefill_text(found)
    for tokens, stream in sorted(found.lengths.items()):
        gap = median_gap(stream)
        told = f"first token after {seconds_text(stream.first_token_seconds or 0.0)}"
        yield f"{tokens:,} in", told + (f", gaps {seconds_text(gap)}" if gap is not None else "")
    if found.prefix is not None:
        yield "prefix", _prefix_text(found)
    if found.split is not None:
        yield "by itself", _split_text(found.split)
    for each in divergences:
        yield (
            "prompts",
            (
                f"{each.first} and {each.second} share {each.shared_characters:,} characters "
                f"({each.shared_ratio:.0%}), then {each.first_text!r} against {each.second_text!r}"
            ),
        )


def _split_of_time(found: Examined) -> Iterator[tuple[str, str]]:
    if found.time_went:
        yield "time went", _time_went_text(found.time_went)
    if found.ceiling_tokens_per_second is not None:
        most = found.ceiling_tokens_per_second
        told = f"{most:,.0f} tokens/s for one stream on this GPU; a stream alone should reach {most * 2 / 3:,.0f}"
        yield "ceiling", told
    if found.queue_seconds is not None:
        yield "queue", f"{seconds_text(found.queue_seconds)} a request, by the server's histogram"


def _stream_text(stream: Streamed) -> str:
    if not stream.answered:
        return f"no answer: {stream.detail}"
    parts = [
        "connection open already"
        if stream.connect_seconds is None
        else f"connection {seconds_text(stream.connect_seconds)} (not counted)",
        f"first byte {seconds_text(stream.first_byte_seconds or 0.0)}",
        f"first token {seconds_text(stream.first_token_seconds or 0.0)}",
    ]
    gap = median_gap(stream)
    if gap is not None:
        parts.append(f"gaps {seconds_text(gap)}, longest {seconds_text(max(stream.gaps))}")
        parts.append(f"{1 / gap:,.0f} tokens/s" if gap > 0 else "")
    if stream.prompt_tokens is not None:
        parts.append(f"{stream.prompt_tokens} in, {stream.output_tokens or 0} out")
    return ", ".join(filter(None, parts))


def _time_went_text(parts: Mapping[str, float]) -> str:
    whole = sum(parts.values())
    told = (
        f"{name} {seconds_text(seconds)}" + (f" ({seconds / whole:.0%})" if whole > 0 else "")
        for name, seconds in parts.items()
    )
    return f"{', '.join(told)}; {max(parts, key=lambda name: parts[name])} is the longest part"


def _prefill_text(found: Examined) -> str:
    prefill = found.prefill
    if prefill is None or prefill.tokens_per_second is None:
        return "too fast to measure: longer prompts do not delay the first token"
    return (
        f"{prefill.tokens_per_second:,.0f} tokens/s by the slope over prompt lengths, and "
        f"{seconds_text(prefill.fixed_seconds)} whatever the length"
    )


def _prefix_text(found: Examined) -> str:
    seen = found.prefix
    if seen is None:
        return "not asked"
    first, second = seen.first.first_token_seconds, seen.second.first_token_seconds
    times = f"first token after {seconds_text(first or 0.0)}, then {seconds_text(second or 0.0)}"
    hits = seen.second.cached_tokens if seen.second.cached_tokens is not None else seen.hit_tokens
    counted = "" if hits is None else f", {hits:.0f} of {seen.prompt_tokens or 0} tokens found"
    word = "unclear" if found.prefix_word == "unknown" else found.prefix_word
    return f"{word}: {times}{counted}"


def _split_text(split: Split) -> str:
    parts = []
    if split.load_seconds is not None:
        parts.append(f"load {seconds_text(split.load_seconds)}")
    for name, tokens, seconds in (
        ("prefill", split.prompt_tokens, split.prompt_seconds),
        ("decode", split.output_tokens, split.output_seconds),
    ):
        if tokens is not None and seconds:
            parts.append(
                f"{name} {tokens} tokens in {seconds_text(seconds)} ({tokens / seconds:,.0f} tokens/s)"
            )
    return ", ".join(parts)


def _stream_body(stream: Streamed) -> dict[str, Any]:
    return {
        "answered": stream.answered,
        "detail": stream.detail,
        "connect_seconds": stream.connect_seconds,
        "first_byte_seconds": stream.first_byte_seconds,
        "first_token_seconds": stream.first_token_seconds,
        "median_gap_seconds": median_gap(stream),
        "longest_gap_seconds": max(stream.gaps, default=None),
        "prompt_tokens": stream.prompt_tokens,
        "output_tokens": stream.output_tokens,
    }


def _split_body(split: Split | None) -> dict[str, Any] | None:
    if split is None:
        return None
    return {
        "load_seconds": split.load_seconds,
        "prompt_tokens": split.prompt_tokens,
        "prompt_seconds": split.prompt_seconds,
        "output_tokens": split.output_tokens,
        "output_seconds": split.output_seconds,
    }


def _finding_body(title: str, finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "title": title,
        "severity": str(finding.severity),
        "cause": finding.cause,
        "evidence": [{"clause": each.clause, "values": dict(each.values)} for each in finding.evidence],
        "remedies": [
            {
                "action": each.action,
                "flag": each.flag,
                "value": each.value,
                "why": each.why,
                "price": each.price,
            }
            for each in finding.remedies
        ],
    }
