"""What is known of a server beside its counters, over pages, restarts and what its owner told."""

from collections.abc import Mapping

import pytest

from tests.pages import history_of, line, page
from watchdog.facts.fact import by_name
from watchdog.facts.server import KnownServer
from watchdog.history.layout import MOST_ENGINES, Layout
from watchdog.model import NO_LABELS, Expectations, ModelShape, Objectives, ServerInfo

CONFIG = {
    "block_size": "16",
    "num_gpu_blocks": "1000",
    "cache_dtype": "auto",
    "gpu_memory_utilization": "0.9",
}


def layout(*engines: str, **config: str) -> Layout:
    """The shape of a page of these engines, each with its configuration."""
    text = ""
    for engine in engines or ("0",):
        text += page(f'model_name="m",engine="{engine}"', num_requests_running=1.0)
        labels = ",".join(f'{name}="{value}"' for name, value in (CONFIG | config).items())
        text += line("cache_config_info", 1.0, f'engine="{engine}",{labels}')
    return history_of([(0.0, text)]).frames[-1].layout


def server(
    expectations: Expectations | None = None,
    info: ServerInfo | None = None,
    config: Mapping[str, str] = NO_LABELS,
) -> KnownServer:
    one = KnownServer(expectations or Expectations())
    one.learn(layout(**config), info or ServerInfo(), False)
    return one


def numbers(one: KnownServer, engine: str = "0") -> dict[str, float]:
    return by_name(one.facts("m", engine))


def test_before_the_first_page_nothing_is_known() -> None:
    one = KnownServer(Expectations())
    assert numbers(one) == {}
    assert one.version_text() is None
    assert one.vllm(ServerInfo()).models == ()
    assert one.context("m", "0").config == {}


def test_the_pool_is_read_from_the_configuration() -> None:
    assert numbers(server()) == {"pool_tokens": 16_000, "fp8_pool_tokens": 32_000}
    assert numbers(server(config={"cache_dtype": "fp8"})) == {"pool_tokens": 16_000}


def test_engines_share_the_blocks_of_one_page() -> None:
    one = KnownServer(Expectations())
    one.learn(layout("0", "1", "2", "3"), ServerInfo(), False)
    assert numbers(one, "2")["pool_tokens"] == 4_000


def test_where_labels_do_not_tell_the_pool_the_shape_of_the_model_does() -> None:
    shape = ModelShape(layers=32, kv_heads=8, head_dimension=128)
    told = Expectations(shape=shape)
    config = {"num_gpu_blocks": "None", "kv_cache_memory_bytes": str(131_072 * 1000)}
    assert numbers(server(told, config=config))["pool_tokens"] == 1000
    parallel = Expectations(shape=shape, vllm_args={"--tensor-parallel-size": "2"})
    assert numbers(server(parallel, config=config))["pool_tokens"] == 2000
    short = Expectations(shape=shape, vllm_args={"-tp": "2"})
    assert numbers(server(short, config=config))["pool_tokens"] == 2000


def test_what_the_owner_told_are_facts() -> None:
    told = Expectations(
        expected_shared_prefix_tokens=600,
        objectives=Objectives(1.5, 0.05, 20.0),
        memory_bandwidth_bytes_per_second=3e12,
        shape=ModelShape(weight_bytes=15_000_000_000),
        vllm_args={"--max-num-seqs": "64", "--max-num-batched-tokens": "8k", "--max-model-len": "4096"},
    )
    found = numbers(server(told))
    assert found["expected_shared_prefix_tokens"] == 600
    assert found["ttft_objective_seconds"] == 1.5
    assert found["itl_objective_seconds"] == 0.05
    assert found["e2e_objective_seconds"] == 20
    assert found["decode_ceiling_tokens_per_second"] == 200
    assert found["max_num_seqs"] == 64
    assert found["max_num_batched_tokens"] == 8000
    assert found["max_model_len"] == 4096


def test_the_bandwidth_of_a_known_gpu_is_known() -> None:
    shape = ModelShape(weight_bytes=16_000_000_000)
    one = server(Expectations(gpu="H200", shape=shape))
    assert numbers(one)["decode_ceiling_tokens_per_second"] == pytest.approx(300)
    assert one.context("m", "0").memory_class is not None
    assert "decode_ceiling_tokens_per_second" not in numbers(server(Expectations(gpu="H2000", shape=shape)))
    assert server().context("m", "0").memory_class is None


