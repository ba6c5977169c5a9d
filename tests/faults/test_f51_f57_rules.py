"""F51 to F58 as far as the rule set goes: a bad file is refused whole and with its place, never half used."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from watchdog import strict_yaml
from watchdog.errors import Fault, RuleError
from watchdog.rule.file import rule_file
from watchdog.rule.reader import read_rule
from watchdog.rule.rule_set import RuleSet, digest, load

SIGNALS = frozenset({"waiting", "kv_usage_ratio"})
RULE = """\
id: {id}
title: Requests wait
severity: warning
for: {wait}
when: ["waiting > 0"]
explains: [{explains}]
cause: "{{waiting:.0f}} requests wait"
tests:
  - {{name: a queue, signals: {{waiting: 1}}, expect: fires}}
  - {{name: none, signals: {{waiting: 0}}, expect: silent}}
  - {{name: not known, signals: {{}}, expect: unknown}}
"""


def rule(identity: str = "queue", explains: str = "", wait: str = "5s") -> str:
    return RULE.format(id=identity, explains=explains, wait=wait)


def write(directory: Path, **files: str | bytes) -> Path:
    directory.mkdir(exist_ok=True)
    for name, content in files.items():
        whole = content.encode() if isinstance(content, str) else content
        (directory / f"{name}.yaml").write_bytes(whole)
    return directory


def refused(*directories: Path, allow_untested: bool = False) -> tuple[Fault, ...]:
    with pytest.raises(RuleError) as caught:
        load(directories, SIGNALS, allow_untested=allow_untested)
    assert str(caught.value)
    return caught.value.faults


LAUGHS = "a: &a [lol, lol]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD_FILES: Mapping[str, tuple[str | bytes, int, int, str]] = {
    "syntax": ("id: queue\nwhen: [a\ntitle: x\n", 3, 6, "not YAML"),
    "tab": ("id: queue\n\ttitle: x\n", 2, 1, "not YAML"),
    "duplicate key": (rule() + "title: again\n", 12, 1, "the key `title` is here twice (first on line 2)"),
    "duplicate key below": (rule().replace("name: none", "name: a, name: b"), 10, 15, "`name` is here twice"),
    "billion laughs": (LAUGHS, 1, 4, "the anchor &a is not allowed"),
    "alias": (rule() + "unhelpful: [*queue]\n", 12, 13, "the alias *queue is not allowed"),
    "merge": (rule() + "<<: {title: x}\n", 12, 1, "the key `<<` is not known"),
    "tag": (rule() + 'references: !!python/object/apply:os.system ["true"]\n', 12, 13, "the tag"),
    "whole tag": ("!!set {id}\n", 1, 1, "the tag"),
    "nesting": (rule() + "references: " + "[" * 20 + "]" * 20, 12, 25, "nested deeper than 12"),
    "unbounded nesting": (rule() + "references: " + "[" * 20_000, 12, 0, "not YAML"),
    "entries": (rule() + "references: [" + "a, " * 5_000 + "]\n", 12, 614, "more than 200 entries"),
    "complex key": ("[id]: queue\n", 1, 1, "a key must be a plain word"),
    "list": ("- id: queue\n", 1, 1, "a rule file is one mapping"),
    "two documents": (rule() + "---\n" + rule(), 13, 1, "a rule file is one mapping"),
    "null byte": (rule().replace("wait", "wa\0it"), 2, 19, "the character U+0000 is not allowed"),
    "escape": (rule().replace("wait", "wa\x1bit"), 2, 19, "the character U+001B is not allowed"),
    "empty": ("", 0, 0, "a rule file is one mapping"),
    "comment": ("# nothing\n", 0, 0, "a rule file is one mapping"),
    "not UTF-8": (b"id: \xff\xfe\n", 1, 5, "not UTF-8 text"),
    "10 MB": (b"#" * 10_000_000, 0, 0, "larger than 256 KiB"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_f51_a_broken_file_is_refused_at_its_place_in_no_time(tmp_path: Path, name: str) -> None:
    content, line, column, message = BAD_FILES[name]
    start = time.process_time()
    fault = refused(write(tmp_path, queue=content))[0]
    assert time.process_time() - start < 1.0
    assert message in str(fault)
    assert fault.line == line
    assert fault.column == column or name == "unbounded nesting"


@pytest.mark.parametrize("name", BAD_FILES)
def test_f51_it_is_refused_as_well_where_yaml_has_no_fast_reader(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict_yaml, "_Loader", yaml.SafeLoader)
    content, line, _, message = BAD_FILES[name]
    fault = refused(write(tmp_path, queue=content))[0]
    assert fault.line == line
    assert message in str(fault)


def test_f51_a_good_file_is_read_the_same_without_the_fast_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write(tmp_path, queue=rule())
    fast = load([directory], SIGNALS)
    monkeypatch.setattr(strict_yaml, "_Loader", yaml.SafeLoader)
    assert load([directory], SIGNALS).rules == fast.rules


def test_f51_a_file_at_the_size_limit_is_read(tmp_path: Path) -> None:
    text = rule() + "#"
    assert load([write(tmp_path, queue=text + "x" * (256 * 1024 - len(text)))], SIGNALS).rules
    refused(write(tmp_path, queue=text + "x" * (256 * 1024 - len(text) + 1)))


def test_f51_a_byte_order_mark_and_windows_line_ends_are_no_fault(tmp_path: Path) -> None:
    assert load(
        [write(tmp_path, queue=b"\xef\xbb\xbf" + rule().replace("\n", "\r\n").encode())], SIGNALS
    ).rules


@pytest.mark.slow
@given(st.binary(max_size=400))
@settings(max_examples=200)
def test_f51_any_bytes_are_faults_and_never_an_exception(content: bytes) -> None:
    file = rule_file("queue.yaml", content)
    assert read_rule(file, Path("queue.yaml"), SIGNALS, {}) is None
    assert file.faults
    assert all(str(fault) for fault in file.faults)


PIECES = st.sampled_from(
    ['"', "'", "{", "}", "[", "]", ": ", "- ", "\n", "  ", "|\n", ">", "*a", "&a ", "!!x ", "\u2028"]
)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(0, len(rule())), st.integers(0, 9), PIECES | st.text(max_size=3)), max_size=4
    )
)
@settings(max_examples=300)
def test_f51_any_damage_to_a_file_is_a_fault_and_never_an_exception(cuts: list[tuple[int, int, str]]) -> None:
    text = rule()
    for at, length, piece in cuts:
        text = text[:at] + piece + text[at + length :]
    file = rule_file("queue.yaml", text.encode(errors="replace"))
    read = read_rule(file, Path("queue.yaml"), SIGNALS, {})
    assert (read is None) == bool(file.faults)


def test_f51_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    directory = write(tmp_path / "rules", queue=rule())
    os.mkfifo(directory / "pipe.yaml")
    (directory / "folder.yaml").mkdir()
    (directory / "dangling.yaml").symlink_to("nowhere")
    (directory / "loop.yaml").symlink_to("loop.yaml")
    (directory / "other.yml").write_text(rule("other"))
    faults = {Path(fault.path).name: fault.text for fault in refused(directory)}
    assert set(faults) == {"pipe.yaml", "folder.yaml", "dangling.yaml", "loop.yaml", "other.yml"}
    assert faults["pipe.yaml"] == "cannot be read: not a file"


def test_f51_a_directory_of_too_many_files_is_not_read(tmp_path: Path) -> None:
    (fault,) = refused(write(tmp_path, **{f"rule-{number}": "" for number in range(501)}))
    assert (fault.path, fault.text) == (str(tmp_path), "more than 500 rule files")


def test_f51_the_faults_of_a_file_full_of_them_are_counted_out(tmp_path: Path) -> None:
    text = rule().replace('"waiting > 0"', ", ".join(['"waitng > 0"'] * 150))
    faults = refused(write(tmp_path, queue=text))
    assert len(faults) == 51
    assert faults[-1].text == "more than 50 faults"


def test_f51_a_file_of_nothing_but_unknown_names_is_refused_in_no_time(tmp_path: Path) -> None:
    names = {f"waiting_of_engine_number_{number}" for number in range(300)}
    test = (
        "  - {name: n, expect: fires, signals: {" + ", ".join(f"waitng_{n}: 1" for n in range(150)) + "}}\n"
    )
    start = time.process_time()
    with pytest.raises(RuleError):
        load([write(tmp_path, queue=rule() + test * 80)], names)
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("severity:", "sevrity:", "3:1: the key `sevrity` is not known here (did you mean `severity`?)"),
        ("waiting > 0", "wating > 0", "5:9: no signal is named `wating` (did you mean `waiting`?)"),
        ("{waiting:.0f}", "{watin:.0f}", "7:10: no signal is named `watin` (did you mean `waiting`?)"),
        ("expect: fires", "expct: fires", "9:44: the key `expct` is not known here (did you mean `expect`?)"),
        ("{waiting: 1}", "{waitin: 1}", "9:31: no signal is named `waitin` (did you mean `waiting`?)"),
        ("severity: warning", "severity: waring", "3:11: `severity` is one of critical, warning, info"),
    ],
)
def test_f52_a_typo_is_told_with_what_was_meant(tmp_path: Path, before: str, after: str, told: str) -> None:
    lines = [str(fault) for fault in refused(write(tmp_path, queue=rule().replace(before, after)))]
    assert any(f"queue.yaml:{told}" in line for line in lines), lines


@pytest.mark.parametrize(
    ("clause", "caret", "message"),
    [
        ("(" * 200 + "waiting > 0" + ")" * 200, 21, "nested deeper than 20"),
        ("waiting.__class__ > 0", 7, "`.` is not part of a clause"),
        ("__import__(0) > waiting", 0, "`__import__` is not a function"),
        ("9**9**9 > waiting", 1, "`**` is not part of a clause"),
        ("w\u0430iting > 0", 1, "is not ASCII"),
        (" ", None, "empty"),
        ("", None, "empty"),
        ("waiting > 0 " * 50, 500, "longer than 500 characters"),
        ("waiting", 0, "a clause compares"),
    ],
)
def test_f53_a_clause_outside_the_grammar_is_refused_with_a_caret(
    tmp_path: Path, clause: str, caret: int | None, message: str
) -> None:
    start = time.process_time()
    fault = refused(write(tmp_path, queue=rule().replace("waiting > 0", clause)))[0]
    assert time.process_time() - start < 1.0
    assert message in fault.text
    assert fault.line == 5
    if caret:
        assert fault.column == 9 + caret
    assert fault.snippet.endswith("^")


def test_f54_a_rule_whose_own_test_fails_does_not_load(tmp_path: Path) -> None:
    directory = write(tmp_path, queue=rule().replace("waiting: 0}", "waiting: 2}"))
    (fault,) = refused(directory)
    assert fault.line == 10
    assert fault.text == "the test `none` fails: expected silent, it fires: when waiting (2) > 0 is yes"
    assert load([directory], SIGNALS, allow_untested=True).by_id("queue")


@pytest.mark.parametrize("kind", ["fires", "silent", "unknown"])
def test_f54_a_rule_without_a_firing_a_silent_and_an_unknown_test_does_not_load(
    tmp_path: Path, kind: str
) -> None:
    lines = [line for line in rule().splitlines(keepends=True) if f"expect: {kind}" not in line]
    directory = write(tmp_path, queue="".join(lines))
    (fault,) = refused(directory)
    assert fault.text == f"the rule `queue` has no test that expects {kind}"
    assert load([directory], SIGNALS, allow_untested=True).by_id("queue")


def test_f54_a_rule_without_any_test_loads_only_where_that_is_allowed(tmp_path: Path) -> None:
    directory = write(tmp_path, queue=rule()[: rule().index("tests:")])
    (fault,) = refused(directory)
    assert "no test that expects fires, nor silent, nor unknown" in fault.text
    assert load([directory], SIGNALS, allow_untested=True).by_id("queue").tests == ()


def test_f55_two_rules_of_one_id_name_both_files(tmp_path: Path) -> None:
    shipped, own = write(tmp_path / "shipped", queue=rule()), write(tmp_path / "own", queue=rule())
    (fault,) = refused(shipped, own)
    assert fault.path == str(own / "queue.yaml")
    assert fault.text == f"the rule `queue` is also in {shipped / 'queue.yaml'}"


def test_f55_a_file_with_anothers_id_is_refused_by_name_and_as_a_second_one(tmp_path: Path) -> None:
    (fault,) = refused(write(tmp_path, queue=rule(), zother=rule()))
    assert (Path(fault.path).name, fault.line) == ("zother.yaml", 1)
    assert fault.text == "the file of the rule `queue` is named queue.yaml"


def test_f55_a_circle_of_explains_names_all_of_its_files(tmp_path: Path) -> None:
    files = {"a": rule("a", "b"), "b": rule("b", "d, c"), "c": rule("c", "a"), "d": rule("d", "a, d")}
    faults = refused(write(tmp_path, **files))
    circles = {fault.text.removeprefix("`explains` goes in a circle: ") for fault in faults}
    assert circles == {"a -> b -> d -> a", "a -> b -> c -> a", "d -> d"}
    first = next(fault for fault in faults if fault.text.endswith("c -> a"))
    assert (Path(first.path).name, first.line, first.column) == ("a.yaml", 6, 12)
    assert str(tmp_path / "b.yaml") in first.hint
    assert str(tmp_path / "c.yaml") in first.hint


def test_f55_many_ways_that_meet_again_are_no_circle_and_cost_nothing(tmp_path: Path) -> None:
    names = [f"r{number:02}" for number in range(60)]
    files = {name: rule(name, ", ".join(names[index + 1 :])) for index, name in enumerate(names)}
    start = time.process_time()
    assert len(load([write(tmp_path, **files)], SIGNALS).rules) == 60
    assert time.process_time() - start < 2.0


def test_f55_an_unknown_id_in_explains_is_told_once_all_files_can_be_read(tmp_path: Path) -> None:
    directory = write(tmp_path, queue=rule(explains="other"), other="id: [\n")
    assert [Path(fault.path).name for fault in refused(directory)] == ["other.yaml"]
    (directory / "other.yaml").unlink()
    write(directory, othe=rule("othe"))
    (fault,) = refused(directory)
    assert (
        str(fault)
        .splitlines()[0]
        .endswith(
            "queue.yaml:6:12: `explains` names the rule `other`, which does not exist (did you mean `othe`?)"
        )
    )


def test_f56_one_bad_file_of_twenty_refuses_them_all_and_leaves_the_old_set(tmp_path: Path) -> None:
    names = [f"rule-{number}" for number in range(20)]
    directory = write(tmp_path, **{name: rule(name) for name in names})
    old = load([directory], SIGNALS)
    write(directory, **{"rule-7": "id: rule-7\nwhen: [", "rule-9": rule("rule-9", wait="9s")})
    faults = refused(directory)
    assert {Path(fault.path).name for fault in faults} == {"rule-7.yaml"}
    assert len(old.rules) == 20
    assert old.by_id("rule-9").for_seconds == 5


def test_f56_the_same_bad_contents_have_the_same_digest(tmp_path: Path) -> None:
    directory = write(tmp_path, queue="id: [")
    first = digest([directory])
    write(directory, queue="id: [")
    assert digest([directory]) == first
    write(directory, queue="id: [ ")
    assert digest([directory]) != first


def test_f57_a_file_cut_at_any_byte_is_never_a_smaller_set_in_silence(tmp_path: Path) -> None:
    whole = rule() + "unhelpful: [more memory]\n"
    complete = load([write(tmp_path, queue=whole)], SIGNALS).digest
    for end in range(0, len(whole) - 1, 7):
        directory = write(tmp_path, queue=whole[:end])
        with suppress(RuleError):
            assert len(load([directory], SIGNALS).rules) == 1
        assert digest([directory]) != complete


@pytest.mark.parametrize("files", [{}, {"README.md": ""}, {".hidden.yaml": rule()}, {"queue.yaml~": rule()}])
def test_f57_a_directory_without_a_rule_is_a_fault(tmp_path: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (fault,) = refused(tmp_path)
    assert (fault.path, fault.text) == (str(tmp_path), "no rule file here")
    with pytest.raises(RuleError):
        digest([tmp_path])


def test_f57_a_directory_that_is_gone_is_a_fault_beside_one_that_is_there(tmp_path: Path) -> None:
    good = write(tmp_path / "good", queue=rule())
    (fault,) = refused(good, tmp_path / "gone")
    assert str(fault) == f"{tmp_path / 'gone'}: cannot be read: No such file or directory"
    (fault,) = refused(good / "queue.yaml")
    assert (fault.text, fault.hint) == ("is a file", "name the folder that holds it")


def test_f57_what_an_editor_leaves_behind_is_not_read(tmp_path: Path) -> None:
    directory = write(tmp_path, queue=rule())
    before = digest([directory])
    for name in (".queue.yaml.swp", "queue.yaml~", "queue.yaml.bak", "#queue.yaml#", "4913"):
        (directory / name).write_text("id: [")
    (directory / "deeper").mkdir()
    write(directory / "deeper", other="id: [")
    assert load([directory], SIGNALS).digest == before


def config_map(directory: Path, age: str, **files: str) -> None:
    """Mount the files the way Kubernetes does: a folder for each age, and `..data` swapped to the new one."""
    write(directory / f"..{age}", **files)
    (directory / "..data_tmp").symlink_to(f"..{age}")
    (directory / "..data_tmp").rename(directory / "..data")
    for name in files:
        if not (directory / f"{name}.yaml").is_symlink():
            (directory / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")


def test_f57_a_swapped_config_map_is_read_at_one_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_map(tmp_path, "one", a=rule("a", wait="1s"), b=rule("b", wait="1s"))
    real_iterdir = Path.iterdir

    def swap_while_listing(path: Path) -> Iterator[Path]:
        found = list(real_iterdir(path))
        if not (tmp_path / "..two").exists():
            config_map(tmp_path, "two", a=rule("a", wait="2s"), b=rule("b", wait="2s"))
        return iter(found)

    monkeypatch.setattr(Path, "iterdir", swap_while_listing)
    assert ages(load([tmp_path], SIGNALS)) == {1.0}
    assert ages(load([tmp_path], SIGNALS)) == {2.0}


def test_f57_a_fault_in_a_config_map_names_the_file_people_know(tmp_path: Path) -> None:
    config_map(tmp_path, "one", queue="id: [")
    assert refused(tmp_path)[0].path == str(tmp_path / "queue.yaml")


def test_f57_a_config_map_whose_link_leads_nowhere_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "..data").symlink_to("..gone")
    assert "cannot be read" in refused(tmp_path)[0].text


def ages(found: RuleSet) -> set[float]:
    return {rule.for_seconds for rule in found.rules}


def test_f58_a_changed_rule_keeps_its_id_and_a_removed_one_is_gone(tmp_path: Path) -> None:
    directory = write(tmp_path, a=rule("a"), b=rule("b"))
    before = load([directory], SIGNALS)
    write(directory, a=rule("a", wait="1m"))
    (directory / "b.yaml").unlink()
    after = load([directory], SIGNALS)
    assert (before.by_id("a").for_seconds, after.by_id("a").for_seconds) == (5.0, 60.0)
    assert before.find("b") is not None
    assert after.find("b") is None
    assert before.digest != after.digest
