"""Pages into values: what is read, what is refused and where, and what the cache remembers."""

import math
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.bench.exposition import compare
from tests.places import RECORDINGS
from watchdog.model import Page, Reason
from watchdog.scrape.exposition import ExpositionError, SeriesCache, parse
from watchdog.scrape.recording import read

Told = dict[tuple[str, frozenset[tuple[str, str]]], float]


def wanted(name: str) -> bool:
    return name.startswith(("vllm:", "process_", "http_"))


def cache(max_series: int = 50_000, max_line_bytes: int = 64 * 1024) -> SeriesCache:
    return SeriesCache(wanted, max_series, max_line_bytes)


def page_of(text: str | bytes, known: SeriesCache | None = None) -> Page:
    body = text.encode() if isinstance(text, str) else text
    return parse(body, cache() if known is None else known)


def told(page: Page) -> Told:
    pairs = zip(page.series, page.values, strict=True)
    return {(series.name, frozenset(series.labels.items())): value for series, value in pairs}


def values_of(text: str | bytes) -> list[tuple[str, dict[str, str], float]]:
    page = page_of(text)
    pairs = zip(page.series, page.values, strict=True)
    return [(series.name, dict(series.labels), value) for series, value in pairs]


def refusal(text: str | bytes, known: SeriesCache | None = None) -> ExpositionError:
    with pytest.raises(ExpositionError) as caught:
        page_of(text, known)
    assert "\n" not in caught.value.detail
    assert len(caught.value.detail) < 300
    return caught.value


def by_the_library(text: str) -> Told:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if wanted(sample.name) and not sample.name.endswith("_created")
    }


def test_a_page_as_served() -> None:
    page = page_of(
        "# HELP vllm:num_requests_running Number of requests.\n"
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'
        "process_start_time_seconds 1.7e+09\n"
        'python_info{version="3.12"} 1.0\n'
    )
    assert [series.name for series in page.series] == [
        "vllm:num_requests_running",
        "process_start_time_seconds",
    ]
    assert page.series[0].labels == {"engine": "0", "model_name": "m"}
    assert page.values == (3.0, 1.7e9)
    assert page.notes == ()
    assert not page.openmetrics


@pytest.mark.parametrize("recording", sorted(RECORDINGS.glob("*.xz")), ids=lambda path: path.name)
def test_real_pages_read_as_by_the_library(recording: Path) -> None:
    known = cache()
    _, scrapes = read(recording)
    pages = [scrape.body for scrape in scrapes if scrape.failure is None]
    for body in [pages[0], pages[len(pages) // 2], pages[-1]]:
        assert told(parse(body, known)) == by_the_library(body.decode())


def test_a_page_of_the_library_with_labels_of_every_kind_reads_as_by_the_library() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("vllm:a", "With\nnewline and \\", ["model_name"], registry=registry)
    for value in [
        "",
        " ",
        "}",
        "{",
        '"',
        "\\",
        "\n",
        '\\"',
        "\\n",
        "a b",
        "a,b",
        "=",
        "ü☃",
        "# x",
        "} 5",
        '",x="',
    ]:
        gauge.labels(value).set(len(value) + 0.5)
    Counter("vllm:c", "", registry=registry).inc(7)
    Histogram("vllm:h", "", ["engine"], registry=registry).labels("0").observe(0.3)
    text = generate_latest(registry).decode()
    expected = by_the_library(text)
    assert len(expected) > 30
    assert told(page_of(text)) == expected
    known = cache()
    assert told(page_of(text, known)) == told(page_of(text, known)) == expected


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ("vllm:a 1", {}),
        ("vllm:a{} 1", {}),
        ("  vllm:a\t1  ", {}),
        ("vllm:a  1", {}),
        ('vllm:a{x="1",} 1', {"x": "1"}),
        ('vllm:a{ x = "1" , y="2" } 1', {"x": "1", "y": "2"}),
        ('vllm:a {x="1"} 1', {"x": "1"}),
        ('vllm:a{x="1"}1', {"x": "1"}),
        ('vllm:a{x="a b  c"} 1', {"x": "a b  c"}),
        ('vllm:a{x="}"} 1', {"x": "}"}),
        ('vllm:a{x="{} 1 # {"} 1', {"x": "{} 1 # {"}),
        ('vllm:a{x="\\"q\\" \\\\ \\n"} 1', {"x": '"q" \\ \n'}),
        ('{"vllm:a",x="1"} 1', {"x": "1"}),
    ],
)
def test_spellings_of_a_line(line: str, labels: dict[str, str]) -> None:
    known = cache()
    for _ in range(2):
        page = page_of(line + "\n", known)
        assert [(series.name, series.labels) for series in page.series] == [("vllm:a", labels)]
        assert page.values == (1.0,)


