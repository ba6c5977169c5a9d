"""A small simulated vLLM engine: it schedules as vLLM does and books its metrics when vLLM books them.

Discrete steps, no clock, no randomness of its own: the same traffic gives the same pages. What it leaves out: blocks
(the KV cache is counted in tokens), LoRA, speculation, connectors, the output side of the API server.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Literal

Hangs = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Hardware:
    """The time of a step, in seconds: a fixed part, and parts for each stream and each prompt token."""

    step: float
    per_stream: float
    per_prompt_token: float


# The first and the last are fitted to recordings (CPU with a tiny model; 8B in eager mode), the others lie between.
TINY_ON_CPU = Hardware(0.0065, 0.0007, 0.0004)
SMALL_GPU = Hardware(0.055, 0.0004, 0.00025)
LARGE_GPU = Hardware(0.013, 0.0001, 0.00008)
H200_EAGER = Hardware(0.0165, 0.00004, 0.000035)


@dataclass(frozen=True)
class Setup:
    """How a server is started. `pool_tokens` is the size of the KV cache, `version` picks names and quirks."""

    hardware: Hardware = H200_EAGER
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    pool_tokens: int = 400_000
    prefix_caching: bool = True
    version: Literal["0.32", "0.10", "V0"] = "0.32"
    api_seconds: float = 0.002
    model_name: str = "m"
    engine: str = "0"

    def capacity(self, prompt: float, output: float) -> float:
        """About how many such requests a second it can finish."""
        streams = min(self.max_num_seqs, self.pool_tokens / (prompt + output / 2))
        step = self.hardware.step + self.hardware.per_stream * streams
        return 1 / (output * step / streams + prompt * self.hardware.per_prompt_token)


@dataclass(eq=False)
class Request:
    """One request: what it brings, and where it stands."""

    arrival: float
    prompt: int
    output: int
    prefix: str = ""
    shared: int = 0
    patience: float = inf
    at_engine: float = 0.0
    scheduled: float = -1.0
    first_token: float = -1.0
    last_token: float = 0.0
    cached: int = 0
    held: int = 0
    to_compute: int = 0
    made: int = 0
    made_at_join: int = 0
    ends_at_step: int = -1
    gone: bool = False
    number: int = 0


_SECONDS = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_TTFT = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
)
_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_LENGTHS = tuple(float(digit * 10**power) for power in range(5) for digit in (1, 2, 5))
_STEPS = (1.0, *(float(2**power) for power in range(3, 15)))
_HISTOGRAMS = {
    "time_to_first_token_seconds": _TTFT,
    "inter_token_latency_seconds": _ITL,
    "e2e_request_latency_seconds": _SECONDS,
    "request_queue_time_seconds": _SECONDS,
    "request_prefill_time_seconds": _SECONDS,
    "request_decode_time_seconds": _SECONDS,
    "request_prompt_tokens": _LENGTHS,
    "request_generation_tokens": _LENGTHS,
    "iteration_tokens_total": _STEPS,
}


class Histogram:
    """Observations by bucket."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.total, self.counts = bounds, 0.0, [0] * (len(bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Books a value, `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Engine:
    """One engine: give it all its requests and the times in which it hangs, then advance it."""

    def __init__(self, setup: Setup, requests: Iterable[Request], hangs: Hangs = ()) -> None:
        self.setup, self.hangs = setup, hangs
        self.coming = deque(sorted(requests, key=lambda one: one.arrival))
        self.arrivals = [one.arrival for one in self.coming]
        api_free = 0.0
        for number, one in enumerate(self.coming):
            one.number = number
            api_free = one.at_engine = max(one.arrival, api_free) + setup.api_seconds
        self.at_engine = [one.at_engine for one in self.coming]
        self.waiting: deque[Request] = deque()
        self.running, self.prefilling = dict[Request, None](), dict[Request, None]()
        self.joined: list[Request] = []
        self.ends, self.leaving = list[tuple[int, int, Request]](), list[tuple[float, int, Request]]()
        self.shares, self.touched = dict[str, int](), dict[str, int]()
        # What the blocks of a shared prefix hold while somebody uses them, by its first user.
        self.share_tokens = dict[str, int]()
        self.now, self.step_end, self.chunks, self.decoding = 0.0, inf, list[tuple[Request, int]](), 0
        self.used = self.written = self.decode_steps = self.done = 0
        self.gauges = (0, 0, 0.0)
        self.histograms = {name: Histogram(bounds) for name, bounds in _HISTOGRAMS.items()}
        self.counters = dict.fromkeys(("preemptions", "prompt", "generation", "queries", "hits", "stop"), 0)
        self.last_decode_at = 0.0

    def advance(self, until: float) -> None:
        """Ends all steps that end by then."""
        while True:
            if self.step_end == inf and not self._begin_step(until):
                return
            if self.step_end > until:
                return
            self._end_step()

    def _begin_step(self, until: float) -> bool:
        while True:
            for begin, end in self.hangs:
                self.now = end if begin <= self.now < end else self.now
            self._arrive()
            if (self.waiting or self.running) and self._schedule():
                break
            if not self.coming or self.coming[0].at_engine > until or self.now > until:
                return False
            self.now = max(self.now, self.coming[0].at_engine)
        hardware, prompt_tokens = self.setup.hardware, sum(tokens for _, tokens in self.chunks)
        took = hardware.step + hardware.per_stream * self.decoding + hardware.per_prompt_token * prompt_tokens
        stopped = sum(end - begin for begin, end in self.hangs if self.now < begin <= self.now + took)
        self.step_end = self.now + took + stopped
        return True

    def _arrive(self) -> None:
        while self.coming and self.coming[0].at_engine <= self.now:
            one = self.coming.popleft()
            one.to_compute = one.prompt
            self.waiting.append(one)
            if one.patience < inf:
                heappush(self.leaving, (one.arrival + one.patience, one.number, one))
        while self.leaving and self.leaving[0][0] <= self.now:
            self._leave(heappop(self.leaving)[2])

    def _leave(self, one: Request) -> None:
        """The client closes the connection: no histogram and no finish says so."""
        if one.gone:
            return
        if one in self.running:
            self._release(one)
        else:
            self.waiting.remove(one)
        one.gone = True
        self.done += 1

    def _schedule(self) -> bool:
        """Picks the tokens of the next step; False where nothing can be computed."""
        setup, self.chunks, preempted = self.setup, [], False
        self.decoding = len(self.running) - len(self.prefilling)
        while self.used + self.decoding > setup.pool_tokens and self.running:
            preempted = self._preempt()
        budget = setup.max_num_batched_tokens - self.decoding
        for one in self.prefilling:
            budget -= self._take(one, min(budget, one.to_compute))
        while not preempted and self.waiting and len(self.running) < setup.max_num_seqs and budget > 0:
            one = self.waiting[0]
            cached = self._cached(one)
            tokens = min(budget, one.to_compute - cached)
            if self.used + self.decoding + cached + tokens > setup.pool_tokens:
                break
            self.waiting.popleft()
            self._admit(one, cached)
            budget -= self._take(one, tokens)
        if setup.version == "V0" and self.chunks:
            self.decoding = 0  # V0: a step is all prefill or all decoding
        if not self.decoding and not self.chunks and len(self.running) > 1:
            self._preempt()
            return self._schedule()
        return bool(self.decoding or self.chunks)

    def _take(self, one: Request, tokens: int) -> int:
        if tokens <= 0 or self.used + self.decoding + tokens > self.setup.pool_tokens:
            return 0
        one.to_compute -= tokens
        one.held += tokens
        self.used += tokens
        self.written += tokens
        self.chunks.append((one, tokens))
        return tokens

    def _cached(self, one: Request) -> int:
        """Tokens of its prefix that were not written over since they were last used."""
        if not self.setup.prefix_caching or not one.prefix or one.scheduled >= 0:
            return 0
        since = self.touched.get(one.prefix)
        held = one.prefix in self.shares
        kept = since is not None and self.written - since < self.setup.pool_tokens - self.used
        return one.shared if held or kept else 0

    def _admit(self, one: Request, cached: int) -> None:
        if one.scheduled < 0:
            one.scheduled, one.cached = self.now, cached
            if self.setup.prefix_caching:
                self.counters["queries"] += one.prompt
                self.counters["hits"] += cached
        one.to_compute -= cached
        if one.prefix:
            self.touched[one.prefix] = self.written
        if cached:
            if one.prefix not in self.shares:
                self.used += cached
                self.share_tokens[one.prefix] = cached
            self.shares[one.prefix] = self.shares.get(one.prefix, 0) + 1
        self.running[one] = self.prefilling[one] = None

    def _release(self, one: Request) -> None:
        self.running.pop(one)
        self.prefilling.pop(one, None)
        if one in self.joined:
            self.joined.remove(one)
        if one.ends_at_step >= 0:
            one.made = one.output - (one.ends_at_step - self.decode_steps)
            one.held += one.made - one.made_at_join
            one.ends_at_step = -1
        self.used -= one.held
        one.held = 0
        if one.cached and one.prefix in self.shares:
            self.shares[one.prefix] -= 1
            if not self.shares[one.prefix]:
                del self.shares[one.prefix]
                self.used -= self.share_tokens.pop(one.prefix)
                self.touched[one.prefix] = self.written
            one.cached = 0

    def _preempt(self) -> bool:
        one = next(reversed(self.running))
        self.decoding -= one not in self.prefilling
        self.chunks = [chunk for chunk in self.chunks if chunk[0] is not one]
        one.last_token = max(one.last_token, self.last_decode_at)
        self._release(one)
        one.to_compute = one.prompt + one.made
        self.waiting.appendleft(one)
        self.counters["preemptions"] += 1
        return True

    def _end_step(self) -> None:
        self.now, self.step_end, booked = self.step_end, inf, self.decoding
        gaps = self.histograms["inter_token_latency_seconds"]
        if self.decoding:
            gaps.observe(self.now - self.last_decode_at, self.decoding - len(self.joined))
            for one in self.joined:
                gaps.observe(self.now - one.last_token)
            self.joined.clear()
            self.counters["generation"] += self.decoding
            self.used += self.decoding
            self.written += self.decoding
            self.decode_steps += 1
            self.last_decode_at = self.now
        for one, _ in self.chunks:
            if not one.to_compute:
                booked += self._prefilled(one)
        while self.ends and self.ends[0][0] <= self.decode_steps:
            at_step, _, one = heappop(self.ends)
            if one.ends_at_step == at_step and one in self.running and one not in self.prefilling:
                self._finish(one)
        self.histograms["iteration_tokens_total"].observe(booked)
        self.gauges = (len(self.running), len(self.waiting), min(1.0, self.used / self.setup.pool_tokens))

    def _prefilled(self, one: Request) -> int:
        again = one.first_token >= 0
        if again:
            self.histograms["inter_token_latency_seconds"].observe(self.now - one.last_token)
        if not again or self.setup.version == "V0":
            self.histograms["time_to_first_token_seconds"].observe(self.now - one.arrival)
            self.counters["prompt"] += one.prompt
        one.first_token = one.first_token if again else self.now
        self.counters["generation"] += 1
        self.prefilling.pop(one)
        one.made += 1
        one.made_at_join = one.made
        one.last_token = self.now
        one.ends_at_step = self.decode_steps + one.output - one.made
        if one.made >= one.output:
            self._finish(one)
        else:
            self.joined.append(one)
            heappush(self.ends, (one.ends_at_step, one.number, one))
        return one.prompt + 1

    def _finish(self, one: Request) -> None:
        self._release(one)
        one.gone = True
        self.done += 1
        booked = {
            "e2e_request_latency_seconds": self.now - one.arrival,
            "request_queue_time_seconds": one.scheduled - one.at_engine,
            "request_prefill_time_seconds": one.first_token - one.scheduled,
            "request_decode_time_seconds": self.now - one.first_token,
            "request_prompt_tokens": one.prompt,
            "request_generation_tokens": one.output,
        }
        for name, value in booked.items():
            self.histograms[name].observe(value)
        self.counters["stop"] += 1
