"""What is known of a server beside its counters: version, configuration, pool size, and the settings."""

from collections.abc import Iterator, Mapping

from watchdog.facts.capacity import (
    fp8_pool_tokens,
    pool_tokens,
    pool_tokens_of_shape,
    tokens_in,
    usual_memory_pool_tokens,
)
from watchdog.facts.fact import Fact, Known
from watchdog.facts.flags import all_flags
from watchdog.facts.gpus import Gpu, decode_ceiling_tokens_per_second, find_gpu
from watchdog.facts.launch import ServerContext, amount
from watchdog.facts.version import Engine, VersionRange, fingerprint, guess_engine, parse_version
from watchdog.history.layout import MOST_ENGINES, Layout
from watchdog.history.names import PREFIX
from watchdog.model import NO_LABELS, Expectations, ServerInfo, VllmIdentity
from watchdog.text import printable_labels

# fmt: off
POOL_TOKENS = Fact("pool_tokens", "tokens", "Tokens the KV cache holds.")
FP8_POOL_TOKENS = Fact(
    "fp8_pool_tokens", "tokens",
    "Tokens the same memory holds with an fp8 cache; unknown where the cache is quantised already.")
USUAL_MEMORY_POOL_TOKENS = Fact(
    "usual_memory_pool_tokens", "tokens",
    "Tokens the pool holds at least with 0.9 of the GPU's memory; unknown where vLLM may take that much already.")
POOL_TOKENS_BEFORE_RESTART = Fact(
    "pool_tokens_before_restart", "tokens", "Tokens the pool held before the last restart, configured alike.")
MAX_MODEL_LEN = Fact("max_model_len", "tokens", "The longest prompt plus output the server takes.")
MAX_NUM_SEQS = Fact("max_num_seqs", "requests", "The batch limit, where the settings give the launch arguments.")
MAX_NUM_BATCHED_TOKENS = Fact(
    "max_num_batched_tokens", "tokens", "The step's token budget, where the settings give the launch arguments.")
DECODE_CEILING = Fact(
    "decode_ceiling_tokens_per_second", "tokens/s",
    "Memory bandwidth over weight bytes: the most one stream can get.")
EXPECTED_SHARED_PREFIX_TOKENS = Fact(
    "expected_shared_prefix_tokens", "tokens", "The shared prefix of requests, from the settings.")
BATCH_JOBS = Fact("batch_jobs", "0 or 1", "Whether the settings expect batch jobs on this server.")
TTFT_OBJECTIVE = Fact("ttft_objective_seconds", "s", "The objective for the 95th percentile time to first token.")
ITL_OBJECTIVE = Fact("itl_objective_seconds", "s", "The objective for the 99th percentile inter-token latency.")
E2E_OBJECTIVE = Fact("e2e_objective_seconds", "s", "The objective for the 95th percentile request time.")
# fmt: on

_CONFIG = PREFIX + "cache_config_info"
# A label of it that says how the pool was sized; equal ones with a smaller pool mean that memory went elsewhere.
_SIZING = (
    "gpu_memory_utilization",
    "cache_dtype",
    "block_size",
    "num_gpu_blocks_override",
    "kv_cache_memory_bytes",
)
# Beyond this a number is a mistake or a trick, whoever told it.
_GREATEST = 10**12


