"""GPUs: names as people and drivers write them, and the decode ceiling."""

from itertools import combinations

import pytest

from watchdog.facts.gpus import (
    MemoryClass,
    _words,
    all_gpus,
    decode_ceiling_tokens_per_second,
    find_gpu,
    similar_gpus,
)


def test_the_table_has_at_least_25_gpus_each_with_a_source() -> None:
    assert len(all_gpus()) >= 25
    for gpu in all_gpus():
        assert len(gpu.source) > 10, gpu
        assert 16 * 2**30 <= gpu.memory_bytes <= 300 * 2**30, gpu
        assert 100e9 <= gpu.bandwidth_bytes_per_second <= 10e12, gpu


def test_no_spelling_stands_for_two_gpus() -> None:
    for one, other in combinations(all_gpus(), 2):
        shared = {_words(text) for text in (one.name, *one.spellings)} & {
            _words(text) for text in (other.name, *other.spellings)
        }
        assert not shared, (one.name, other.name)


def test_every_gpu_is_found_by_its_own_name_and_spellings() -> None:
    for gpu in all_gpus():
        for text in (gpu.name, gpu.name.upper(), gpu.name.lower().replace(" ", "-"), *gpu.spellings):
            assert find_gpu(text) == gpu, text


@pytest.mark.parametrize(
    ("name", "gigabytes_per_second"),
    [
        ("A10G", 600),
        ("L40S", 864),
        ("RTX 4090", 1008),
        ("rtx4090", 1008),
        ("NVIDIA GeForce RTX 4090", 1008),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("a100-80g", 2039),
        ("A100 80 GB", 2039),
        ("NVIDIA A100 80GB PCIe", 1935),
        ("NVIDIA A100-PCIE-40GB", 1555),
        ("NVIDIA H100 80GB HBM3", 3350),
        ("h100", 3350),
        ("H100SXM5", 3350),
        ("8x H100 SXM", 3350),
        ("NVIDIA H100 PCIe", 2000),
        ("NVIDIA H100 NVL", 3900),
        ("NVIDIA H200", 4800),
        ("nvidia-h200-141gb", 4800),
        ("NVIDIA GH200 480GB", 4000),
        ("NVIDIA B200", 8000),
        ("Tesla T4", 320),
        ("Tesla V100-SXM2-16GB", 900),
        ("NVIDIA L4", 300),
        ("NVIDIA RTX 6000 Ada Generation", 960),
        ("NVIDIA RTX A6000", 768),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 1597),
        ("AMD Instinct MI300X", 5300),
        ("AMD Instinct™ MI325X OAM", 6000),
        ("Intel(R) Gaudi(R) 3", 3700),
    ],
)
def test_names_are_read_as_people_and_drivers_write_them(name: str, gigabytes_per_second: float) -> None:
    gpu = find_gpu(name)
    assert gpu is not None
    assert gpu.bandwidth_bytes_per_second == pytest.approx(gigabytes_per_second * 1e9)


@pytest.mark.parametrize(
    "name", ["", "gpu", "A100", "V100", "RTX 4090 Laptop GPU", "TPU v5e", "H1000", "H100 40GB"]
)
def test_a_name_that_is_unknown_or_leaves_the_part_open_finds_nothing(name: str) -> None:
    assert find_gpu(name) is None


def test_an_open_or_mistyped_name_is_answered_with_names_near_it() -> None:
    assert set(similar_gpus("A100")) == {"A100 80GB SXM", "A100 80GB PCIe", "A100 40GB"}
    assert "GeForce RTX 4090" in similar_gpus("RTX 4091")
    assert similar_gpus("") == ()


@pytest.mark.parametrize(
    ("name", "tokens_per_second"),
    [("A10G", 38), ("L40S", 54), ("RTX 4090", 63), ("A100 80GB", 127), ("H100 SXM", 209), ("H200", 300)],
)
def test_the_ceiling_of_8_billion_weights_in_16_bit(name: str, tokens_per_second: int) -> None:
    gpu = find_gpu(name)
    assert gpu is not None
    ceiling = decode_ceiling_tokens_per_second(gpu.bandwidth_bytes_per_second, 16e9)
    assert ceiling == pytest.approx(tokens_per_second, abs=0.51)


def test_tensor_parallel_gpus_add_their_bandwidth() -> None:
    assert decode_ceiling_tokens_per_second(2039e9, 140e9, gpus=4) == pytest.approx(58.26, abs=0.01)


@pytest.mark.parametrize(
    ("bandwidth", "weights"), [(None, 16e9), (600e9, None), (0, 16e9), (600e9, 0), (-1, 16e9)]
)
def test_the_ceiling_is_unknown_without_both_figures(bandwidth: float | None, weights: float | None) -> None:
    assert decode_ceiling_tokens_per_second(bandwidth, weights) is None


@pytest.mark.parametrize(
    ("name", "memory_class"),
    [
        ("A10G", MemoryClass.UNDER_70_GIB),
        ("A100 40GB", MemoryClass.UNDER_70_GIB),
        ("A100 80GB", MemoryClass.A100),
        ("H100", MemoryClass.FROM_70_GIB),
        ("H200", MemoryClass.FROM_70_GIB),
        ("B200", MemoryClass.FROM_160_GIB),
        ("MI300X", MemoryClass.FROM_160_GIB),
        ("DGX Spark", MemoryClass.GB10),
    ],
)
def test_the_class_by_which_vllm_chooses_defaults(name: str, memory_class: MemoryClass) -> None:
    gpu = find_gpu(name)
    assert gpu is not None
    assert gpu.memory_class is memory_class
