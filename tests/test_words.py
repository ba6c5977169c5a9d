"""How we write: docstrings describe, in the third person or as a noun, and never command."""

import ast
import re
from collections.abc import Iterator

from tests.places import ROOT

COMMAND = re.compile(
    "Accept|Add|Answer|Apply|Build|Call|Check|Clean|Close|Compute|Connect|Convert|Count|Create|Drop|End|Ensure|Finish|"
    "Find|Get|Give|Handle|Hand|Keep|Load|Look|Make|Move|Note|Open|Parse|Put|Raise|Read|Refuse|Remove|Return|Run|Say|"
    "Send|Set|Sort|Split|Start|Stop|Take|Tell|Try|Turn|Validate|Wait|Write"
)


def first_words() -> Iterator[tuple[str, str]]:
    """The place and the first word of each docstring of a function or class."""
    for path in sorted((ROOT / "watchdog").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                words = (ast.get_docstring(node) or "").split()
                yield f"{path.relative_to(ROOT)}:{node.name}", words[0] if words else ""


def test_docstrings_describe_and_do_not_command() -> None:
    assert [place for place, word in first_words() if COMMAND.fullmatch(word)] == []