@pytest.mark.parametrize("prefix", ["vllm_", "ray_vllm_", "ray_vllm:", "kserve_vllm:", "kserve_vllm_"])
def test_prefixes_are_made_one(prefix: str) -> None:
    asked: list[str] = []
    known = SeriesCache(lambda name: not asked.append(name))  # type: ignore[func-returns-value]
    page = page_of(f'{prefix}time_to_first_token_seconds_bucket{{le="1.0"}} 1\n', known)
    assert asked[0] == page.series[0].name == "vllm:time_to_first_token_seconds_bucket"


def test_one_series_in_two_spellings_is_one() -> None:
    page = page_of('vllm:a{x="1",y="2"} 1\nvllm_a{y="2",x="1"} 2\nvllm:b 3\n')
    assert page.values == (1.0, 3.0)
    assert page.notes == ("1 repeated series: the first value of each was taken",)


@pytest.mark.parametrize("text", ["1", "1.0", "-1e3", "+5", ".5", "1e-300", "0"])
def test_numbers(text: str) -> None:
    assert page_of(f"vllm:a {text}\n").values == (float(text),)


@pytest.mark.parametrize("text", ["1_0", "0x10", "one", "1,5", "1.0.0", "--1", "1e", '"1"', "True", "٣"])
@pytest.mark.parametrize("known", [False, True])
def test_what_is_no_number_is_refused_with_its_line(text: str, known: bool) -> None:
    remembered = cache()
    if known:
        page_of("vllm:a 1\n", remembered)
    error = refusal(f"# first\n\nvllm:a {text}\n", remembered)
    assert error.reason is Reason.PARSE
    assert error.detail.startswith("line 3: a number was expected as a value")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vllm:a", "a value was expected"),
        ("vllm:a ", "a value was expected"),
        ('vllm:a{x="1"}', "a value was expected"),
        ("vllm:a 1 2 3", "nothing was expected after"),
        ("vllm:a 1#then", "a number was expected as a value"),
        ("vllm:a 1\tthen", "a number was expected as a timestamp"),
        ("vllm:a 1 then", "a number was expected as a timestamp"),
        ('vllm:a{x="1" 1', "labels in the form"),
        ('vllm:a{x="1} 1', "labels in the form"),
        ("vllm:a{x=1} 1", "labels in the form"),
        ("vllm:a{x} 1", "labels in the form"),
        ('vllm:a{x="1",x="2"} 1', "labels in the form"),
        ('vllm:a{x="1"y="2"} 1', "labels in the form"),
        ('vllm:a{=""} 1', "labels in the form"),
        ('{x="1"} 1', "labels in the form"),
        ("9a 1", "a metric name was expected"),
        ("a-b 1", "a metric name was expected"),
        ("ü 1", "a metric name was expected"),
        ('"a" 1', "a metric name was expected"),
        ("= 1", "a metric name was expected"),
    ],
)
@pytest.mark.parametrize("warm", [False, True])
def test_a_malformed_line_is_told_with_its_number_and_what_was_expected(
    line: str, expected: str, warm: bool
) -> None:
    known = cache()
    if warm:
        page_of('vllm:a 1\nvllm:a{x="1"} 1\nvllm:good 1\n', known)
    error = refusal(f"vllm:good 1\n{line}\nvllm:good2 1\n", known)
    assert error.reason is Reason.PARSE
    assert error.detail.startswith("line 2: ")
    assert expected in error.detail


def test_a_malformed_line_is_refused_again_and_again() -> None:
    known = cache()
    for _ in range(3):
        refusal("python_info 1_0\n", known)


def test_what_is_not_a_metrics_page_is_called_so() -> None:
    assert "HTML" in refusal("<!DOCTYPE html>\n<html></html>\n").detail
    assert "HTML" in refusal("\n  <html>\n").detail
    assert "JSON" in refusal('{"detail":"Not Found"}').detail
    assert "JSON" in refusal("[]").detail


def test_details_are_safe_to_print() -> None:
    detail = refusal("\x1b[31m\u202e<b>\r ☃\n").detail
    assert detail.isascii()
    assert detail.isprintable()


@pytest.mark.parametrize("text", ["", "\n", " \r\n\t\n", "# only\n# comments\n", "\ufeff"])
def test_a_page_without_a_sample_is_empty(text: str) -> None:
    assert refusal(text).reason is Reason.EMPTY


def test_a_page_without_a_wanted_sample_is_a_page() -> None:
    known = cache()
    for _ in range(2):
        assert page_of("python_info 1\n", known) == Page((), (), strangers={"python": 1})


def test_the_end_of_the_page_needs_no_newline() -> None:
    assert page_of("vllm:a 1").values == (1.0,)


def test_created_series_are_no_values() -> None:
    assert page_of("vllm:a_created 1\nvllm:a_total 2\n").values == (2.0,)


