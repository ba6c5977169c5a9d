"""What a person may have meant by a name nobody knows."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the known name most like this one; empty where none is alike."""
    close = get_close_matches(name[:100], list(known), n=1)
    return f"did you mean `{close[0]}`?" if close else ""
