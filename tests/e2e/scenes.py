"""What is brought about at a real server, and what has to be said of it."""

import json
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.account import Account
from tests.e2e.installation import Installation
from tests.e2e.product import Sidecar, json_of, sidecar, vllm_watchdog
from tests.e2e.traffic import Traffic
from tests.e2e.vllm_server import VllmServer

ROOMY = "--max-model-len 4096 --block-size 32 --num-gpu-blocks-override 2000 --max-num-seqs 24"
# One block holds a whole request, and ten are all there are.
TEN_REQUESTS = "--max-model-len 2048 --block-size 256 --num-gpu-blocks-override 11 --max-num-seqs 64"
BUDGET = "--max-num-batched-tokens 2048"
LOAD = "--enable-server-load-tracking"
# What is healthy has to be so for a while before that is said; a stall is one after 20 s.
SETTLED_SECONDS, NAMED_SECONDS = 180.0, 90.0
GOOD = ("healthy", "idle")
DIAGNOSE = ("--for", "30s", "--interval", "1s", "--format", "json")
# The lab loads the server on purpose, with longer prompts and answers cut to length: that is true, and said.
LAB_BRINGS = {"output-truncated", "prefill-bound", "prefill-interference", "prompt-length-shift"}
# True as well: no prompt fills a block of 256 tokens, requests need an eighth of the length limit, and the symptoms.
FULL_BRINGS = {
    "prefix-block-too-large",
    "context-overprovisioned",
    "queue-latency-high",
    "ttft-high",
    "e2e-high",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """What a scene needs: the installation, a folder of its own, where checks are noted."""

    installation: Installation
    folder: Path
    account: Account


def python_front_end(stage: Stage) -> None:
    """One server with the Python front end: healthy, asked on purpose, hanging while idle, crashed and restarted."""
    account = stage.account
    with _watched(stage, f"{ROOMY} {BUDGET} {LOAD}") as (server, beside):
        account.scene("healthy: 1.5 requests a second")
        with Traffic(server.url, 1.5) as traffic:
            _expect(account, beside, ("healthy",), SETTLED_SECONDS)
            _diagnose(account, server, 0, None)
        account.check("requests that failed", "0", str(traffic.failed), not traffic.failed)
        _probe(account, server)
        account.check_only("all that ever fired", (), beside.causes())
        _lab(stage, server)
        account.check_only("all that ever fired", LAB_BRINGS, beside.causes())
        _hang(account, server, beside)
        _probe_of_a_hang(account, server)
        _goes_on(account, server, beside)
        _restart(account, server, beside)
        _nothing_else(account, beside, {"engine-stalled", "target-down", "engine-restarted"} | LAB_BRINGS)


def pool_exhausted(stage: Stage) -> None:
    """A KV cache of ten requests, and more requests than that."""
    account = stage.account
    with _watched(stage, f"{TEN_REQUESTS} {BUDGET} {LOAD}") as (server, beside):
        account.scene("a KV cache of ten requests, one request a second")
        with Traffic(server.url, 1.0, most_tokens=180, shared_words=0):
            _expect(account, beside, ("healthy",), SETTLED_SECONDS)
            account.check_only("all that ever fired", FULL_BRINGS, beside.causes())
            account.scene("a KV cache of ten requests, twelve more a second")
            with Traffic(server.url, 12.0, 150, 180, shared_words=0):
                _named(account, beside, "kv-pool-exhausted", FULL_BRINGS)
                _diagnose(account, server, 1, "kv-pool-exhausted")
            account.scene("a KV cache of ten requests, one request a second again")
            _expect(account, beside, GOOD, 2 * SETTLED_SECONDS)
        _nothing_else(account, beside, {"kv-pool-exhausted"} | FULL_BRINGS)


def two_api_servers(stage: Stage) -> None:
    """A hang while idle behind two API servers, whose page has no `process_` series."""
    with _watched(stage, f"{ROOMY} {BUDGET} {LOAD} --api-server-count 2") as (server, beside):
        _hang_of(stage.account, server, beside)


def rust_front_end(stage: Stage) -> None:
    """A hang while idle behind the Rust front end."""
    if stage.installation.rust_front_end is None:
        stage.account.leave_out("the Rust front end", "pip has no build of this version with vllm-rs in it")
        return
    with _watched(stage, f"{ROOMY} {BUDGET}", rust=True) as (server, beside):
        _hang_of(stage.account, server, beside)


SCENES: dict[str, Callable[[Stage], None]] = {
    "python": python_front_end,
    "pool": pool_exhausted,
    "two": two_api_servers,
    "rust": rust_front_end,
}


@contextmanager
def _watched(stage: Stage, flags: str, rust: bool = False) -> Iterator[tuple[VllmServer, Sidecar]]:
    stage.folder.mkdir(parents=True, exist_ok=True)
    stage.account.scene(f"vllm serve {flags}{' (Rust front end)' if rust else ''}")
    server = VllmServer(stage.installation, stage.folder / "vllm.log", flags.split(), rust)
    with server, sidecar(stage.folder / "sidecar", server.url) as beside:
        yield server, beside


def _probe(account: Account, server: VllmServer) -> None:
    account.scene("probe of a healthy server")
    ended = vllm_watchdog("probe", server.url, "--format", "json")
    body = json_of(ended)
    account.check("exit code", "0", f"{ended.code} {ended.err.strip()}".strip(), ended.code == 0)
    account.check("is it alive", "alive", str(body.get("life")), body.get("life") == "alive")
    told = [f"{each['severity']}: {each['title']}: {each['cause']}" for each in body.get("findings", ())]
    found = "; ".join(told)
    wrong = [each for each in told if not each.startswith("info")]
    account.check("findings", "none but for information", found or "none", not wrong)
    state = body.get("prefix", {}).get("state")
    account.check("prefix cache", "works", str(state), state == "works")
    speed = (body.get("prefill") or {}).get("tokens_per_second")
    account.check("prefill", "a speed", f"{speed} tokens/s", bool(speed))


def _lab(stage: Stage, server: VllmServer) -> None:
    output = stage.folder / "lab"
    for name, options, expected in (
        ("prefix", (), "The cache works"),
        ("jitter", ("--long", "2000"), "A prompt of "),
        ("sweep", ("--most", "8"), "The knee "),
    ):
        stage.account.scene(f"lab {name}")
        ended = vllm_watchdog("lab", name, server.url, *options, "--output", output, "--yes")
        stage.account.note(f"{ended.err}{ended.out}")
        stage.account.check("exit code", "0", str(ended.code), ended.code == 0)
        said = next((line for line in ended.out.splitlines() if line.startswith(expected)), "something else")
        stage.account.check("what it says", f"{expected}...", said, said.startswith(expected))
        missing = [end for end in ("json", "svg", "jsonl.xz") if not (output / f"{name}.{end}").exists()]
        stage.account.check("files that are missing", "none", ", ".join(missing) or "none", not missing)
        if not missing:
            failures = json.loads((output / f"{name}.json").read_text())["failures"]
            stage.account.check("requests without an answer", "0", str(failures), not failures)


def _hang_of(account: Account, server: VllmServer, beside: Sidecar) -> None:
    account.scene("healthy: one request a second")
    with Traffic(server.url, 1.0):
        _expect(account, beside, ("healthy",), SETTLED_SECONDS)
    _hang(account, server, beside)
    _goes_on(account, server, beside)
    _nothing_else(account, beside, {"engine-stalled"})


def _hang(account: Account, server: VllmServer, beside: Sidecar) -> None:
    account.scene("the engine stands still while idle, then a request each two seconds")
    time.sleep(5)
    server.stop_engine()
    with Traffic(server.url, 0.5):
        _named(account, beside, "engine-stalled")


def _probe_of_a_hang(account: Account, server: VllmServer) -> None:
    ended = vllm_watchdog(
        "probe", server.url, "--deadline", "10s", "--max-waiting", "100", "--format", "json"
    )
    said = f"{json_of(ended).get('life', ended.err)}, exit code {ended.code}"
    account.check("probe", "stalled, exit code 1", said, said == "stalled, exit code 1")


def _goes_on(account: Account, server: VllmServer, beside: Sidecar) -> None:
    account.scene("the engine goes on")
    server.continue_engine()
    with Traffic(server.url, 1.0):
        _expect(account, beside, ("healthy",), SETTLED_SECONDS)


def _restart(account: Account, server: VllmServer, beside: Sidecar) -> None:
    account.scene("a crash")
    server.kill()
    _named(account, beside, "target-down")
    account.scene("the server is started again")
    server.start()
    with Traffic(server.url, 1.0):
        _expect(account, beside, ("healthy",), SETTLED_SECONDS)


def _expect(account: Account, beside: Sidecar, expected: Collection[str], seconds: float) -> None:
    said, took = beside.wait_for(expected, seconds)
    account.check("the sidecar", " or ".join(expected), f"{said} after {took:.0f} s", said in expected)


def _named(account: Account, beside: Sidecar, rule: str, also: Collection[str] = ()) -> None:
    """The sidecar names this cause first, nothing else begins to fire, and Alertmanager's receiver hears of it."""
    before = beside.causes()
    _expect(account, beside, (rule,), NAMED_SECONDS)
    causes = beside.causes()
    account.check_only("what began to fire", {rule, *also}, causes.keys() - before.keys())
    account.note(causes.get(rule, f"{rule} never fired"))
    heard = beside.heard(rule, NAMED_SECONDS)
    account.check(
        "Alertmanager's receiver", f"an alert of {rule}", "it came" if heard else "none came", heard
    )


def _diagnose(account: Account, server: VllmServer, code: int, lead: str | None) -> None:
    ended = vllm_watchdog("diagnose", server.url, *DIAGNOSE)
    targets = json_of(ended).get("targets") or [{"lead": ended.err.strip()}]
    expected = f"{lead or 'no lead'}, exit code {code}"
    said = f"{targets[0]['lead'] or 'no lead'}, exit code {ended.code}"
    account.check("diagnose", expected, said, said == expected)


def _nothing_else(account: Account, beside: Sidecar, true: Collection[str]) -> None:
    """Nothing else ever fired or paged, and every alert ended."""
    causes = beside.causes()
    if not account.check_only("all that ever fired", true, causes):
        account.note("\n".join(f"{rule}: {cause}" for rule, cause in causes.items() if rule not in true))
    account.check_only("all that paged", true, beside.paged())
    left = beside.open_alerts(SETTLED_SECONDS)
    account.check("alerts left open", "none", ", ".join(sorted(left)) or "none", not left)
