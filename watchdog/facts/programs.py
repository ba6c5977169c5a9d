"""Whose page it is when it is not vLLM's, by the first word of its metric names."""

from collections.abc import Mapping
from types import MappingProxyType

# As each program's own documentation lists its metrics.
_PROGRAMS: Mapping[str, str] = MappingProxyType(
    {
        "DCGM": "the DCGM exporter",
        "aibrix": "AIBrix",
        "dynamo": "NVIDIA Dynamo",
        "envoy": "Envoy",
        "gpustack": "GPUStack",
        "inference": "the Gateway API inference extension",
        "istio": "Istio",
        "litellm": "LiteLLM",
        "llamacpp": "llama.cpp",
        "lmcache": "LMCache",
        "lmdeploy": "LMDeploy",
        "nginx": "nginx",
        "node": "the node exporter",
        "nv": "Triton Inference Server",
        "ray": "Ray",
        "revision": "the queue proxy of Knative",
        "router": "a router",
        "sglang": "SGLang",
        "te": "Text Embeddings Inference",
        "tgi": "Text Generation Inference",
        "trtllm": "TensorRT-LLM",
    }
)
# What the Python client shows in every program that uses it.
_PYTHON = frozenset({"python", "process"})
_MOST_NAMED = 4


def is_known_program(words: Mapping[str, int]) -> bool:
    """Whether a page without vLLM's engine shows a program that is known to be another one."""
    return not words.keys().isdisjoint(_PROGRAMS)


def is_python_alone(words: Mapping[str, int]) -> bool:
    """Whether there is nothing but what the Python client shows by itself."""
    return bool(words) and words.keys() <= _PYTHON


def described(words: Mapping[str, int]) -> str:
    """The programs on a page with their numbers of samples, those known first, for a sentence."""
    ranked = sorted(words.items(), key=lambda item: (item[0] not in _PROGRAMS, -item[1], item[0]))
    named = [f"{count} of {_PROGRAMS.get(word, word + '_*')}" for word, count in ranked[:_MOST_NAMED]]
    return ", ".join(named) or "none"