def test_series_is_the_same_tuple_while_the_shape_is() -> None:
    known = cache()
    first = page_of("vllm:a 1\nvllm:b 2\nvllm:a 5\n", known)
    second = page_of("# HELP new\nvllm:a 3\nother 1\nvllm:b 4\nvllm:a 6\n", known)
    assert second.series is first.series
    assert second.values == (3.0, 4.0)
    third = page_of("vllm:b 4\nvllm:a 3\n", known)
    assert third.series is not first.series
    assert set(third.series) == set(first.series)


def test_a_series_that_comes_back_is_the_same() -> None:
    known = cache()
    [a, _] = page_of("vllm:a 1\nvllm:b 1\n", known).series
    page_of("vllm:b 1\n", known)
    [again, _] = page_of("vllm:a 1\nvllm:b 1\n", known).series
    assert again is a


def test_values_of_unwanted_series_cost_a_lookup_only() -> None:
    asked: list[str] = []
    known = SeriesCache(lambda name: bool(asked.append(name)))  # type: ignore[func-returns-value]
    for value in range(5):
        page_of(f'other{{x="1"}} {value}\n', known)
    assert asked == ["other", "vllm:other"]


def test_without_its_prefix_a_name_is_vllms_where_it_tells_its_model() -> None:
    page = page_of('a{model_name="m"} 1\na{model="m"} 2\na 3\n')
    assert [(series.name, series.labels) for series in page.series] == [("vllm:a", {"model_name": "m"})]
    assert page.values == (1.0,)


def test_what_a_router_tells_of_a_server_is_not_an_engines() -> None:
    page = page_of('vllm:a{server="http://a:8000"} 1\nvllm:b{server="http://a:8000"} 1\nother_total 1\n')
    assert page.series == ()
    assert page.strangers == {"router": 2, "other": 1}
    told = page_of('vllm:a{server="x",model_name="m"} 1\nvllm:b{server="x",engine="0"} 1\nother_total 1\n')
    assert [series.name for series in told.series] == ["vllm:a", "vllm:b"]
    assert told.strangers == {}


def test_strangers_are_counted_by_the_first_word_of_their_names_within_bounds() -> None:
    text = '# HELP sglang:a x\nsglang:a{b="1"} 1\n  sglang:b 1\ntgi_c 1\n{"quoted"} 1\n' + "x" * 50 + "_y 1\n"
    assert page_of(text).strangers == {"sglang": 2, "tgi": 1, "x" * 32: 1}
    crowd = page_of("".join(f"name{number}_total 1\n" for number in range(100))).strangers
    assert len(crowd) == 33
    assert crowd["others"] == 68


@pytest.mark.parametrize("rest", ["2\t1", "2\t1700000000000", "2 # {} 1", '2\t#\t{x="1_0"}', " 2\t ", "2\r"])
def test_a_line_known_in_one_form_is_read_in_every_other(rest: str) -> None:
    known = cache()
    for line in ["vllm:a 1", f"vllm:a {rest}", "vllm:a 1"]:
        page = page_of(f"{line}\nvllm:b 3\n", known)
        assert page.values == (2.0 if rest in line else 1.0, 3.0)


def test_a_page_with_timestamps_does_not_grow_the_cache() -> None:
    known = cache()
    for at in range(500):
        page = page_of(f'vllm:a{{x="1"}} {at} {1_700_000_000_000 + at}\nother 1 {at}\nvllm:b 1\n', known)
        assert page.values == (float(at), 1.0)
    assert len(known) <= 4


def test_memory_is_flat_while_label_values_churn() -> None:
    known = cache()
    page = "".join(f'vllm:a{{x="{number}"}} 1\n' for number in range(100))
    steady = page_of(page, known).series
    most = 0
    for round_number in range(1000):
        new = "".join(f'vllm:new{{x="{round_number}.{number}"}} 1\n' for number in range(50))
        series = page_of(page + new, known).series
        assert series[:100] == steady
        most = max(most, len(known))
    assert most < 4 * 150 + 2 * 1000 + 200
    assert sys.getsizeof(known.__dict__) < 10_000


def test_large_labels_that_churn_are_forgotten_by_their_size() -> None:
    known = cache()
    for number in range(1000):
        page_of(f'vllm:a{{x="{number:08d}{"b" * 16_000}"}} 1\n', known)
    assert len(known) < 600


def test_limits() -> None:
    known = cache(max_series=10, max_line_bytes=100)
    ten = "# c\n" * 10 + "".join(f"vllm:a{number} 1\n" for number in range(10))
    assert len(page_of(ten, known).series) == 10
    assert refusal(ten + "vllm:b 1\n", known).reason is Reason.TOO_LARGE
    assert page_of("vllm:a" + " " * 93 + "1\n", known).values == (1.0,)
    error = refusal("vllm:b 1\nvllm:a" + " " * 94 + "1\n", known)
    assert error.reason is Reason.TOO_LARGE
    assert error.detail == "line 2 has 101 bytes, at most 100 are taken"


