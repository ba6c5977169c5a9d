"""Whose page it is when it is not vLLM's."""

import pytest

from watchdog.facts.programs import described, is_known_program, is_python_alone


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({}, "none"),
        ({"python": 9, "sglang": 3}, "3 of SGLang, 9 of python_*"),
        ({"router": 1, "nv": 2}, "2 of Triton Inference Server, 1 of a router"),
        ({"a": 1, "b": 1, "c": 3, "d": 1, "e": 1}, "3 of c_*, 1 of a_*, 1 of b_*, 1 of d_*"),
    ],
)
def test_programs_in_words(words: dict[str, int], text: str) -> None:
    assert described(words) == text


def test_a_program_is_known_by_one_word_and_python_by_all() -> None:
    assert is_known_program({"python": 3, "litellm": 1})
    assert not is_known_program({"python": 3})
    assert is_python_alone({"python": 3, "process": 4})
    assert not is_python_alone({"python": 3, "http": 1})
    assert not is_python_alone({})
