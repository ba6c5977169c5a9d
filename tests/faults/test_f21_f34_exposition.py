"""What a page can hold that is no honest metrics page, and what becomes of it at this stage."""

import math
import time
import tracemalloc

import pytest

from tests.servers import Server, answer, serving
from watchdog.http.endpoint import Endpoint
from watchdog.model import Page, Reason
from watchdog.scrape.exposition import ExpositionError, SeriesCache, parse
from watchdog.scrape.fetch import Fetcher, FetchLimits


def wanted(name: str) -> bool:
    return name.startswith("vllm:")


def page_of(text: str | bytes, known: SeriesCache | None = None) -> Page:
    body = text.encode() if isinstance(text, str) else text
    return parse(body, SeriesCache(wanted) if known is None else known)


def refusal(text: str | bytes) -> ExpositionError:
    with pytest.raises(ExpositionError) as caught:
        page_of(text)
    return caught.value


BAD = pytest.mark.parametrize(
    "bad",
    [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\0"],
    ids=["byte", "half", "high surrogate", "low surrogate", "overlong", "beyond", "NUL"],
)
FRAMES = pytest.mark.parametrize(
    "frame", [b'vllm:a{x="%s"} 1\n', b"# HELP vllm:a %s\n", b"vllm:a 1%s\n", b"%s"]
)


@BAD
@FRAMES
def test_f21_a_line_that_is_not_utf8_text_costs_itself_only_and_is_told(bad: bytes, frame: bytes) -> None:
    known = SeriesCache(wanted)
    # The line it is remembered by when it is good again is not the empty one of before.
    for line, notes in ((frame % bad, ("line 2 is not UTF-8 text and was skipped",)), (b"vllm:a 7\n", ())):
        page = page_of(b"vllm:good 1\n" + line + b"\nvllm:last 2\n", known)
        values = {series.name: value for series, value in zip(page.series, page.values, strict=True)}
        assert values.items() >= {"vllm:good": 1.0, "vllm:last": 2.0}.items()
        assert page.notes == notes
        assert ("vllm:a" in values) is (not notes)
    page = page_of(b"vllm:good 1\n" * 3 + 2 * (frame % bad + b"\n"))
    assert page.notes[0].startswith("2 lines are not UTF-8 text and were skipped, the first is line 4")


@BAD
def test_f21_a_page_of_which_most_is_not_utf8_text_fails(bad: bytes) -> None:
    for body in (
        b'vllm:a{x="%s"} 1\n' % bad,
        b"# HELP vllm:a %s\n" % bad,
        b'# HELP vllm:a A.\nvllm:good 1\nvllm:a{x="%s"} 1\nvllm:b{x="%s"} 1\n' % (bad, bad),
    ):
        assert refusal(body).reason is Reason.UTF8
    error = refusal(b"vllm:good 1\n" + b'vllm:a{x="%s"} 1\n' % bad * 2)
    assert error.detail.startswith("line 2: ")
    assert error.detail.endswith("as on 2 of 3 lines with values")


def test_f21_utf16_is_not_utf8() -> None:
    assert refusal("vllm:a 1\n".encode("utf-16")).reason is Reason.UTF8


def test_f22_of_duplicate_series_the_first_wins_and_they_are_counted() -> None:
    page = page_of('vllm:a{x="1"} 1\nvllm:b 9\nvllm:a{x="1"} 2\nvllm:a{x="1"} 3\n')
    assert page.values == (1.0, 9.0)
    assert page.notes == ("2 repeated series: the first value of each was taken",)


@pytest.mark.parametrize(
    "text",
    ["NaN", "nan", "+Inf", "-Inf", "Inf", "Infinity", "1e999", "-1e999", "9" * 400, "-" + "9" * 400],
    ids=lambda text: text[:8],
)
@pytest.mark.parametrize("known", [False, True])
def test_f23_a_value_that_is_no_finite_number_is_unknown(text: str, known: bool) -> None:
    remembered = SeriesCache(wanted)
    if known:
        page_of("vllm:a 1\nvllm:b 2\n", remembered)
    page = page_of(f"vllm:a {text}\nvllm:b 2\n", remembered)
    assert math.isnan(page.values[0])
    assert page.values[1] == 2.0


def test_f23_sums_that_overflow_make_no_value_unknown() -> None:
    assert page_of("vllm:a 1.7e308\nvllm:b 1.7e308\n").values == (1.7e308, 1.7e308)


def test_f24_f25_f26_a_histogram_is_passed_on_as_it_is() -> None:
    """That it makes no sense is for the quantile to find; here every bucket is data."""
    buckets = {"0.1": 5, "abc": -1, "": 2, "1.0": 3}
    text = "".join(f'vllm:h_bucket{{le="{bound}"}} {count}\n' for bound, count in buckets.items())
    page = page_of(text + "vllm:h_sum 0\nvllm:h_count 0\n")
    assert [series.labels.get("le") for series in page.series] == [*buckets, None, None]
    assert page.values == (5.0, -1.0, 2.0, 3.0, 0.0, 0.0)


@pytest.mark.parametrize("stamp", ["0", "-1", "1", "1795972459", "1795972459000", "99999999999999", "1.5e9"])
def test_f27_timestamps_are_ignored(stamp: str) -> None:
    known = SeriesCache(wanted)
    for value in (1.0, 2.0):
        page = page_of(f'vllm:a{{x="1"}} {value} {stamp}\n', known)
        assert page.values == (value,)
    assert len(known) == 1


OPENMETRICS = """\
# HELP vllm:prompt_tokens Number of prefill tokens processed
# TYPE vllm:prompt_tokens counter
# UNIT vllm:prompt_tokens tokens
vllm:prompt_tokens_total{engine="0"} 34567503 # {trace_id="a } b"} 1.0 1795972459.123
vllm:prompt_tokens_created{engine="0"} 1.7601e+09
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.25"} 10 # {} 0.2
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 12 1795972459.1 # {trace_id="x"} 3
vllm:time_to_first_token_seconds_count{engine="0"} 12 1795972459.123
# EOF
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_f28_openmetrics_body_reads_like_the_text_form(end: str) -> None:
    known = SeriesCache(wanted)
    for _ in range(3):
        page = page_of(OPENMETRICS.replace("\n", end), known)
        assert page.openmetrics
        assert [series.name.removeprefix("vllm:") for series in page.series] == [
            "prompt_tokens_total",
            "time_to_first_token_seconds_bucket",
            "time_to_first_token_seconds_bucket",
            "time_to_first_token_seconds_count",
        ]
        assert page.values == (34567503.0, 10.0, 12.0, 12.0)
    # What an exemplar says moves with each scrape and must not be remembered.
    assert len(known) < 20


@pytest.mark.parametrize(
    "prefix", ["vllm:", "vllm_", "ray_vllm_", "ray_vllm:", "kserve_vllm_", "kserve_vllm:"]
)
def test_f29_prefixes_in_front_of_vllm_are_one(prefix: str) -> None:
    [series] = page_of(f'{prefix}num_requests_running{{engine="0"}} 1\n').series
    assert series.name == "vllm:num_requests_running"


@pytest.mark.parametrize(
    "line",
    [
        'vllm:a{x="' + "a" * 5_000_000 + '"} 1',
        "vllm:a{" + ",".join(f'l{number}="v"' for number in range(16_000)) + "} 1",
        'vllm:a{x="' + '\\"' * 256_000 + '"} 1',
        'vllm:a{x="' + '\\"' * 30_000 + '"} 1',
        'vllm:a{x="' + "\\\\" * 30_000 + '"} 1',
        'vllm:a{x="' + "a" * 60_000,
        'vllm:a{x="' + '\\"' * 30_000,
        "vllm:a{" + 'x="a",' * 10_000,
        "vllm:a{" + " " * 60_000 + "} 1",
        "vllm:a 1" + "0" * 65_000 + "x",
        "#" * 5_000_000,
    ],
    ids=[
        "5 MB", "16k labels", "512 kB of quotes", "quotes", "backslashes", "open value", "open quotes",
        "open labels", "spaces", "digits", "comment",
    ],
)  # fmt: skip
def test_f30_a_line_too_long_or_never_ending_is_refused_at_once(line: str) -> None:
    body = f"vllm:good 1\n{line}\n".encode()
    took = []
    for _ in range(3):
        began = time.process_time()
        assert refusal(body).reason in {Reason.TOO_LARGE, Reason.PARSE}
        took.append(time.process_time() - began)
    assert min(took) < 0.05


def test_f31_a_million_series_are_refused_at_once() -> None:
    body = b"".join(b'vllm:a{x="%d"} 1\n' % number for number in range(600_000))
    began = time.process_time()
    error = refusal(body)
    assert time.process_time() - began < 1.0
    assert error.reason is Reason.TOO_LARGE


def test_f31_one_series_more_than_the_limit_is_refused() -> None:
    known = SeriesCache(wanted, max_series=1000)
    body = "".join(f'other{{x="{number}"}} 1\n' for number in range(1000))
    assert page_of(body, known).series == ()
    with pytest.raises(ExpositionError, match="1001 series, at most 1000"):
        page_of(body + "vllm:a 1\n", known)


def test_f31_a_new_model_name_at_each_scrape_leaves_memory_flat() -> None:
    known = SeriesCache(wanted)
    for number in range(4000):
        page_of(f'vllm:a{{model_name="m{number}"}} 1\n', known)
    tracemalloc.start()
    for number in range(4000, 8000):
        page_of(f'vllm:a{{model_name="m{number}"}} 1\n', known)
    grown_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # As much was forgotten as was learned: what is alive is at most two generations.
    assert len(known) < 2200
    assert grown_bytes < 3_000_000


@pytest.mark.parametrize(
    "value",
    [
        "\n",
        '"',
        "\x1b[31m",
        "{{ 7*7 }}",
        "<script>alert(1)</script>",
        "\u202e",
        "a" * 16_000,
        "%s{0}$(x)",
        "\r",
    ],
    ids=["newline", "quote", "ANSI", "template", "script", "right to left", "long", "formats", "return"],
)
def test_f32_a_label_value_is_data_whatever_it_says(value: str) -> None:
    written = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    [series] = page_of(f'vllm:a{{model_name="{written}",engine="0"}} 1\n').series
    assert series.labels == {"model_name": value, "engine": "0"}


def test_f32_a_malformed_line_with_control_characters_is_told_on_one_plain_line() -> None:
    detail = refusal('vllm:a{x="\x1b[31m\r\x85\u2028<script>"} y\n').detail
    assert detail.isascii()
    assert detail.isprintable()


def test_f33_labels_that_sound_like_ours_are_data_and_reserved_ones_are_dropped() -> None:
    labels = 'target="t",rule="r",severity="critical",alertname="A",__name__="forged",__x__="y"'
    known = SeriesCache(wanted)
    for line in [f"vllm:a{{{labels}}} 1", f'vllm:a{{ {labels} , engine="\\"0\\"" }} 1']:
        [series] = page_of(line + "\n", known).series
        assert series.name == "vllm:a"
        assert {"target", "rule", "severity", "alertname"} <= set(series.labels)
        assert not any(name.startswith("__") for name in series.labels)


def test_f34_types_and_their_order_do_not_matter() -> None:
    lines = ['vllm:a{x="1"} 1', "vllm:b 2"]
    shuffles = [
        [*lines],
        ["# TYPE vllm:a counter", *lines, "# TYPE vllm:a gauge", "# HELP vllm:a late"],
        [
            "# TYPE vllm:a nonsense",
            "# TYPE",
            "# HELP",
            "#",
            "# TYPE vllm:a",
            lines[0],
            "",
            "   ",
            lines[1],
            "",
        ],
        ["#TYPE no space", "#", *lines, "# EOF in the middle", "  # indented"],
    ]
    known = SeriesCache(wanted)
    pages = [page_of(end.join(shuffle) + end, known) for shuffle in shuffles for end in ("\n", "\r\n")]
    assert all(page.values == (1.0, 2.0) for page in pages)
    assert all(page.series is pages[0].series for page in pages)


def test_f34_a_byte_order_mark_is_stripped_and_told() -> None:
    page = page_of("\ufeffvllm:a 1\n")
    assert page.values == (1.0,)
    assert page.notes == ("a byte order mark at the start of the page was skipped",)
    assert refusal("vllm:a 1\n\ufeffvllm:b 1\n").reason is Reason.PARSE


def test_f10_a_proxy_error_page_with_status_200_fails_to_parse() -> None:
    html = b"<html>\n<head><title>502 Bad Gateway</title></head>\n</html>\n"
    with Server(serving(answer(html, "200 OK", "Content-Type: text/html"))) as server:
        fetcher = Fetcher(Endpoint(server.url), FetchLimits())
        scrape = fetcher.fetch(0.0, 0.0)
        fetcher.close()
    error = refusal(scrape.body)
    assert error.reason is Reason.PARSE
    assert "HTML page" in error.detail
