"""Where prompts stop being alike: what a prefix cache can share of them."""

from collections.abc import Sequence
from dataclasses import dataclass

# Characters a token stands for in English text; other languages and code take fewer.
_CHARACTERS_A_TOKEN = 4
_SHOWN = 24


@dataclass(frozen=True, slots=True)
class Divergence:
    """How two prompts differ: `shared_characters` of the shorter one's `of_characters`, and what stands there."""

    first: int
    second: int
    shared_characters: int
    of_characters: int
    first_text: str
    second_text: str

    @property
    def shared_tokens(self) -> int:
        """About how many tokens are shared."""
        return self.shared_characters // _CHARACTERS_A_TOKEN

    @property
    def shared_ratio(self) -> float:
        """The share of the shorter prompt; 1 where both are empty."""
        return self.shared_characters / self.of_characters if self.of_characters else 1.0


def divergences(prompts: Sequence[str]) -> list[Divergence]:
    """Each prompt against the one before it."""
    return [
        _divergence(position, prompts[position - 1], prompts[position]) for position in range(1, len(prompts))
    ]


def _divergence(position: int, one: str, other: str) -> Divergence:
    shortest = min(len(one), len(other))
    shared = next((at for at in range(shortest) if one[at] != other[at]), shortest)
    return Divergence(
        first=position,
        second=position + 1,
        shared_characters=shared,
        of_characters=shortest,
        first_text=one[shared : shared + _SHOWN],
        second_text=other[shared : shared + _SHOWN],
    )