class KnownServer:
    """Learns from each new page layout; answers per engine. Pure: everything is handed in."""

    def __init__(self, expectations: Expectations) -> None:
        self._told = expectations
        self._layout: Layout | None = None
        self._info = ServerInfo()
        self._bracket: VersionRange | None = None
        self._configs: dict[str, Mapping[str, str]] = {}
        self._engines = 0
        self._known: dict[str, tuple[Known, ...]] = {}
        self._before: dict[str, tuple[tuple[str, ...], float]] = {}
        self._shrunk: dict[str, float] = {}
        self._contexts: dict[str, ServerContext] = {}
        self._known_engine: Engine | None = None

    def expect(self, expectations: Expectations) -> None:
        """Goes over to other words of the owner; what pages taught stays."""
        self._told = expectations
        self._known.clear()
        self._contexts.clear()

    def learn(self, layout: Layout, info: ServerInfo, restarted: bool) -> None:
        """Takes a page's layout and what the server's other endpoints said."""
        if restarted:
            self._remember_pools()
        if layout is self._layout and info == self._info and not restarted:
            return
        self._layout, self._info = layout, info
        self._configs = {
            layout.owners.each[column][1] or "": printable_labels(layout.series[column].labels)
            for column in layout.by_name.get(_CONFIG, ())[:MOST_ENGINES]
        }
        self._engines = max(1, len({layout.owners.parted(engine)[0] for _, engine in layout.subjects}))
        config = next(iter(self._configs.values()), NO_LABELS)
        bracket = fingerprint(tuple(layout.by_name), config)
        self._bracket = None if bracket.is_open else bracket
        self._known_engine = guess_engine(tuple(layout.by_name), config, parse_version(info.version))
        self._known.clear()
        self._contexts.clear()
        self._compare_pools()

    def facts(self, model_name: str, engine: str) -> Iterator[Known]:
        """The numbers behind signals that no counter shows, for one engine."""
        del model_name  # the configuration is the engine's; a page's models share it
        if engine not in self._known:
            self._known[engine] = tuple(self._compute(engine))
        yield from self._known[engine]

    def context(self, model_name: str, engine: str) -> ServerContext:
        """What remedies must know of the server."""
        del model_name
        if engine not in self._contexts:
            self._contexts[engine] = ServerContext(
                version=parse_version(self._info.version),
                bracket=self._bracket,
                engine=self._known_engine,
                config=self._config(engine),
                args=self._told.vllm_args,
                max_model_len=self._max_model_len(),
                memory_class=gpu.memory_class if (gpu := self._gpu()) else None,
            )
        return self._contexts[engine]

    def vllm(self, info: ServerInfo) -> VllmIdentity:
        """What is shown of the server's vLLM."""
        models = dict.fromkeys(model for model, _ in self._layout.subjects if model) if self._layout else {}
        return VllmIdentity(
            version=info.version,
            bracket=str(self._bracket) if self._bracket else None,
            engine=self._known_engine,
            models=tuple(models) or info.models,
            config=self._config(""),
        )

    @property
    def counts_in_flight(self) -> bool:
        """Whether its start says that `GET /load` counts: by its front end in Rust, or by the owner's flags."""
        return (
            self._info.rust_frontend_version is not None
            or "--enable-server-load-tracking" in self._told.vllm_args
        )

    def version_text(self) -> str | None:
        """The version as reported, else as bracketed from the page; None where neither is known."""
        return self._info.version or (str(self._bracket) if self._bracket else None)

    def _config(self, engine: str) -> Mapping[str, str]:
        names = (engine, self._layout.owners.parted(engine)[0]) if self._layout else (engine,)
        first = next(iter(self._configs.values()), NO_LABELS)
        return next((self._configs[name] for name in names if name in self._configs), first)

    def _max_model_len(self) -> int | None:
        served = self._info.max_model_len
        return served if served is not None and 0 < served <= _GREATEST else self._argument("--max-model-len")

    def _argument(self, flag: str) -> int | None:
        """A launch flag's value as a whole number, read as vLLM reads it (8k); None for what is none."""
        spelled = (flag, *all_flags()[flag].spellings)
        number = amount(
            next((self._told.vllm_args[name] for name in spelled if name in self._told.vllm_args), None)
        )
        return int(number) if number is not None and 1 <= number <= _GREATEST else None

    def _pool(self, engine: str) -> float | None:
        config = self._config(engine)
        tokens = pool_tokens(config, self._engines) or pool_tokens_of_shape(
            config, self._told.shape, self._gpus()
        )
        return None if tokens is None else float(tokens)

    def _compute(self, engine: str) -> Iterator[Known]:
        told = self._told
        pool = self._pool(engine)
        numbers: dict[Fact, float | None] = {
            POOL_TOKENS: pool,
            FP8_POOL_TOKENS: fp8_pool_tokens(pool, self._config(engine).get("cache_dtype", "")),
            USUAL_MEMORY_POOL_TOKENS: self._usual_memory_pool(engine, pool),
            POOL_TOKENS_BEFORE_RESTART: self._shrunk.get(engine),
            MAX_MODEL_LEN: self._max_model_len(),
            MAX_NUM_SEQS: self._argument("--max-num-seqs"),
            MAX_NUM_BATCHED_TOKENS: self._argument("--max-num-batched-tokens"),
            DECODE_CEILING: self._ceiling(),
            EXPECTED_SHARED_PREFIX_TOKENS: told.expected_shared_prefix_tokens,
            BATCH_JOBS: 1.0 if told.batch_jobs else None,
            TTFT_OBJECTIVE: told.objectives.ttft_p95_seconds,
            ITL_OBJECTIVE: told.objectives.itl_p99_seconds,
            E2E_OBJECTIVE: told.objectives.e2e_p95_seconds,
        }
        yield from ((fact, float(number)) for fact, number in numbers.items() if number is not None)

    def _usual_memory_pool(self, engine: str, pool: float | None) -> int | None:
        config, gpu = self._config(engine), self._gpu()
        memory_bytes = gpu.memory_bytes if gpu else None
        dtype = config.get("cache_dtype", "auto")
        added = tokens_in(memory_bytes, self._told.shape, dtype, self._gpus())
        return usual_memory_pool_tokens(pool, amount(config.get("gpu_memory_utilization")), added)

    def _gpu(self) -> Gpu | None:
        return find_gpu(self._told.gpu) if self._told.gpu else None

    def _ceiling(self) -> float | None:
        told = self._told
        gpu = self._gpu()
        bandwidth = told.memory_bandwidth_bytes_per_second or (
            gpu.bandwidth_bytes_per_second if gpu else None
        )
        return decode_ceiling_tokens_per_second(bandwidth, told.shape.weight_bytes, self._gpus())

    def _gpus(self) -> int:
        return self._argument("--tensor-parallel-size") or 1

    def _remember_pools(self) -> None:
        for engine, config in self._configs.items():
            tokens = self._pool(engine)
            if tokens is not None:
                self._before.pop(engine, None)
                self._before[engine] = (_sizing(config), tokens)
        # An engine that is remembered without being on the page may come back; more of them than a page can have not.
        for engine in list(self._before)[:-MOST_ENGINES]:
            del self._before[engine]

    def _compare_pools(self) -> None:
        self._shrunk = {
            engine: tokens
            for engine, (sizing, tokens) in self._before.items()
            if engine in self._configs and _sizing(self._configs[engine]) == sizing
        }


def _sizing(config: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(config.get(name, "") for name in _SIZING)
