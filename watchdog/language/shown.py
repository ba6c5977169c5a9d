"""A clause as it is printed: each name with its value, and of several alternatives those that hold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from watchdog.language.evaluation import truth_function
from watchdog.language.grammar import Junction, Known, Name, Node, NumberNode
from watchdog.model import Lookup, Truth
from watchdog.text import number_text


@dataclass(frozen=True, slots=True)
class Shown:
    """A part of a clause: its text, and where values go into that (the column after a name, and the name).

    `parts` are what `operator` joins, none for a part that is only printed whole. `truth` is for an
    alternative of an `or`, None for any other part. `is_nested` is for an `or` in an alternative: the first
    that holds is reason enough there.
    """

    text: str
    values: tuple[tuple[int, str], ...]
    operator: str = ""
    parts: tuple["Shown", ...] = ()
    truth: Callable[[Lookup], Truth] | None = None
    is_nested: bool = False

    def whole(self, values: Mapping[str, float | None]) -> str:
        """All of it as it is written; a name without an entry in `values` stands alone."""
        pieces, start = [], 0
        for end, name in self.values:
            if name in values:
                pieces.append(f"{self.text[start:end]} ({number_text(values[name])})")
                start = end
        return "".join([*pieces, self.text[start:]])

    def held(self, values: Mapping[str, float | None], lookup: Lookup) -> str:
        """It without the alternatives that are false or unknown; for a part that holds."""
        if not self.parts:
            return self.whole(values)
        parts = [part for part in self.parts if part.truth is None or part.truth(lookup) is Truth.YES]
        if self.operator == "and":
            texts = [part.held(values, lookup) for part in parts]
            return " and ".join(
                f"({text})" if part.is_choice(lookup) else text
                for part, text in zip(parts, texts, strict=True)
            )
        return " or ".join(part.held(values, lookup) for part in (parts[:1] if self.is_nested else parts))

    def is_choice(self, lookup: Lookup) -> bool:
        """Whether several alternatives hold, so that brackets are needed beside an `and`."""
        if self.operator != "or" or self.is_nested:
            return False
        return sum(part.truth is not None and part.truth(lookup) is Truth.YES for part in self.parts) > 1


def shown_of(text: str, root: Node, names: Sequence[Name | Known], parameters: Mapping[str, float]) -> Shown:
    """How the clause or number of that tree is printed."""
    return _part(text, root, (0, len(text)), names, parameters, "")


def _part(
    text: str,
    node: Node,
    span: tuple[int, int],
    names: Sequence[Name | Known],
    parameters: Mapping[str, float],
    within: str,
) -> Shown:
    """`within` is `or` for an alternative, `or and` for what one joins by `and`, else empty or `and`."""
    begin, end = span
    inside = [name for name in names if isinstance(name, Name) and begin <= name.column < end]
    values = tuple((name.column + len(name.name) - begin, name.name) for name in inside)
    truth = None
    if within == "or" and not isinstance(node, NumberNode):
        truth = truth_function(node, parameters)
    if not isinstance(node, Junction) or not node.spans:
        return Shown(text[begin:end], values, truth=truth)
    below = node.operator if node.operator == "or" or not within.startswith("or") else "or and"
    read = {name.name for name in inside}
    parts = tuple(
        _part(text, operand, at, names, parameters, below)
        for operand, at in zip(node.operands, node.spans, strict=True)
        # In an alternative that holds, a value that is printed is seen to be known.
        if not (below == "or and" and isinstance(operand, Known) and operand.name in read)
    )
    is_nested = node.operator == "or" and within.startswith("or")
    return Shown(text[begin:end], values, node.operator, parts, truth, is_nested)
