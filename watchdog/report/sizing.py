"""A sizing and an outlook as JSON and as text for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from watchdog.facts.growth import Outlook, Until
from watchdog.facts.sizing import Pace, Sizing, alternatives, pace, size, streams_within
from watchdog.text import seconds_text

_GIB = 2**30
_MARGIN = 11
_AS_PLANNED = "as planned"
# Bits of the weights that are compared, with their scales.
_QUANTISED = {"16": 16.0, "8": 8.0, "4": 4.16}


def sizing_body(sizing: Sizing, gap_seconds: float) -> dict[str, Any]:
    """All figures of a sizing and of its alternatives; null for what does not follow from what is known."""
    plan = sizing.plan
    return {
        "gpu": plan.gpu.name if plan.gpu else None,
        "gpus": plan.gpus,
        "memory_share": plan.share,
        "cache_dtype": plan.cache_dtype,
        "max_model_len": plan.length,
        "kv_bytes_per_token": sizing.plan.architecture.token_bytes(plan.cache_dtype),
        "kv_bytes_per_token_on_each_gpu": sizing.token_bytes,
        "parameters": plan.architecture.parameters,
        "active_parameters": plan.architecture.active_parameters,
        "weights_bytes": sizing.weights_bytes,
        "weights_bytes_by_bits": _weights(sizing),
        "pool_bytes_on_each_gpu": sizing.pool_bytes,
        "pool_tokens": sizing.pool_tokens,
        "fp8_pool_tokens": sizing.fp8_pool_tokens,
        "requests": {str(length): count for length, count in sizing.requests.items()},
        "longest_request_tokens": sizing.longest_request_tokens,
        "weights_fit": sizing.weights_fit,
        "max_model_len_fits": sizing.length_fits,
        "decode_ceiling_tokens_per_second": sizing.ceiling_tokens_per_second,
        "compute_bound_from_batch": sizing.turning_batch,
        "what_if": [_row_body(*row) for row in _rows(sizing, gap_seconds)],
    }


def sizing_text(sizing: Sizing, gap_seconds: float) -> str:
    """The sizing for a person: what a token takes, what fits, how fast it can be, and what a flag would change."""
    lines = [f"{name:{_MARGIN}}{text}" for name, text in _facts(sizing)]
    rows = list(_rows(sizing, gap_seconds))
    if rows:
        lines += ["", *_table(rows, gap_seconds)]
    lines += ["", "Computed from the config and data sheets; a server's own figure is on its metrics page."]
    return "\n".join(lines)


def outlook_body(seen: Outlook) -> dict[str, Any]:
    """The outlook as JSON; null where nothing grows or too little was seen."""
    return {
        "seconds": seen.seconds,
        "kv_usage_ratio": _share(seen.pool.level) if seen.pool else None,
        "pool_full_in_seconds": _until_body(seen.pool_full),
        "queue_growth_per_second": [seen.queue.least_per_second, seen.queue.most_per_second]
        if seen.queue
        else None,
        "queue_bound": seen.queue_bound,
        "queue_full_in_seconds": _until_body(seen.queue_full),
        "replicas_wanted": seen.replicas,
    }


def outlook_text(seen: Outlook, engine: str) -> str:
    """The outlook for a person: when the pool or the queue is full, and how many replicas the load wants."""
    found = [f"over {seconds_text(seen.seconds)}:", _pool_outlook(seen), _queue_outlook(seen)]
    if seen.replicas is not None:
        noun = "replica" if seen.replicas == 1 else "replicas"
        found.append(f"The load needs {seen.replicas} {noun} of this kind, each at most 80% full.")
    else:
        found.append("The number of replicas is unknown: KV usage was never seen.")
    name = f"engine {engine}" if engine else "load"
    return f"{name:{_MARGIN}}" + " ".join(found)


def _pool_outlook(seen: Outlook) -> str:
    if seen.pool is None:
        return "too few pages to say where the pool goes."
    level = f"{_share(seen.pool.level):.0%}"
    if seen.pool_full is None:
        return f"the pool is {level} full and not growing beyond its own noise."
    if seen.pool_full.soonest_seconds == 0:
        return "the pool is full."
    return f"the pool is {level} full and full in {_interval(seen.pool_full)} at this growth."


def _share(level: float) -> float:
    """The end of a line through shares may lie beyond them."""
    return max(0.0, min(level, 1.0))


def _queue_outlook(seen: Outlook) -> str:
    if seen.queue is None:
        return "No queue grows."
    pair = f"{seen.queue.least_per_second:.2g} to {seen.queue.most_per_second:.2g}"
    text = f"The queue grows by {pair} requests/s"
    if seen.queue_full is not None and seen.queue_bound is not None:
        text += f" and reaches {seen.queue_bound:,.0f} in {_interval(seen.queue_full)}"
    return text + "."


def _interval(until: Until) -> str:
    soonest = seconds_text(until.soonest_seconds)
    if until.latest_seconds is None:
        return f"{soonest} or more"
    latest = seconds_text(until.latest_seconds)
    return soonest if soonest == latest else f"{soonest} to {latest}"


def _until_body(until: Until | None) -> list[float | None] | None:
    return None if until is None else [until.soonest_seconds, until.latest_seconds]


def _weights(sizing: Sizing) -> dict[str, float | None]:
    shape = sizing.plan.architecture
    return {name: shape.weight_bytes(bits) for name, bits in _QUANTISED.items()}


def _facts(sizing: Sizing) -> Iterator[tuple[str, str]]:
    plan, shape = sizing.plan, sizing.plan.architecture
    layers = sum(group.layers for group in shape.groups)
    whole = shape.token_bytes(plan.cache_dtype)
    kv = "of unknown size with this cache type" if whole is None else f"{whole:,.0f} bytes a token"
    if plan.gpus > 1 and sizing.token_bytes is not None:
        kv += f", {sizing.token_bytes:,.0f} on each of {plan.gpus} GPUs"
    kept = f"{layers} layers" + (" (some keep a window)" if shape.is_windowed else "")
    yield "KV cache", f"{kv}, over {kept}"
    yield "weights", _weights_text(sizing)
    if plan.gpu is None:
        yield "GPU", "not named (--gpu): pool and speed are not computed"
    else:
        yield "GPU", f"{plan.gpus} x {plan.gpu.name}, vLLM takes {plan.share:.0%} of its memory"
    if sizing.pool_bytes is not None:
        yield "pool", _pool_text(sizing)
    if sizing.requests:
        each = (f"{count:,} of {length:,} tokens" for length, count in sizing.requests.items())
        yield "at once", ", ".join(each)
    if sizing.ceiling_tokens_per_second is not None:
        yield "decode", _decode_text(sizing)
    if shape.state_layers:
        yield (
            "note",
            f"{shape.state_layers} layers keep no keys and values: their state and weights are not counted",
        )


def _weights_text(sizing: Sizing) -> str:
    if sizing.weights_bytes is None:
        return "unknown from this config: give their size (--weights 16GB)"
    plan = sizing.plan
    told = f"{sizing.weights_bytes / 1e9:,.1f} GB"
    sizes = [f"{each / 1e9:,.1f} GB at {bits} bits" for bits, each in _weights(sizing).items() if each]
    if plan.architecture.parameters:
        told += f" ({plan.architecture.parameters / 1e9:,.1f} billion parameters"
        active = plan.architecture.active_parameters
        if active and active != plan.architecture.parameters:
            told += f", {active / 1e9:,.1f} a token"
        told += ")"
    return told + (f"; {', '.join(sizes)}" if sizes else "")


def _pool_text(sizing: Sizing) -> str:
    if not sizing.weights_fit:
        return "none: the weights do not fit. More GPUs (--tensor-parallel-size) or fewer bits"
    told = f"{(sizing.pool_bytes or 0) / _GIB:,.1f} GiB on each GPU"
    if sizing.pool_tokens is not None:
        told += f", {sizing.pool_tokens:,} tokens"
    if sizing.fp8_pool_tokens is not None:
        told += f" ({sizing.fp8_pool_tokens:,} with an fp8 cache)"
    if sizing.length_fits is False:
        told += (
            f"; a request of {sizing.plan.length:,} tokens does not fit and vLLM refuses to start: "
            f"--max-model-len {sizing.longest_request_tokens} at most"
        )
    return told


def _decode_text(sizing: Sizing) -> str:
    told = f"one stream at most {sizing.ceiling_tokens_per_second:,.0f} tokens/s"
    if sizing.turning_batch is not None:
        told += f"; from a batch of {sizing.turning_batch:,.0f} compute is the limit, not bandwidth"
    return told


_Row = tuple[str, Sizing, int, Pace | None, int | None]


def _rows(sizing: Sizing, gap_seconds: float) -> Iterator[_Row]:
    """The plan and what changing one flag would do, at the median of the lengths asked for."""
    lengths = list(sizing.requests)
    if not lengths:
        return
    length = lengths[len(lengths) // 2]
    changed: Mapping[str, Sizing] = {
        name: size(plan, lengths) for name, plan in alternatives(sizing.plan).items()
    }
    for name, each in {_AS_PLANNED: sizing, **changed}.items():
        if each.pool_bytes is None:
            continue
        streams = each.requests.get(length, 0)
        yield name, each, length, pace(each, length, streams), streams_within(each, length, gap_seconds)


def _row_body(name: str, each: Sizing, length: int, full: Pace | None, within: int | None) -> dict[str, Any]:
    return {
        "change": name,
        "length": length,
        "pool_tokens": each.pool_tokens,
        "requests": each.requests.get(length, 0),
        "least_gap_seconds": full.gap_seconds if full else None,
        "most_tokens_per_second": full.tokens_per_second if full else None,
        "requests_within_gap": within,
    }


def _table(rows: Sequence[_Row], gap_seconds: float) -> Iterator[str]:
    length = rows[0][2]
    heads = (
        "what if",
        "pool tokens",
        "at once",
        "least gap",
        "tokens/s",
        f"within {seconds_text(gap_seconds)}",
    )
    cells = [heads, *(_cells(*row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    yield f"Requests of {length:,} tokens:"
    for row in cells:
        first, *rest = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join([row[0].ljust(len(first)), *rest]).rstrip()


def _cells(name: str, each: Sizing, length: int, full: Pace | None, within: int | None) -> tuple[str, ...]:
    return (
        name,
        "weights do not fit" if not each.weights_fit else f"{each.pool_tokens or 0:,}",
        f"{each.requests.get(length, 0):,}",
        "-" if full is None else seconds_text(full.gap_seconds),
        "-" if full is None else f"{full.tokens_per_second:,.0f}",
        "-" if within is None else f"{within:,}",
    )
