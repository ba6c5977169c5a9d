"""A day in the life of a simulated server: its traffic changes by the hour, and at random times something is wrong.

Chats that grow, calls with a common system prompt, bursts, nights, clients that are deployed with other prompts,
restarts. What is wrong is known, and so is what users feel at each scrape; both from the simulation, not from the page.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import cos, inf, pi
from random import Random

from tests.lives.simulated_engine import H200_EAGER, LARGE_GPU, SMALL_GPU, Engine, Request, Setup
from tests.lives.simulated_server import around, page, process
from watchdog.model import Failure, Reason, Scrape

HOUR = 3600.0
# The clock of the simulated servers begins here, at a midnight.
MIDNIGHT = 1_790_000_000.0 - 1_790_000_000.0 % 86_400
# A first token later than this, or a gap longer than that, is felt; so is what each twentieth request feels.
FELT_FIRST_TOKEN_SECONDS = 2.0
FELT_GAP_SECONDS = 0.5
FELT_SHARE = 0.05
FELT_FOR_SECONDS = 30.0

SETUPS = (
    Setup(SMALL_GPU, max_num_seqs=64, max_num_batched_tokens=2048, pool_tokens=60_000),
    Setup(LARGE_GPU, max_num_seqs=128, max_num_batched_tokens=4096, pool_tokens=200_000),
    Setup(H200_EAGER),
    Setup(LARGE_GPU, max_num_seqs=64, max_num_batched_tokens=2048, pool_tokens=400_000, version="0.10"),
)


class Trouble(StrEnum):
    """What may be wrong."""

    SURGE = "surge"
    BATCH = "batch"
    LONG_ANSWERS = "long answers"
    LONG_PROMPTS = "long prompts"
    CHANGED_HEAD = "changed head of the prompt"
    HANG = "hang"
    CRASH = "crash"
    IMPATIENCE = "impatience"


SATURATED = (
    "traffic-surge seqs-limited kv-pool-exhausted preemption-thrash token-budget-limited prefill-bound"
)
# The rules that name it. Which limit binds first when too much comes is the server's business.
NAMED_BY = {
    Trouble.SURGE: frozenset(SATURATED.split()),
    Trouble.BATCH: frozenset(SATURATED.split()),
    Trouble.LONG_ANSWERS: frozenset(SATURATED.split()),
    Trouble.LONG_PROMPTS: frozenset(["prompt-length-shift", "prefill-interference", *SATURATED.split()]),
    Trouble.CHANGED_HEAD: frozenset(["prefix-cache-ineffective", "prefix-cache-evicted", *SATURATED.split()]),
    Trouble.HANG: frozenset(["engine-stalled"]),
    Trouble.CRASH: frozenset(["target-down", "engine-restarted", "crash-loop"]),
    Trouble.IMPATIENCE: frozenset(["client-aborts"]),
}

# An application with a long system prompt has run for so long when its clients send another head with each request.
HEAD_SECONDS, HEAD_TOKENS = 1200.0, 2300

# Requests that come with it: their share of what the server could do of them alone, their prompt and answer in tokens.
_MORE = {
    Trouble.SURGE: (1.6, 400, 200),
    Trouble.LONG_ANSWERS: (1.5, 200, 1500),
    Trouble.LONG_PROMPTS: (1.4, 6000, 60),
    Trouble.CHANGED_HEAD: (0.9, 2500, 60),
    Trouble.HANG: (0.15, 300, 100),
    Trouble.CRASH: (0.15, 300, 100),
    Trouble.IMPATIENCE: (0.25, 300, 600),
}


@dataclass(frozen=True)
class Fault:
    """Something that is wrong from `begin` to `end`, in seconds of the life."""

    trouble: Trouble
    begin: float
    end: float


@dataclass(frozen=True)
class Moment:
    """A scrape, whether users felt something in the half minute before it, and the fault that holds."""

    scrape: Scrape
    felt: bool
    fault: Fault | None


@dataclass(frozen=True)
class _Clients:
    """How one application asks: `share` of the server's capacity at noon, tokens of its system prompt, of what
    a user adds and of an answer, and how many turns a chat has."""

    share: float
    system: int
    asked: int
    answered: int
    turns: int


class Life:
    """`hours` of one server, the same for the same seed."""

    def __init__(self, seed: int, hours: float = 24.0, faults: bool = True) -> None:
        self.seed, self.end = seed, hours * HOUR
        self._random = Random(seed)
        self.setup = self._random.choice(SETUPS)
        self.faults = tuple(self._faults()) if faults else ()
        self.engines = self._engines(self._requests())

    # What is wrong.

    def _faults(self) -> Iterator[Fault]:
        """One about each hour and a half, never near another; each lasts two to six minutes."""
        random, at = self._random, 0.0
        while (at := at + random.uniform(0.75, 1.75) * HOUR) < self.end - 0.25 * HOUR:
            trouble = random.choice(list(Trouble))
            lasts = 75.0 if trouble is Trouble.CRASH else random.uniform(120, 360)
            yield Fault(trouble, at, at + lasts)

    def fault_at(self, at: float) -> Fault | None:
        """What is wrong at that second of the life."""
        return next((one for one in self.faults if one.begin <= at < one.end), None)

    # Who asks.

    def _requests(self) -> list[Request]:
        requests: list[Request] = []
        for deploy, (begin, end) in enumerate(pairwise(self._deploys())):
            applications = [self._application() for _ in range(self._random.randint(1, 3))]
            for number, clients in enumerate(applications):
                requests += self._asked(clients, f"{deploy}.{number}", begin, end)
            requests += self._bursts(applications[0], f"{deploy}.0", begin, end)
        for fault in self.faults:
            self._spoil(requests, fault)
        return requests

    def _deploys(self) -> list[float]:
        """When the applications change: some three times a day."""
        times, at = [0.0], 0.0
        while (at := at + self._random.uniform(4, 12) * HOUR) < self.end:
            times.append(at)
        return [*times, self.end]

    def _application(self) -> _Clients:
        random = self._random
        return _Clients(
            share=random.uniform(0.08, 0.2),
            system=int(random.choice([0, 200, 800, 2000]) * random.uniform(0.8, 1.2)),
            asked=int(random.uniform(60, 700)),
            answered=int(random.uniform(40, 350)),
            turns=random.choice([1, 1, 3, 8]),
        )

    def _asked(self, clients: _Clients, name: str, begin: float, end: float) -> Iterator[Request]:
        """Chats that begin at random, fewer by night; a chat's next turn brings all that was said before."""
        random = self._random
        prompt = clients.system + clients.asked + (clients.asked + clients.answered) * (clients.turns - 1) / 2
        noon = clients.share * self.setup.capacity(prompt, clients.answered) / clients.turns
        asked, answered, at, number = around(clients.asked), around(clients.answered), begin, 0
        while noon > 0 and (at := at + random.expovariate(noon)) < end:
            if random.random() < by_day(at):
                number += 1
                yield from self._chat(clients, f"{name}.{number}", name, at, (asked, answered), end)

    def _chat(
        self,
        clients: _Clients,
        chat: str,
        system: str,
        at: float,
        lengths: tuple[Callable[[Random], int], Callable[[Random], int]],
        end: float,
    ) -> Iterator[Request]:
        random, said = self._random, clients.system
        for turn in range(clients.turns):
            if at >= end:
                return
            prompt, output = said + lengths[0](random), lengths[1](random)
            yield Request(at, prompt, output, chat if turn else system, said)
            said = prompt + output
            at += random.uniform(15, 60)

    def _bursts(self, clients: _Clients, name: str, begin: float, end: float) -> Iterator[Request]:
        """A few requests at once, some times an hour: a user who opens many tabs, a job that starts each quarter."""
        random, asked, answered = self._random, around(clients.asked), around(clients.answered)
        at = begin
        while (at := at + random.expovariate(4 / HOUR)) < end:
            for _ in range(random.randint(3, max(4, self.setup.max_num_seqs // 4))):
                yield Request(
                    at + random.uniform(0, 2),
                    clients.system + asked(random),
                    answered(random),
                    name,
                    clients.system,
                )

    # What trouble does to traffic.

    def _spoil(self, requests: list[Request], fault: Fault) -> None:
        """Changes the requests of a fault's time, and adds those that come with it."""
        hit = [one for one in requests if fault.begin <= one.arrival < fault.end]
        if fault.trouble is Trouble.CHANGED_HEAD:
            for one in hit:
                one.prefix = ""
        come = {Trouble.BATCH: self._batch, Trouble.CHANGED_HEAD: self._head}.get(fault.trouble, self._more)
        more = list(come(fault))
        requests.extend(more)
        if fault.trouble is Trouble.IMPATIENCE:
            for one in (*hit, *more):
                one.patience = 2.5

    def _batch(self, fault: Fault) -> Iterator[Request]:
        """As many requests as the server can finish in most of the time, all at once."""
        random, prompts, outputs = self._random, around(400), around(150)
        for _ in range(int(self.setup.capacity(400, 150) * (fault.end - fault.begin) * 0.9)):
            yield Request(fault.begin + random.uniform(0, 3), prompts(random), outputs(random))

    def _head(self, fault: Fault) -> Iterator[Request]:
        """An application with a long system prompt, before which its clients put something new in the fault.

        The same requests come before and in the fault: nothing changes but what they share.
        """
        random = self._random
        share, prompt, output = _MORE[fault.trouble]
        prompts, outputs = around(prompt - HEAD_TOKENS, 0.3), around(output, 0.3)
        for at in self._times(share, prompt, output, max(0.0, fault.begin - HEAD_SECONDS), fault.end):
            head, shared = (f"head.{fault.begin}", HEAD_TOKENS) if at < fault.begin else ("", 0)
            yield Request(at, HEAD_TOKENS + prompts(random), outputs(random), head, shared)

    def _more(self, fault: Fault) -> Iterator[Request]:
        """Requests that share nothing, at a share of what the server could do of them alone."""
        share, prompt, output = _MORE[fault.trouble]
        prompts, outputs = around(prompt, 0.3), around(output, 0.3)
        for at in self._times(share, prompt, output, fault.begin, fault.end):
            yield Request(at, prompts(self._random), outputs(self._random))

    def _times(self, share: float, prompt: int, output: int, begin: float, end: float) -> Iterator[float]:
        """Random moments, so many that such requests take a share of what the server can do."""
        at, rate = begin, share * self.setup.capacity(prompt, output)
        while (at := at + self._random.expovariate(rate)) < end:
            yield at

    # The server.

    def _engines(self, requests: list[Request]) -> list[tuple[float, Engine]]:
        """Each process of the server with the second of the life at which it began to answer."""
        crashes = [one for one in self.faults if one.trouble is Trouble.CRASH]
        hangs = tuple((one.begin, one.end) for one in self.faults if one.trouble is Trouble.HANG)
        begins = [0.0, *(one.end for one in crashes)]
        ends = [*(one.begin for one in crashes), inf]
        requests.sort(key=lambda one: one.arrival)
        return [
            (begin, Engine(self.setup, [one for one in requests if begin <= one.arrival < end], hangs))
            for begin, end in zip(begins, ends, strict=True)
        ]

    def moments(self, interval: float = 5.0, lost: float = 0.0) -> Iterator[Moment]:
        """What a scraper sees; `lost` is the share of scrapes without an answer."""
        random, at = Random(self.seed), 0.0
        begins = [begin for begin, _ in self.engines]
        feeling = _Feeling()
        while (at := at + interval) < self.end:
            began, engine = self.engines[bisect_right(begins, at) - 1]
            fault, wall = self.fault_at(at), MIDNIGHT + at
            if fault is not None and fault.trouble is Trouble.CRASH:
                refused = Failure(Reason.REFUSED, "connection refused", while_connecting=True)
                yield Moment(Scrape(at, wall, 0.001, 0, b"", refused), True, fault)
                continue
            engine.advance(at)
            felt = feeling.of(engine, at)
            if random.random() < lost:
                late = Failure(Reason.TIMEOUT, "no answer in 4 s")
                yield Moment(Scrape(at, wall, 4.0, 0, b"", late), felt, fault)
                continue
            lines = [*page(engine), *process(engine, at, began)]
            body = ("\n".join(lines) + "\n").encode()
            yield Moment(Scrape(at, wall, 0.01, 200, body), felt, fault)


def by_day(at: float) -> float:
    """The share of noon's traffic at a second of the day: a twentieth at two in the morning."""
    return 0.525 - 0.475 * cos(2 * pi * (at / HOUR - 2) / 24)


class _Feeling:
    """Whether users felt something in the half minute before a scrape, by the engine's own books."""

    def __init__(self) -> None:
        self._books: list[tuple[float, int, int, int, int]] = []  # time, answers, late ones, stalls, given up

    def of(self, engine: Engine, at: float) -> bool:
        first = engine.histograms["time_to_first_token_seconds"]
        gaps = engine.histograms["inter_token_latency_seconds"]
        book = (
            at,
            sum(first.counts),
            sum(first.counts[bisect_right(first.bounds, FELT_FIRST_TOKEN_SECONDS) :]),
            sum(gaps.counts[bisect_right(gaps.bounds, FELT_GAP_SECONDS) :]),
            engine.done - engine.counters["stop"],
        )
        if self._books and book[1] < self._books[-1][1]:
            self._books.clear()
        self._books.append(book)
        while len(self._books) > 1 and self._books[1][0] <= at - FELT_FOR_SECONDS:
            self._books.pop(0)
        _, requests, late, stalls, given_up = (
            now - before for now, before in zip(book, self._books[0], strict=True)
        )
        oldest = engine.waiting[0].arrival if engine.waiting else at
        waits = at - oldest > FELT_FIRST_TOKEN_SECONDS
        stands = engine.now < at - 5 and bool(engine.running)
        return waits or stands or max(late, stalls, given_up) > FELT_SHARE * requests
