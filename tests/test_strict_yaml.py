"""The reader of people's files: places, what is refused, what an excerpt shows."""

import pytest
import yaml

from watchdog import strict_yaml
from watchdog.strict_yaml import KEY, Kind, Word, YamlFile

KIND = Kind("a list of things", "such as `a: 1`", max_bytes=1000, max_nesting=4, max_entries=5)
TEXT = "a: 1\nb: [x, 'y z']\nc:\n  d: |\n    two\n    lines\n  e: {f: true}\n"


def file(text: str, **shows: object) -> YamlFile:
    return YamlFile("x.yaml", text.encode(), KIND, **shows)  # type: ignore[arg-type]


def test_scalars_are_words_or_quoted_texts() -> None:
    value = file(TEXT).read()
    assert value == {"a": "1", "b": ["x", "y z"], "c": {"d": "two\nlines\n", "e": {"f": "true"}}}
    assert [type(each) for each in value["b"]] == [Word, str]
    assert type(value["c"]["d"]) is str


@pytest.mark.parametrize(
    ("word", "is_text"),
    [
        *((each, True) for each in ("x", "a-b", "1.2.3", "::1", "5s", "vllm:8000", "0.0.0.0", "truth")),
        *(
            (each, False)
            for each in ("yes", "on", "NO", "true", "012", "1:30", "1_000", "0x1f", "0o17", "1e9")
        ),
        *((each, False) for each in ("2024-01-31", "null", "~", "", ".5", "5.", ".inf", "-1", "<<", "=")),
    ],
)
def test_a_word_is_text_where_every_reader_of_yaml_takes_it_for_one(word: str, is_text: bool) -> None:
    assert Word(word).is_text is is_text


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        (("a",), 1, 4),
        (("a", KEY), 1, 1),
        (("b", 1), 2, 8),
        (("b", 7), 2, 4),
        (("c",), 3, 1),
        (("c", "d"), 4, 6),
        (("c", "e", "f", KEY), 7, 7),
        (("c", "gone"), 3, 1),
        (("gone",), 1, 1),
        ((), 1, 1),
    ],
)
def test_a_fault_is_put_at_the_value_its_key_or_what_should_hold_it(
    path: strict_yaml.Path, line: int, column: int
) -> None:
    one = file(TEXT)
    one.read()
    one.forget()
    one.fault(path, "wrong")
    (fault,) = one.faults
    assert (fault.line, fault.column) == (line, column)
    assert "^" in fault.snippet


def test_what_was_written_is_asked_for_by_its_path() -> None:
    one = file(TEXT)
    one.read()
    assert [one.written(path) for path in (("a",), ("b", 1), ("b",))] == ["1", "y z", ""]


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (
            "a: &x 1\nb: *x\nc: !!str 5\na: 2\n",
            ["1:4 the anchor", "2:4 the alias", "3:4 the tag", "4:1 the key `a`"],
        ),
        ('a: "\\u202e"\nb: "\\0"\n', ["1:4 the character U+202E", "2:4 the character U+0000"]),
        ("a: \x07\n", ["1:4 the character U+0007"]),
        ("a: [[[[[1]]]]]\n", ["1:8 not YAML: nested deeper than 4"]),
        ("a: [1, 1, 1, 1, 1, 1]\n", ["1:20 not YAML: more than 5 entries"]),
        ("{a: 1}: 2\n", ["1:1 a key must be a plain word"]),
        ("a: 1\n...\n---\nb: 1\n", ["4:1 a list of things is one mapping"]),
        ("", ["0:0 a list of things is one mapping"]),
        ("x" * 1001, ["0:0 larger than 0 KiB"]),
        ("a: 'b\n", ["2:1 not YAML: "]),
    ],
)
def test_every_fault_of_a_file_is_found_by_either_reader(
    text: str, faults: list[str], loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict_yaml, "_Loader", getattr(yaml, loader))
    one = file(text)
    assert one.read() is None
    found = [f"{each.line}:{each.column} {each.text}" for each in one.faults]
    assert all(each.startswith(wanted) for each, wanted in zip(found, faults, strict=True)), found


def test_an_excerpt_hides_what_is_not_to_be_shown() -> None:
    one = file(TEXT, shows=lambda path, text: text == "true")
    one.read()
    for path in (("a",), ("b", 1), ("c", "d"), ("c", "e", "f")):
        one.fault(path, "wrong")
    assert [fault.snippet for fault in one.faults] == [
        "  1 | a: ***\n    |    ^^^",
        "  2 | b: [***, ***]\n    |          ^^^",
        "  4 |   d: ***\n    |      ^^^",
        "  7 |   e: {f: true}\n    |          ^^^^",
    ]


def test_faults_beyond_the_most_are_counted_out() -> None:
    one = file("a: 1\n")
    one.read()
    for _ in range(60):
        one.fault(("a",), "wrong")
    assert len(one.faults) == strict_yaml.MAX_FAULTS + 1
    assert one.faults[-1].text == "more than 50 faults"
    assert one.hint("prot", ["port"]) == ""
