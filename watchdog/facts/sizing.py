"""What a model takes on GPUs of a kind, and what they serve with it: arithmetic before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from watchdog.facts.architecture import Architecture
from watchdog.facts.capacity import USUAL_MEMORY_SHARE, is_quantised
from watchdog.facts.flags import all_flags, known_versions
from watchdog.facts.gpus import Gpu, decode_ceiling_tokens_per_second, turning_batch
from watchdog.facts.launch import amount

# What a driver shows of the memory on the data sheet (an H200 139.8 of 141 GiB): firmware keeps the rest.
_SHOWN_MEMORY_SHARE = 0.991
# CUDA context, kernels and small buffers beside weights and activations: 0.32 to 0.45 GB on an H200 (vLLM 0.24, 0.26).
_CONTEXT_BYTES = 350e6
# The widest moment of a step holds, for each token of its budget, three rows of the hidden size and three of the
# feed-forward block at 16 bits: 110,592 bytes at 4,096 and 14,336, to the byte what vLLM 0.24 sets aside.
_ROWS_AT_ONCE, _ACTIVATION_BYTES = 3, 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be served how: a model on `gpus` GPUs of a kind, joined by tensor parallelism.

    `pool_tokens` is what a running server says, used instead of an estimate. `weight_bits` None means as the model's
    config says; `weights_bytes` is the measured size of its files.
    """

    architecture: Architecture
    gpu: Gpu | None = None
    gpus: int = 1
    memory_share: float | None = None
    cache_dtype: str = "auto"
    weight_bits: float | None = None
    weights_bytes: float | None = None
    max_model_len: int | None = None
    batch_tokens: int | None = None
    pool_tokens: int | None = None

    @property
    def share(self) -> float:
        """The share of each GPU's memory that vLLM may take: as given, else its newest default."""
        return self.memory_share or amount(_default("--gpu-memory-utilization", self)) or USUAL_MEMORY_SHARE

    @property
    def step_tokens(self) -> int:
        """The token budget of a step: as given, else vLLM's newest default on such a GPU."""
        return self.batch_tokens or int(amount(_default("--max-num-batched-tokens", self)) or 2048)

    @property
    def length(self) -> int | None:
        """The longest request that is allowed: as given, else what the model was made for."""
        return self.max_model_len or self.architecture.max_model_len

    def model_bytes(self, active: bool = False) -> float | None:
        """Bytes of all weights, or of those that one token reads; None if unknown."""
        shape = self.architecture
        if self.weights_bytes is None or self.weight_bits is not None:
            return shape.weight_bytes(self.weight_bits, active)
        if not active:
            return self.weights_bytes
        if shape.parameters and shape.active_parameters:
            return self.weights_bytes * shape.active_parameters / shape.parameters
        return self.weights_bytes


@dataclass(frozen=True, slots=True)
class Sizing:
    """What follows from a plan; None where it does not follow from what is known.

    Bytes are on each GPU, but `weights_bytes`, which is of the whole model. `requests` maps a length in tokens to
    how many such requests the pool holds at once.
    """

    plan: Plan
    token_bytes: float | None
    weights_bytes: float | None
    pool_bytes: float | None
    pool_tokens: int | None
    fp8_pool_tokens: int | None
    requests: Mapping[int, int]
    longest_request_tokens: int | None
    ceiling_tokens_per_second: float | None
    turning_batch: float | None

    @property
    def weights_fit(self) -> bool | None:
        """Whether anything is left for a pool; None where memory or weights are not known."""
        return None if self.pool_bytes is None else self.pool_bytes > 0

    @property
    def length_fits(self) -> bool | None:
        """Whether one request of the longest allowed length fits into the pool, without which vLLM does not start."""
        longest, wanted = self.longest_request_tokens, self.plan.length
        return None if longest is None or wanted is None else longest >= wanted


@dataclass(frozen=True, slots=True)
class Pace:
    """A full batch at one length: streams at once, the least gap between tokens, and tokens a second in all."""

    streams: int
    gap_seconds: float
    tokens_per_second: float


def size(plan: Plan, lengths: Sequence[int]) -> Sizing:
    """Works a plan out."""
    pool_bytes = _pool_bytes(plan)
    tokens = _tokens(plan, pool_bytes, plan.cache_dtype)
    gpu = plan.gpu
    ceiling = decode_ceiling_tokens_per_second(
        gpu.bandwidth_bytes_per_second if gpu else None, plan.model_bytes(active=True), plan.gpus
    )
    return Sizing(
        plan=plan,
        token_bytes=plan.architecture.token_bytes(plan.cache_dtype, plan.gpus),
        weights_bytes=plan.model_bytes(),
        pool_bytes=pool_bytes,
        pool_tokens=tokens,
        fp8_pool_tokens=None if is_quantised(plan.cache_dtype) else _tokens(plan, pool_bytes, "fp8"),
        requests=_requests(plan, pool_bytes, lengths),
        longest_request_tokens=_longest(plan, pool_bytes),
        ceiling_tokens_per_second=ceiling,
        turning_batch=turning_batch(gpu, _bits(plan)) if gpu else None,
    )