@pytest.mark.parametrize("text", ["", "auto", "-1", "0", "\u00b2", "9" * 5000, "1e3", "0x10", "8kk"])
def test_a_launch_value_that_is_no_number_is_no_fact(text: str) -> None:
    flags = ("--max-num-seqs", "--max-num-batched-tokens", "--max-model-len", "--tensor-parallel-size")
    told = Expectations(
        memory_bandwidth_bytes_per_second=3e12,
        shape=ModelShape(weight_bytes=15_000_000_000),
        vllm_args=dict.fromkeys(flags, text),
    )
    found = numbers(server(told))
    assert not {"max_num_seqs", "max_num_batched_tokens", "max_model_len"} & found.keys()
    assert found["decode_ceiling_tokens_per_second"] == 200


@pytest.mark.parametrize(
    ("served", "told", "known"),
    [
        (8192, "", 8192),
        (8192, "4096", 8192),
        (None, "4K", 4096),
        (10**400, "4096", 4096),
        (10**400, "", None),
        (-5, "", None),
        (0, "4096", 4096),
    ],
)
def test_the_context_is_as_served_else_as_launched(
    served: int | None, told: str, known: float | None
) -> None:
    one = server(Expectations(vllm_args={"--max-model-len": told}), ServerInfo(max_model_len=served))
    assert numbers(one).get("max_model_len") == known
    assert one.context("m", "0").max_model_len == known


def test_a_pool_that_shrank_over_a_restart_is_remembered_while_it_is_sized_alike() -> None:
    one = server()
    one.learn(layout(num_gpu_blocks="900"), ServerInfo(), True)
    assert numbers(one) == {
        "pool_tokens": 14_400,
        "fp8_pool_tokens": 28_800,
        "pool_tokens_before_restart": 16_000,
    }
    one.learn(layout(num_gpu_blocks="900", gpu_memory_utilization="0.8"), ServerInfo(), False)
    assert "pool_tokens_before_restart" not in numbers(one)
    one.learn(layout(num_gpu_blocks="800"), ServerInfo(), True)
    assert "pool_tokens_before_restart" not in numbers(one)  # the one before was sized otherwise
    one.learn(layout(num_gpu_blocks="700"), ServerInfo(), True)
    assert numbers(one)["pool_tokens_before_restart"] == 12_800


def test_pools_of_engines_that_never_come_back_are_forgotten() -> None:
    one = KnownServer(Expectations())
    for number in range(3 * MOST_ENGINES):
        one.learn(layout(f"e{number}"), ServerInfo(), number > 0)
    assert len(one._before) <= MOST_ENGINES
    one.learn(layout(f"e{3 * MOST_ENGINES - 1}", num_gpu_blocks="10"), ServerInfo(), True)
    assert numbers(one, f"e{3 * MOST_ENGINES - 1}")["pool_tokens_before_restart"] == 16_000


def test_only_so_many_configurations_are_read() -> None:
    text = page(num_requests_running=1.0)
    for number in range(3 * MOST_ENGINES):
        text += line("cache_config_info", 1.0, f'engine="e{number}",block_size="16",num_gpu_blocks="10"')
    one = KnownServer(Expectations())
    one.learn(history_of([(0.0, text)]).frames[-1].layout, ServerInfo(), False)
    assert len(one._configs) == MOST_ENGINES


def test_an_engine_without_a_configuration_of_its_own_has_that_of_the_page() -> None:
    one = server()
    assert numbers(one, "7") == numbers(one, "0")
    assert one.context("m", "7").config["block_size"] == "16"


def test_what_is_learned_later_counts_at_once() -> None:
    shape = layout()
    one = KnownServer(Expectations())
    one.learn(shape, ServerInfo(), False)
    assert one.vllm(ServerInfo()).models == ("m",)
    assert one.context("m", "0").version is None
    before = one.version_text()
    assert before != "0.24.0"
    one.learn(shape, ServerInfo(version="0.24.0", max_model_len=512), False)
    assert one.version_text() == "0.24.0"
    assert str(one.context("m", "0").version) == "0.24.0"
    assert numbers(one)["max_model_len"] == 512


def test_what_is_shown_of_vllm() -> None:
    one = server(info=ServerInfo(version="0.24.0"))
    shown = one.vllm(ServerInfo(version="0.24.0", models=("served",)))
    assert shown.version == "0.24.0"
    assert shown.engine == "v1"
    assert shown.models == ("m",)
    assert shown.config["block_size"] == "16"
    assert shown.bracket is not None
    bare = KnownServer(Expectations())
    bare.learn(history_of([(0.0, "process_open_fds 3\n")]).frames[-1].layout, ServerInfo(), False)
    assert bare.vllm(ServerInfo(models=("served",))).models == ("served",)
    assert bare.vllm(ServerInfo()).bracket is None
    assert bare.vllm(ServerInfo()).config == NO_LABELS