def test_a_large_page_in_unusual_form_is_read_after_a_while() -> None:
    known = cache()
    page = "".join(f'vllm:a{{x="{number:0100d}",}} 1\n' for number in range(4000))
    for _ in range(3):
        try:
            assert len(page_of(page, known).series) == 4000
            break
        except ExpositionError as error:
            assert error.reason is Reason.TOO_LARGE  # noqa: PT017
    else:
        pytest.fail("refused for good")


def test_a_known_page_is_read_at_least_twenty_times_as_fast_as_by_the_library() -> None:
    assert compare()["warm_gain"] > 20


SYMBOLS = [
    "{",
    "}",
    '"',
    "\\",
    "=",
    ",",
    " ",
    "\t",
    "\n",
    "\r\n",
    "#",
    "_",
    "<",
    "\0",
    "\ufeff",
    "\x85",
    "\u2028",
]
WORDS = [
    "vllm:a",
    "vllm_",
    "1",
    "e",
    "x",
    "é",
    "NaN",
    "# EOF",
    "__name__",
    '{"vllm:a"}',
    '{x="1"}',
    " # {} 1",
]
PIECES = st.sampled_from(SYMBOLS + WORDS)


@given(st.one_of(st.binary(), st.text(), st.lists(PIECES).map("".join)), st.booleans())
@example('{""} 1', False)
@example('vllm:a{" "="1"} 1', False)
@example('vllm:a{"" ="1"} 1', False)
@settings(max_examples=600, deadline=None)
def test_any_bytes_are_a_page_or_an_exposition_error(content: bytes | str, warm: bool) -> None:
    body = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    known = cache()
    if warm:
        page_of('vllm:a 1\nvllm:a{x="1"} 1\n', known)
    try:
        first = parse(body, known)
    except ExpositionError:
        refused = refusal(body, known)
        assert refused.reason in {Reason.PARSE, Reason.EMPTY, Reason.UTF8, Reason.TOO_LARGE}
        assert refused.detail.isprintable()
        return
    second = parse(body, known)
    assert second.series is first.series
    assert list(map(str, second.values)) == list(map(str, first.values))
    assert len(first.series) == len(first.values) == len(set(first.series))
    assert all(math.isfinite(value) or math.isnan(value) for value in first.values)
    assert all(type(value) is float for value in first.values)


LABEL_VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
LABELS = st.dictionaries(st.from_regex("[a-zA-Z][a-zA-Z0-9_]{0,5}", fullmatch=True), LABEL_VALUES, max_size=4)


@given(LABELS, st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=300, deadline=None)
def test_any_labels_written_by_the_rules_are_read_back(labels: dict[str, str], value: float) -> None:
    escaped = {
        name: text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        for name, text in labels.items()
    }
    inside = ",".join(f'{name}="{text}"' for name, text in escaped.items())
    assert values_of(f"vllm:a{{{inside}}} {value!r}\n") == [("vllm:a", labels, value)]


def whatever_comes_of(content: bytes, known: SeriesCache) -> object:
    """The values by series, or how the page is refused."""
    try:
        page = parse(content, known)
    except ExpositionError as error:
        return error.reason, error.detail
    # NaN is unlike itself.
    return {series: repr(value) for series, value in told(page).items()}, page.notes, page.strangers


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *(
                    "vllm:a 1",
                    "vllm:a 12.5",
                    "vllm:a NaN",
                    "vllm:a 1_0",
                    "vllm:a 1 1700000000",
                    "vllm:a x",
                    "vllm:a  1",
                ),
                *('vllm:b{c="d e"} 1', 'vllm:b{c="d"} 2', 'vllm:b{c="d"} 3\r', "vllm:a 1 # {} 2"),
                *(
                    "other 1",
                    "other 2",
                    "other{} 1",
                    "# HELP vllm:a Some text.",
                    "# HELP vllm:a Other text.",
                    "",
                    " ",
                ),
            ]
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(
        ["vllm:a 12.5", "vllm:a 3 4", "vllm:a y", "vllm:a -1", "other 7", 'vllm:b{c="d"} 9', "vllm:c 1", ""]
    ),
    st.sampled_from(["", "\n", "\n\n"]),
)
def test_a_page_of_a_known_form_reads_as_one_seen_for_the_first_time(
    lines: list[str], other: str, end: str
) -> None:
    known = cache()
    for _ in range(3):
        whatever_comes_of("\n".join([*lines, ""]).encode(), known)
    for place in range(len(lines) + 1):
        body = "\n".join([*lines[:place], other, *lines[place + 1 :]]).encode() + end.encode()
        assert whatever_comes_of(body, known) == whatever_comes_of(body, cache())
