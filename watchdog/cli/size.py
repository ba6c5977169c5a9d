"""`vllm-watchdog size`: what a model and a GPU hold, and where a running server's load leads."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from watchdog.cli.console import (
    ConfigOption,
    Form,
    FormOption,
    ForOption,
    IntervalOption,
    complain,
    parse_duration,
    say,
    say_json,
)
from watchdog.cli.rule_settings import rule_settings
from watchdog.cli.source import Source, open_source
from watchdog.diagnosis.judge import Case
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.errors import ConfigError
from watchdog.facts.architecture import (
    Architecture,
    ConfigShapeError,
    architecture_of,
    bits_of_quantisation,
)
from watchdog.facts.gpus import Gpu, find_gpu, similar_gpus
from watchdog.facts.growth import Moment, Outlook, outlook
from watchdog.facts.sizing import Plan, Sizing
from watchdog.facts.sizing import size as sized
from watchdog.model import Scope, Subject
from watchdog.report.sizing import outlook_body, outlook_text, sizing_body, sizing_text
from watchdog.rule.in_force import load_rules
from watchdog.rule.rule_set import RuleSet
from watchdog.text import one_line

# No config.json is longer; the longest known is some 20 KiB of layer types.
MAX_CONFIG_BYTES = 1024 * 1024
USUAL_LENGTHS = (2000, 8000, 32000)
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}

app = typer.Typer(add_completion=False)


def _size_in_bytes(text: str | float) -> float:
    """Bytes from `16GB` or `16e9`, for an option."""
    word = str(text).strip().lower().removesuffix("b")
    number, unit = (word[:-1], word[-1]) if word[-1:].isalpha() else (word, "")
    try:
        return float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise typer.BadParameter(f"{text!r} is no size such as 16GB") from None


@app.command(
    epilog="Examples:\n\n  vllm-watchdog size config.json --gpu H100 --length 8000\n\n"
    "  vllm-watchdog size config.json --gpu L40S --quantization fp8 --tensor-parallel-size 2\n\n"
    "  vllm-watchdog size http://localhost:8000 --model config.json --for 2m"
)
def size(  # noqa: PLR0913, PLR0917 - one option each, and no two belong together
    what: Annotated[
        str, typer.Argument(metavar="CONFIG|URL|FILE", help="A config.json or its folder, or a server.")
    ],
    model: Annotated[
        Path | None, typer.Option("--model", metavar="CONFIG", help="The config.json of a server's model.")
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="NAME", help="The GPU, such as H100.")] = None,
    gpus: Annotated[
        int, typer.Option("--tensor-parallel-size", min=1, max=1024, help="GPUs that share the model.")
    ] = 1,
    share: Annotated[
        float | None,
        typer.Option("--gpu-memory-utilization", min=0.01, max=1.0, help="Share of memory vLLM takes."),
    ] = None,
    cache: Annotated[
        str | None, typer.Option("--kv-cache-dtype", help="Type of the cache: auto, fp8.")
    ] = None,
    quantisation: Annotated[
        str | None, typer.Option("--quantization", help="Of the weights: fp8, awq, int4; as in the config.")
    ] = None,
    weights: Annotated[
        float | None, typer.Option("--weights", parser=_size_in_bytes, metavar="SIZE", help="Of all weights.")
    ] = None,
    longest: Annotated[
        int | None, typer.Option("--max-model-len", min=1, help="Longest request; as in the config.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option("--max-num-batched-tokens", min=1, help="Token budget of a step.")
    ] = None,
    lengths: Annotated[
        list[int] | None, typer.Option("--length", min=1, help="Tokens of a request; may be given again.")
    ] = None,
    gap: Annotated[
        float,
        typer.Option(
            "--gap",
            parser=parse_duration,
            metavar="DURATION",
            help="Longest gap between tokens; 50ms.",
            show_default=False,
        ),
    ] = 0.05,
    queue: Annotated[
        int | None, typer.Option("--queue-limit", min=1, help="Queue length that counts as full.")
    ] = None,
    duration: ForOption = 30.0,
    interval: IntervalOption = 2.0,
    config: ConfigOption = None,
    form: FormOption = Form.TEXT,
) -> None:
    """Says what a model takes on a GPU, what fits at once, how fast it can be, and where a server's load leads.

    Reads a config.json, or watches a server (or a recording) for growth of pool and queue; with both, the
    estimate is set beside what the server reports. Exit code 1 where the model does not fit.
    """
    described = Path(what) if is_model(what) else model
    faults: list[str] = []
    chosen = _gpu(gpu, faults)
    bits = _bits(quantisation, faults)
    architecture = _architecture(described, faults) if described else None
    if faults:
        raise ConfigError(faults)
    live = None if is_model(what) else _watch(what, config, interval, duration, queue)
    if live is not None and not live.has_engines:
        complain(f"{one_line(what)}: no page of vLLM was read")
        raise typer.Exit(2)
    found: Sizing | None = None
    if architecture is not None:
        plan = Plan(
            architecture=architecture,
            gpu=chosen,
            gpus=gpus,
            memory_share=share or (live.number("gpu_memory_utilization_ratio") if live else None),
            cache_dtype=cache or (live.cache_dtype if live else "auto"),
            weight_bits=bits,
            weights_bytes=weights or (_files_bytes(described) if described and bits is None else None),
            max_model_len=longest or (_whole(live.number("max_model_len")) if live else None),
            batch_tokens=budget,
        )
        found = sized(plan, _lengths(lengths, plan.length))
    _say(found, live, gap, form)
    if found is not None and (found.weights_fit is False or found.length_fits is False):
        raise typer.Exit(1)


def is_model(what: str) -> bool:
    """Whether a word on the command line means a model's config, not a server or a recording."""
    if "://" in what:
        return False
    return what.endswith(".json") or (Path(what) / "config.json").is_file()