def pace(sizing: Sizing, tokens: int, streams: int) -> Pace | None:
    """The least gap that so many streams of this length can have; None without GPU, weights or shape.

    A step reads the weights and every stream's keys and values, and computes two operations a parameter and
    stream; the slower of the two is the gap. Kernels reach some two thirds of either.
    """
    plan = sizing.plan
    read = plan.model_bytes(active=True)
    held = plan.architecture.request_bytes(tokens, plan.cache_dtype, plan.gpus)
    if plan.gpu is None or read is None or held is None or streams < 1:
        return None
    seconds = (read / plan.gpus + streams * held) / plan.gpu.bandwidth_bytes_per_second
    parameters, operations = plan.architecture.active_parameters, plan.gpu.operations_per_second
    if parameters and operations:
        seconds = max(seconds, 2 * parameters * streams / (operations * plan.gpus))
    return Pace(streams, seconds, streams / seconds)


def streams_within(sizing: Sizing, tokens: int, gap_seconds: float) -> int | None:
    """The most streams of this length that fit and whose least gap is within a bound; None where unknown."""
    most = sizing.requests.get(tokens)
    if most is None or pace(sizing, tokens, 1) is None:
        return None
    least, beyond = 0, most + 1
    while beyond - least > 1:
        middle = (least + beyond) // 2
        found = pace(sizing, tokens, middle)
        least, beyond = (middle, beyond) if found and found.gap_seconds <= gap_seconds else (least, middle)
    return least


def alternatives(plan: Plan) -> Mapping[str, Plan]:
    """The plan with one flag changed each time, by the flag; only changes that are not made already."""
    found: dict[str, Plan] = {}
    if not is_quantised(plan.cache_dtype):
        found["--kv-cache-dtype fp8"] = replace(plan, cache_dtype="fp8", pool_tokens=None)
    if plan.share < 0.95:
        found["--gpu-memory-utilization 0.95"] = replace(plan, memory_share=0.95, pool_tokens=None)
    if _bits(plan) > 8:
        found["weights of 8 bits"] = replace(plan, weight_bits=8.0, pool_tokens=None)
    if _bits(plan) > 5:
        found["weights of 4 bits"] = replace(plan, weight_bits=4.16, pool_tokens=None)
    found[f"--tensor-parallel-size {plan.gpus * 2}"] = replace(plan, gpus=plan.gpus * 2, pool_tokens=None)
    return found


def _bits(plan: Plan) -> float:
    return plan.architecture.weight_bits if plan.weight_bits is None else plan.weight_bits


def _default(flag: str, plan: Plan) -> str | None:
    memory = plan.gpu.memory_class if plan.gpu else None
    return all_flags()[flag].default(known_versions()[-1], "v1", memory, plan.length)


def _pool_bytes(plan: Plan) -> float | None:
    """Bytes for the pool on each GPU; below zero where the weights do not fit."""
    if plan.pool_tokens is not None:
        held = plan.architecture.token_bytes(plan.cache_dtype, plan.gpus)
        return None if held is None else plan.pool_tokens * held
    weights = plan.model_bytes()
    if plan.gpu is None or weights is None:
        return None
    shape = plan.architecture
    row = shape.hidden_size + shape.intermediate_size / plan.gpus
    activations = plan.step_tokens * row * _ROWS_AT_ONCE * _ACTIVATION_BYTES
    memory = plan.gpu.memory_bytes * _SHOWN_MEMORY_SHARE * plan.share
    return memory - weights / plan.gpus - activations - _CONTEXT_BYTES


def _tokens(plan: Plan, pool_bytes: float | None, cache_dtype: str) -> int | None:
    """The pool in tokens; with windows it is that of requests of the longest length, as vLLM counts it."""
    shape = plan.architecture
    each = shape.token_bytes(cache_dtype, plan.gpus)
    if shape.is_windowed and plan.length:
        whole = shape.request_bytes(plan.length, cache_dtype, plan.gpus)
        each = None if whole is None else whole / plan.length
    return None if pool_bytes is None or each is None else max(0, int(pool_bytes / each))


def _requests(plan: Plan, pool_bytes: float | None, lengths: Sequence[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for length in lengths:
        held = plan.architecture.request_bytes(length, plan.cache_dtype, plan.gpus)
        if pool_bytes is not None and held:
            found[length] = max(0, int(pool_bytes / held))
    return found


def _longest(plan: Plan, pool_bytes: float | None) -> int | None:
    """The longest request that fits alone; no more than the model's own longest is looked for."""
    if pool_bytes is None or plan.architecture.token_bytes(plan.cache_dtype, plan.gpus) is None:
        return None
    least, beyond = 0, (plan.length or 10**7) + 1
    while beyond - least > 1:
        middle = (least + beyond) // 2
        held = plan.architecture.request_bytes(middle, plan.cache_dtype, plan.gpus)
        least, beyond = (middle, beyond) if held is not None and held <= pool_bytes else (least, middle)
    return least
