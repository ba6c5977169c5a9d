"""The one word for a target. Health is proven, never assumed: each word has its proof.

To show that an idle server is well takes a witness beside its counters (`facts/inflight.py`): they stand still then,
whether it hangs or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from watchdog.facts.inflight import Idleness
from watchdog.history.number import finite
from watchdog.history.span import NOW_SECONDS
from watchdog.model import Lookup, Ruling, Severity, Standing, State, Verdict
from watchdog.text import seconds_text

# Below this, rates and queues are not known yet: the verdict is "starting", never "healthy" by default.
LEAST_SECONDS_TO_JUDGE = 15.0
# A stream slower than a token a second reads as broken on any GPU and with any model.
SLOWEST_STREAM_TOKENS_PER_SECOND = 1.0
# Whoever waits ten seconds for a first token feels it, whatever was usual before.
LONGEST_FIRST_TOKEN_SECONDS = 10.0
# A block is found for each request that runs until the cache is about full; one preemption in a window happens.
FULL_RATIO = 0.9
LEAST_PREEMPTIONS = 2
_RATES = (
    "steps_per_second",
    "generation_tokens_per_second",
    "prompt_tokens_per_second",
    "first_tokens_per_second",
)


@dataclass(frozen=True, slots=True)
class Proof:
    """What the page shows of one engine's health.

    `seen_seconds` is how much of the window of now was seen. `moves` is whether a step ended or a token was counted in
    it, None where no counter shows it; `still_seconds` since when none did. `in_flight` is how many requests run or
    wait on the newest page or, if more, were taken by the API server; None where that is unknown. `doubt` is what users
    may feel of it, in words, empty for nothing.
    """

    seen_seconds: float = 0.0
    moves: bool | None = None
    still_seconds: float | None = None
    in_flight: float | None = None
    doubt: str = ""

    @classmethod
    def of(cls, lookup: Lookup) -> "Proof":
        """The proof that an engine's signals give."""
        rates = [rate for name in _RATES if (rate := lookup(name)) is not None]
        running, waiting = lookup("running_last"), lookup("waiting_last")
        known = [] if running is None or waiting is None else [running + waiting]
        known += [taken] if (taken := lookup("in_flight")) is not None else []
        in_flight = max(known, default=None)
        moves = any(rate > 0 for rate in rates) if rates else None
        return cls(
            seen_seconds=lookup("window_seconds") or 0.0,
            moves=moves,
            still_seconds=lookup("seconds_since_progress"),
            in_flight=in_flight,
            doubt=_doubt(lookup, moves, in_flight),
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing moves and, as far as the page shows, nothing is in flight."""
        return not self.moves and self.in_flight == 0


def ruling(standing: Standing, proofs: Sequence[Proof], idleness: Idleness) -> Ruling:
    """The verdict on a target, from how its incidents stand and what was proven of each of its engines.

    `proofs` is empty where no page with series of vLLM could be read; `idleness` is what witnesses say of the server.
    """
    lead = standing.lead_incident
    if lead is not None:
        if lead.is_cleared:
            return Ruling(Verdict.RECOVERING)
        return Ruling(Verdict.CRITICAL if lead.severity is Severity.CRITICAL else Verdict.DEGRADED)
    if not proofs:
        return Ruling(Verdict.UNKNOWN)
    if max(proof.seen_seconds for proof in proofs) < LEAST_SECONDS_TO_JUDGE:
        return Ruling(Verdict.STARTING)
    return _without_lead(standing, proofs, idleness)


def _without_lead(standing: Standing, proofs: Sequence[Proof], idleness: Idleness) -> Ruling:
    pending = dict.fromkeys(
        one.key.rule
        for one in standing.incidents
        if one.state is State.PENDING and one.severity is not Severity.INFO and not one.explained_by
    )
    doubts = dict.fromkeys(proof.doubt for proof in proofs if proof.doubt)
    if pending or doubts:
        looming = [f"pending: {', '.join(pending)}"] if pending else []
        return Ruling(Verdict.UNSETTLED, "; ".join([*looming, *doubts]))
    # Engines of one server share their process and their queue: one that works vouches for those with nothing to do.
    if any(proof.moves for proof in proofs):
        return Ruling(Verdict.HEALTHY)
    if all(proof.is_idle for proof in proofs):
        return _idle(proofs, idleness)
    return Ruling(Verdict.UNKNOWN, "its page does not show whether steps complete")


def _idle(proofs: Sequence[Proof], idleness: Idleness) -> Ruling:
    if idleness.is_proven:
        return Ruling(Verdict.HEALTHY, idleness.text[0].lower() + idleness.text[1:].rstrip("."))
    still = [proof.still_seconds for proof in proofs if proof.still_seconds is not None]
    lasting = f"no step for {seconds_text(min(still))}" if still else "nothing moves"
    return Ruling(Verdict.IDLE, f"{lasting}; no evidence that no request hangs: health is not proven")


def _doubt(lookup: Lookup, moves: bool | None, in_flight: float | None) -> str:
    """What users may feel that no rule need have named; empty for nothing."""
    queue, ttft = lookup("waiting_recent_min"), finite(lookup("ttft_p50_seconds"))
    running, pace = lookup("running_recent_min"), lookup("stream_tokens_per_second")
    doubts = []
    # A job of many requests is meant to wait.
    is_wanted = lookup("batch_jobs") == 1
    if queue and not is_wanted:
        doubts.append(f"a queue of {queue:,.0f} stands")
    if ttft is not None and not is_wanted and ttft >= LONGEST_FIRST_TOKEN_SECONDS:
        doubts.append(f"half of the first tokens take {seconds_text(ttft)} or longer")
    preempted, full = lookup("preemptions") or 0.0, lookup("kv_usage_last_ratio") or 0.0
    if preempted >= LEAST_PREEMPTIONS and full > FULL_RATIO:
        doubts.append(f"{preempted:,.0f} preemptions, and the KV cache is {full:.0%} full")
    if in_flight and moves is False:
        still = lookup("seconds_since_progress") or NOW_SECONDS
        doubts.append(f"{in_flight:,.0f} in flight and no step has ended for {seconds_text(still)}")
    elif running and pace is not None and pace < SLOWEST_STREAM_TOKENS_PER_SECOND:
        doubts.append(f"a stream gets {pace:.2f} tokens/s")
    return ", ".join(doubts)