class _Live:
    """A server's pages: what they say of its pool, and each engine's load over time."""

    def __init__(self, source: Source, rules: RuleSet, seconds: float, queue_bound: float | None) -> None:
        self._source = source
        self._seconds = seconds
        self._queue_bound = queue_bound
        self._diagnosis = TargetDiagnosis(source.target, rules, listener=self._hear)
        self._cases: dict[Subject, Case] = {}
        self._moments: dict[Subject, list[Moment]] = {}
        self._ends: dict[Subject, dict[str, float | None]] = {}
        self._at = 0.0
        self.cache_dtype = "auto"

    @property
    def has_engines(self) -> bool:
        """Whether a page of vLLM was read."""
        return bool(self._moments)

    def run(self) -> None:
        """Takes every scrape of the source."""
        for scrape in self._source.scrapes:
            self._at = scrape.at
            snapshot = self._diagnosis.observe(scrape)
            self.cache_dtype = snapshot.vllm.config.get("cache_dtype") or self.cache_dtype

    def number(self, name: str) -> float | None:
        """A signal as the last page had it, of the first engine that has it."""
        known = (end.get(name) for end in self._ends.values())
        return next((each for each in known if each is not None), None)

    def outlooks(self) -> dict[Subject, Outlook]:
        """Where each engine's load leads."""
        return {
            subject: outlook(
                [each for each in moments if each.at >= self._at - self._seconds],
                self._ends[subject]["arrivals_per_second"],
                self._ends[subject]["finished_per_second"],
                self._ends[subject]["max_num_seqs"],
                self._queue_bound,
            )
            for subject, moments in self._moments.items()
        }

    def _hear(self, scope: Scope, case: Case, is_on_page: Callable[[str], bool]) -> None:
        del is_on_page
        if scope is not Scope.ENGINE:
            return
        signals = case.signals
        self._moments.setdefault(case.subject, []).append(
            Moment(
                self._at,
                signals["kv_usage_last_ratio"],
                signals["waiting_last"],
                signals["running_last"],
            )
        )
        self._ends[case.subject] = {name: signals[name] for name in _SIGNALS}


