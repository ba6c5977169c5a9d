"""How we write: docstrings describe and never command, and what people read is in the words of the field."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.places import ROOT

COMMAND = re.compile(
    "Accept|Add|Answer|Apply|Build|Call|Check|Clean|Close|Compute|Connect|Convert|Count|Create|Drop|End|Ensure|Finish|"
    "Find|Get|Give|Handle|Hand|Keep|Load|Look|Make|Move|Note|Open|Parse|Put|Raise|Read|Refuse|Remove|Return|Run|Say|"
    "Send|Set|Sort|Split|Start|Stop|Take|Tell|Try|Turn|Validate|Wait|Write"
)


def docstrings() -> Iterator[tuple[str, str]]:
    """The place and the text of each docstring of a module, function or class."""
    for path in sorted((ROOT / "watchdog").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = getattr(node, "name", "")
                yield f"{path.relative_to(ROOT)}:{name}", ast.get_docstring(node) or ""


def test_docstrings_describe_and_do_not_command() -> None:
    # A module is called after what is in it, such as "Open files".
    first = ((place, text.split()[:1]) for place, text in docstrings() if not place.endswith(":"))
    assert [place for place, words in first if COMMAND.fullmatch("".join(words))] == []


# The middle column of the table in CONTRIBUTING.md.
NOT_SAID = re.compile(
    r"\b(told|tells|anew|none of ours|holds? no more|for want of|at the door|thrown out|cannot speak|hear of it"
    r"|worked off|[Mm]ean (?:request|prompt)s?|KV pools?|requests? come a second|Flags count from"
    r"|is booked|are booked|[Bb]ooks them|in the middle and|scraped each|our log)\b|\b[Pp]rice: None"
)
LONGEST_TITLE_WORDS = 10
# Whole files: documents (CONTRIBUTING.md has the table itself), pages, and what is deployed, comments included.
SUFFIXES = {"", ".html", ".json", ".js", ".md", ".mk", ".service", ".tmpl", ".tpl", ".txt", ".yaml", ".yml"}
FILES = sorted(
    path
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "watchdog" / "web" / "templates").iterdir(),
        *(ROOT / "deploy").rglob("*"),
    )
    if path.is_file() and path.suffix in SUFFIXES and path.name not in {"CONTRIBUTING.md", "CHANGELOG.md"}
)
RULES = sorted((ROOT / "rules").glob("*.yaml"))
CLAUSES = {"when", "unless", "where", "tests", "references", "suggest", "id", "flag"}


def strings(value: object) -> Iterator[str]:
    """Every text of a rule file that people read: not clauses, tests and references."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key not in CLAUSES:
                yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)
    elif isinstance(value, str):
        yield value


def messages(path: Path) -> Iterator[str]:
    """The texts in a module that are no docstrings: messages, help and descriptions."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def not_said(texts: Iterator[str]) -> list[str]:
    return [f"{found.group()}: {text[:100]}" for text in texts if (found := NOT_SAID.search(text))]


def test_docstrings_are_in_the_words_of_the_field() -> None:
    # A name in code marks is a name.
    assert not_said(re.sub("`[^`]*`", "", text) for _, text in docstrings()) == []


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_rules_are_in_the_words_of_the_field(path: Path) -> None:
    rule = yaml.safe_load(path.read_text())
    assert not_said(strings(rule)) == []
    assert len(rule.get("title", "").split()) <= LONGEST_TITLE_WORDS


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_in_the_words_of_the_field(path: Path) -> None:
    assert not_said(iter(path.read_text().split("\n\n"))) == []


def test_news_are_in_the_words_of_the_field() -> None:
    [unreleased] = re.findall(
        r"^## \[Unreleased\]\n(.*?)^## \[", (ROOT / "CHANGELOG.md").read_text(), re.S | re.M
    )
    assert not_said(iter(re.split(r"\n(?=- )", unreleased))) == []


def test_messages_are_in_the_words_of_the_field() -> None:
    found = {
        str(path.relative_to(ROOT)): words
        for path in sorted((ROOT / "watchdog").rglob("*.py"))
        if (words := [each for each in not_said(messages(path)) if " " in each.partition(": ")[2]])
    }
    assert found == {}