_SIGNALS = (
    "arrivals_per_second",
    "finished_per_second",
    "max_num_seqs",
    "max_model_len",
    "pool_tokens",
    "fp8_pool_tokens",
    "gpu_memory_utilization_ratio",
    "blocks_override",
)


def _watch(what: str, config: Path | None, interval: float, seconds: float, queue: int | None) -> _Live:
    rules = load_rules(rule_settings(None, config))
    with open_source(what, config, interval, seconds) as source:
        live = _Live(source, rules, seconds, queue)
        live.run()
    return live


def _gpu(name: str | None, faults: list[str]) -> Gpu | None:
    found = find_gpu(name) if name else None
    if name and found is None:
        alike = ", ".join(similar_gpus(name)) or "see watchdog/facts/gpus.yaml"
        faults.append(f"--gpu {one_line(name, 60)!r} is not in the table: {alike}")
    return found


def _bits(name: str | None, faults: list[str]) -> float | None:
    found = bits_of_quantisation(name) if name else None
    if name and found is None:
        faults.append(
            f"--quantization {one_line(name, 60)!r} is not known: fp8, int8, awq, gptq, int4, mxfp4"
        )
    return found


def _architecture(path: Path, faults: list[str]) -> Architecture | None:
    file = path / "config.json" if path.is_dir() else path
    try:
        return architecture_of(_read(file))
    except OSError as error:
        faults.append(f"{file}: cannot be read: {error.strerror}")
    except ConfigShapeError as error:
        faults.append(f"{file}: {error}")
    except (ValueError, RecursionError):
        faults.append(f"{file}: is no JSON; wanted is the model's config.json")
    return None


def _read(file: Path) -> dict[str, Any]:
    """The object of a JSON file; raises OSError, ConfigShapeError or ValueError."""
    with file.open("rb") as opened:
        content = opened.read(MAX_CONFIG_BYTES + 1)
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigShapeError("it is longer than a config.json can be")
    config = json.loads(content)
    if not isinstance(config, dict):
        raise ConfigShapeError("it holds no JSON object")
    return config


def _files_bytes(path: Path) -> float | None:
    """The size of the weights as the index beside the config says; None where there is none."""
    folder = path if path.is_dir() else path.parent
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_bytes())
        return float(index["metadata"]["total_size"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lengths(given: list[int] | None, longest: int | None) -> list[int]:
    """What is asked for, or usual lengths that the server takes, and the longest of all."""
    if given:
        return sorted(set(given))
    usual = [each for each in USUAL_LENGTHS if longest is None or each <= longest]
    return sorted({*usual, longest}) if longest else usual


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _say(found: Sizing | None, live: _Live | None, gap: float, form: Form) -> None:
    outlooks = live.outlooks() if live else {}
    told, fp8 = (_whole(live.number(name)) if live else None for name in ("pool_tokens", "fp8_pool_tokens"))
    if form is Form.JSON:
        body: dict[str, Any] = {"size": sizing_body(found, gap) if found else None}
        if live:
            body["server"] = {"pool_tokens": told, "fp8_pool_tokens": fp8, "cache_dtype": live.cache_dtype}
            body["outlook"] = [
                {"model_name": subject.model_name, "engine": subject.engine} | outlook_body(each)
                for subject, each in outlooks.items()
            ]
        say_json(body)
        return
    if found:
        say(sizing_text(found, gap))
    if live:
        say(_server_text(found, told, fp8, capped=live.number("blocks_override") is not None))
    for subject, each in outlooks.items():
        say(outlook_text(each, subject.engine if len(outlooks) > 1 else ""))


def _server_text(found: Sizing | None, told: int | None, fp8: int | None, capped: bool) -> str:
    if told is None:
        return "server     its page does not say how many tokens the pool holds"
    text = f"server     its pool holds {told:,} tokens" + (f" ({fp8:,} with an fp8 cache)" if fp8 else "")
    if found and found.pool_tokens:
        text += f", {told / found.pool_tokens:.0%} of the estimate"
    return text + (", capped by --num-gpu-blocks-override" if capped else "")
