"""The clause language: what it refuses, what it means, and that unknown never turns into yes."""

import math
import timeit
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watchdog.errors import ExpressionError
from watchdog.history.number import AtLeast, AtMost
from watchdog.language.expression import Expression, parse, render
from watchdog.model import Truth

SIGNALS = frozenset({"a", "b", "c", "kv_usage_ratio", "waiting_last"})
PARAMETERS = {"limit": 0.75, "two": 2.0}
YES, NO, UNKNOWN = Truth.YES, Truth.NO, Truth.UNKNOWN
Values = dict[str, float | None]
NOTHING: Values = {}


def truth(text: str, **values: float | None) -> Truth:
    return parse(text, SIGNALS, PARAMETERS).truth(values.get)


def number(text: str, **values: float | None) -> float | None:
    return parse(text, SIGNALS, PARAMETERS).number(values.get)


def refused(text: str) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        parse(text, SIGNALS, PARAMETERS)
    return caught.value


REFUSED = [
    ("", 0, "empty"),
    (" \n\t", 0, "empty"),
    ("a.b > 0", 1, "`.` is not part"),
    ("a.__class__ > 0", 1, "`.` is not part"),
    ("__class__ > 0", 0, "no signal is named `__class__`"),
    ("open(a)", 0, "`open` is not a function"),
    ("a(3) > 0", 0, "`a` is not a function"),
    ("9**9**9 > a", 1, "`**` is not part"),
    ("a // 2 > 0", 2, "`//` is not part"),
    ("a % 2 > 0", 2, "`%` is not part"),
    ("a > 'x'", 4, "`'` is not part"),
    ('a > "x"', 4, '`"` is not part'),
    ("a & b", 2, "`&` is not part"),
    ("a > 0 && b > 0", 6, "`&&` is not part"),
    ("a = 1", 2, "`=` is not part"),
    ("a <> 1", 2, "`<>` is not part"),
    ("a[0] > 1", 1, "`[` is not part"),
    ("lambda: a", 6, "`:` is not part"),
    ("\u0430 > 1", 0, "'\\u0430' is not ASCII"),
    ("a > \u0661", 4, "is not ASCII"),
    ("a > 1\x00", 5, "`\\x00` is not part"),
    ("a > 5s", 4, "`5s` is not a number"),
    ("a > 1_000", 4, "`1_` is not a number"),
    ("a > 0x10", 4, "`0x` is not a number"),
    ("a > 1.2.3", 4, "`1.2.` is not a number"),
    ("a > 012", 4, "`012` starts with a zero"),
    ("a > 1e999", 4, "too large"),
    ("a > " + "9" * 400, 4, "too large"),
    ("a >", 3, "ends where a value"),
    ("a > 1 2", 6, "`2` is not expected"),
    ("a > 1)", 5, "`)` is not expected"),
    ("(a > 1", 6, "`)` is missing"),
    ("(a > 1, b", 6, "`,` is not expected"),
    ("()", 1, "`)` is not expected"),
    ("and a", 0, "`and` is not expected"),
    ("a > not b", 4, "`not` is not expected"),
    ("min(a)", 0, "`min` wants two numbers"),
    ("min > 1", 0, "`min` wants its arguments"),
    ("max(a, b > 1)", 7, "a number is expected"),
    ("known(3)", 6, "`known` wants the name"),
    ("known(limit)", 6, "no signal is named `limit`"),
    ("known(a + 1)", 8, "`+` is not expected"),
    ("(a < b) < c", 1, "a number is expected"),
    ("(a < b) + 1", 1, "a number is expected"),
    ("-(a < b)", 2, "a number is expected"),
    ("a and b > 0", 0, "a yes or no is expected"),
    ("b > 0 or a", 9, "a yes or no is expected"),
    ("not a", 4, "a yes or no is expected"),
    ("(" * 21 + "a" + ")" * 21, 21, "nested deeper"),
    ("-" * 30 + "a", 21, "nested deeper"),
    ("not " * 30 + "a > 0", 84, "nested deeper"),
    ("a > 0" + " " * 500, 500, "longer than 500"),
]


@pytest.mark.parametrize(("text", "column", "message"), REFUSED)
def test_a_text_outside_the_grammar_is_refused_at_its_column(text: str, column: int, message: str) -> None:
    error = refused(text)
    assert message in error.message
    assert error.column == column


def test_an_unknown_name_is_told_with_the_nearest_known_one() -> None:
    error = refused("kv_usge_ratio > limit")
    assert (error.column, error.hint) == (0, "did you mean `kv_usage_ratio`?")
    assert refused("a > limt").hint == "did you mean `limit`?"
    assert refused("zzzzzz > 1").hint == ""


@given(st.text(max_size=600))
def test_any_text_raises_nothing_but_an_expression_error(text: str) -> None:
    check_refused_or_read(text)


PIECES = [
    "a",
    "b",
    "limit",
    "1",
    "0.5",
    "1e3",
    "(",
    ")",
    "+",
    "-",
    "*",
    "/",
    "<",
    "<=",
    ">",
    "==",
    "!=",
    "and",
]
PIECES += ["or", "not", "min(", "max(", "known(", ",", " ", "\n", ".", "**", "'", "0", "__import__", "\u03b1"]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map(" ".join))
def test_any_row_of_words_raises_nothing_but_an_expression_error(text: str) -> None:
    check_refused_or_read(text)


def check_refused_or_read(text: str) -> None:
    column = 0
    try:
        expression = parse(text, SIGNALS, PARAMETERS)
    except ExpressionError as error:
        column = error.column
    else:
        (expression.truth if expression.is_clause else expression.number)({"a": 1.0}.get)
        render(expression, {"a": 1.0}.get)
    assert 0 <= column <= len(text)


NUMBERS = st.recursive(
    st.sampled_from(["a", "b", "c", "limit", "two", "0", "1", "0.5", "3", "1e3"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda parts: f"({' '.join(parts)})"),
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(" ".join),
        inner.map(lambda text: f"-({text})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(
            lambda parts: "{}({}, {})".format(*parts)
        ),
    ),
    max_leaves=6,
)
COMPARISON = st.tuples(NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBERS).map(" ".join)
CHAINED = st.tuples(COMPARISON, st.sampled_from(["<", ">", "<="]), NUMBERS).map(" ".join)
CLAUSES = st.recursive(
    COMPARISON | CHAINED,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join),
        inner.map(lambda text: f"not ({text})"),
        inner.map(lambda text: f"not {text}"),
        inner.map(lambda text: f"({text})"),
    ),
    max_leaves=4,
).filter(lambda text: len(text) <= 500)
PLAIN = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, 0.5, 2.0, 0.75, -1.0])


def values_of(each: st.SearchStrategy[float | None]) -> st.SearchStrategy[Values]:
    return st.fixed_dictionaries({"a": each, "b": each, "c": each})


def read(text: str) -> Expression | None:
    try:
        return parse(text, SIGNALS, PARAMETERS)
    except ExpressionError as error:
        if "nested" not in error.message:
            raise
        return None


@pytest.mark.slow
@given(CLAUSES, values_of(PLAIN))
@settings(max_examples=150)
def test_known_values_mean_what_they_mean_in_python(text: str, values: Values) -> None:
    clause = read(text)
    try:
        expected = YES if eval(text, {"min": min, "max": max}, {**PARAMETERS, **values}) else NO
    except ZeroDivisionError:
        return
    if clause and clause.truth(values.get) is not UNKNOWN:
        assert clause.truth(values.get) is expected


@pytest.mark.slow
@given(CLAUSES, values_of(st.none() | PLAIN), values_of(PLAIN))
@settings(max_examples=150)
def test_what_is_answered_without_a_value_stays_so_whatever_the_value(
    text: str, partial: Values, others: Values
) -> None:
    clause = read(text)
    if clause is None or (before := clause.truth(partial.get)) is UNKNOWN:
        return
    whole = {name: others[name] if value is None else value for name, value in partial.items()}
    assert clause.truth(whole.get) is before


@pytest.mark.slow
@given(CLAUSES, values_of(PLAIN), values_of(PLAIN), st.sets(st.sampled_from("abc")))
@settings(max_examples=300)
def test_what_is_answered_of_a_bound_holds_for_every_value_within_it(
    text: str, values: Values, apart: Values, bounds: set[str]
) -> None:
    clause = read(text)
    if clause is None:
        return
    known, real = dict(values), dict(values)
    for name in bounds:
        value, distance = values[name] or 0.0, apart[name] or 0.0
        known[name] = AtLeast(value) if distance > 0 else AtMost(value)
        real[name] = value + distance
    if (said := clause.truth(known.get)) is not UNKNOWN:
        assert clause.truth(real.get) in {said, UNKNOWN}


ANYTHING = (
    st.none()
    | st.floats()
    | st.floats().map(AtLeast)
    | st.floats().map(AtMost)
    | st.integers()
    | st.sampled_from([10**400, -(10**308)])
)


@pytest.mark.slow
@given(CLAUSES | NUMBERS, values_of(ANYTHING))
@settings(max_examples=150)
def test_evaluation_is_total(text: str, values: Values) -> None:
    expression = read(text)
    if expression is None:
        return
    if expression.is_clause:
        assert expression.truth(values.get) in Truth
    else:
        result = expression.number(values.get)
        assert result is None or math.isfinite(result)
    assert render(expression, values.get).clause == text


TRUTHS = st.sampled_from(["a > 0", "b > 0", "c > 0", "1 > 0", "0 > 1", "known(a)"])


@pytest.mark.slow
@given(TRUTHS, TRUTHS, TRUTHS, values_of(st.sampled_from([None, 1.0, -1.0])))
def test_the_laws_of_three_valued_logic_hold(p: str, q: str, r: str, values: Values) -> None:
    def same(left: str, right: str) -> bool:
        return parse(left, SIGNALS).truth(values.get) is parse(right, SIGNALS).truth(values.get)

    assert same(f"not ({p} and {q})", f"not {p} or not {q}")
    assert same(f"not ({p} or {q})", f"not {p} and not {q}")
    assert same(f"not not {p}", p)
    assert same(f"{p} and {q}", f"{q} and {p}")
    assert same(f"{p} or {q}", f"{q} or {p}")
    assert same(f"{p} and ({q} or {r})", f"{p} and {q} or {p} and {r}")
    assert same(f"{p} and ({q} and {r})", f"{p} and {q} and {r}")
    assert same(f"{p} or {p}", p)
    assert same(f"{p} and ({p} or {q})", p)


@pytest.mark.parametrize(
    ("text", "a", "b", "expected"),
    [
        ("a > 0 and b > 0", 1.0, None, UNKNOWN),
        ("a > 0 and b > 0", -1.0, None, NO),
        ("b > 0 and a > 0", -1.0, None, NO),
        ("a > 0 or b > 0", 1.0, None, YES),
        ("b > 0 or a > 0", 1.0, None, YES),
        ("a > 0 or b > 0", -1.0, None, UNKNOWN),
        ("not b > 0", 1.0, None, UNKNOWN),
        ("known(a)", 0.0, None, YES),
        ("known(b)", 0.0, None, NO),
        ("not known(b)", 0.0, None, YES),
        ("known(a)", math.nan, None, NO),
        ("known(a)", math.inf, None, NO),
        ("known(a) and a > 0", None, None, NO),
        ("b == b", 1.0, None, UNKNOWN),
        ("a / b > 0", 1.0, 0.0, UNKNOWN),
        ("a / b == a / b", 0.0, 0.0, UNKNOWN),
        ("a != a", math.nan, None, UNKNOWN),
        ("a > 0", math.inf, None, UNKNOWN),
        ("a * a > 0", 1e200, None, UNKNOWN),
        ("min(a, b) > 0", 1.0, None, UNKNOWN),
        ("max(a, b) > 0", 1.0, None, UNKNOWN),
        ("1 / 0 > 0", 1.0, 1.0, UNKNOWN),
        ("0 < a < 5", 3.0, None, YES),
        ("0 < a < 5", 5.0, None, NO),
        ("0 < a < b", 0.0, None, NO),
        ("0 < a < b", 1.0, None, UNKNOWN),
        ("a > limit", 0.75, None, NO),
        ("a >= limit", 0.75, None, YES),
        ("limit < a", 0.76, None, YES),
        ("a > two * limit - 0.5", 1.01, None, YES),
    ],
)
def test_a_clause_answers(text: str, a: float | None, b: float | None, expected: Truth) -> None:
    assert truth(text, a=a, b=b) is expected


@pytest.mark.parametrize(
    ("sign", "below", "equal", "above"),
    [
        (">", UNKNOWN, UNKNOWN, YES),
        (">=", UNKNOWN, YES, YES),
        ("<", UNKNOWN, NO, NO),
        ("<=", UNKNOWN, UNKNOWN, NO),
        ("==", UNKNOWN, UNKNOWN, NO),
        ("!=", UNKNOWN, UNKNOWN, YES),
    ],
)
def test_a_lower_bound_answers_where_it_can(sign: str, below: Truth, equal: Truth, above: Truth) -> None:
    mirrored = {">": "<", ">=": "<=", "<": ">", "<=": ">="}.get(sign, sign)
    for bound, expected in ((1.0, below), (2.0, equal), (3.0, above)):
        assert truth(f"a {sign} 2", a=AtLeast(bound)) is expected
        assert truth(f"2 {mirrored} a", a=AtLeast(bound)) is expected
        assert truth(f"a {sign} b", a=AtLeast(bound), b=2.0) is expected
        assert truth(f"a {sign} b", a=AtLeast(bound), b=AtLeast(2.0)) is UNKNOWN
        # An upper bound is a lower bound with all signs turned.
        assert truth(f"a {mirrored} -2", a=AtMost(-bound)) is expected
        assert truth(f"-2 {sign} a", a=AtMost(-bound)) is expected
        assert truth(f"a {sign} b", a=AtMost(bound), b=AtMost(2.0)) is UNKNOWN


def test_bounds_that_face_away_from_each_other_are_compared() -> None:
    least, most = AtLeast(5.0), AtMost(3.0)
    for text, expected in (("a > b", YES), ("a <= b", NO), ("a == b", NO), ("b != a", YES), ("b < a", YES)):
        assert truth(text, a=least, b=most) is expected
    assert truth("a > b", a=least, b=AtMost(5.0)) is UNKNOWN
    assert truth("a >= b", a=least, b=AtMost(5.0)) is YES
    assert truth("a < b", a=most, b=AtMost(9.0)) is UNKNOWN


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a * 2", AtLeast(20)),
        ("2 * a", AtLeast(20)),
        ("a / 2", AtLeast(5)),
        ("a + 1", AtLeast(11)),
        ("1 + a", AtLeast(11)),
        ("max(a, 3)", AtLeast(10)),
        ("max(a, 30)", AtLeast(30)),
        ("min(a, 30)", AtLeast(10)),
        ("min(a, 3)", 3.0),
        ("a - 1", AtLeast(9)),
        ("1 - a", AtMost(-9)),
        ("-a", AtMost(-10)),
        ("2 / a", AtMost(0.2)),
        ("-2 / a", AtLeast(-0.2)),
        ("0 / a", 0.0),
        ("a / 0", None),
        ("a * -2", AtMost(-20)),
        ("a / -2", AtMost(-5)),
        ("a * 0", 0.0),
        ("a * a", AtLeast(100)),
        ("a + a", AtLeast(20)),
        ("a - a", None),
        ("a / a", None),
        ("1 / (a - 10)", None),  # which may be zero
        ("1 / (a - 11)", None),
        ("a * (a - 11)", None),
        ("(a - 11) * 2", AtLeast(-2)),
        ("a * 1e308", None),
    ],
)
def test_arithmetic_keeps_a_bound_or_knows_nothing(text: str, expected: float | None) -> None:
    result = number(text, a=AtLeast(10))
    assert result == expected
    assert type(result) is type(expected)


def test_signs_bind_as_in_arithmetic() -> None:
    assert number("1 + 2 * 3") == 7
    assert number("8 - 4 - 2") == 2
    assert number("8 / 4 / 2") == 1
    assert number("-a * 2", a=3.0) == -6
    assert number("2 - -a", a=3.0) == 5
    assert number("min(a, b, 2)", a=3.0, b=5.0) == 2
    assert truth("not a > 1 and b > 1", a=0.0, b=2.0) is YES
    assert truth("a > 1 or b > 1 and c > 1", a=2.0, b=0.0, c=0.0) is YES


def test_a_clause_and_a_number_are_told_apart() -> None:
    clause, plain = parse("a > 1", SIGNALS), parse("(a + 1)", SIGNALS)
    assert clause.is_clause
    assert not plain.is_clause
    with pytest.raises(TypeError):
        clause.number(NOTHING.get)
    with pytest.raises(TypeError):
        plain.truth(NOTHING.get)


def test_names_are_the_signals_in_the_order_written_once() -> None:
    expression = parse("b > limit and known(c) and a + b > two", SIGNALS, PARAMETERS)
    assert expression.names == ("b", "c", "a")
    assert dict(expression.parameters) == PARAMETERS
    assert expression.missing({"b": 1.0, "a": math.nan}.get) == ("c", "a")


def test_parameters_are_bound_at_reading() -> None:
    assert parse("a > limit", SIGNALS, {"limit": 5}).truth({"a": 4.0, "limit": 0.0}.get) is NO
    assert parse("a > limit", SIGNALS, {"limit": 5}) != parse("a > limit", SIGNALS, {"limit": 6})
    assert parse("a > limit", SIGNALS, {"limit": 5}) == parse("a > limit", SIGNALS, {"limit": 5})


@pytest.mark.parametrize(
    ("text", "values", "shown"),
    [
        ("kv_usage_ratio > 0.75", {"kv_usage_ratio": 0.98}, "kv_usage_ratio (0.98) > 0.75"),
        ("a > two * limit", {"a": 3.0}, "a (3) > two (2) * limit (0.75)"),
        ("a>0 and b<5", {"a": 12345.6}, "a (12346)>0 and b (unknown)<5"),
        ("a >\n  0", {"a": 1.0}, "a (1) > 0"),
        ("known(a) and a > 2", {"a": AtLeast(10)}, "known(a) and a (>= 10) > 2"),
    ],
)
def test_a_clause_is_shown_with_its_values(text: str, values: Values, shown: str) -> None:
    evidence = render(parse(text, SIGNALS, PARAMETERS), values.get)
    assert evidence.text == shown
    assert evidence.clause == text


@pytest.mark.parametrize(
    ("text", "values", "shown"),
    [
        ("a > 1 or b > 1", {"a": 0.0, "b": 2.0}, "b (2) > 1"),
        ("a > 1 or b > 1", {"a": 3.0, "b": 2.0}, "a (3) > 1 or b (2) > 1"),
        ("a > 1 or b > 1", {"a": 3.0}, "a (3) > 1"),
        ("a > 1 or b > 1", {"a": 1.0}, "a (1) > 1 or b (unknown) > 1"),
        (
            "kv_usage_ratio > 0 and (a > 1 or b > 1)",
            {"kv_usage_ratio": 0.5, "b": 2.0},
            "kv_usage_ratio (0.5) > 0 and b (2) > 1",
        ),
        (
            "kv_usage_ratio > 0 and (a > 1 or b > 1)",
            {"kv_usage_ratio": 0.5, "a": 2.0, "b": 2.0},
            "kv_usage_ratio (0.5) > 0 and (a (2) > 1 or b (2) > 1)",
        ),
        (
            "(known(a) and (a > 1 or (known(b) and b > 1))) or kv_usage_ratio > 0",
            {"b": 2.0, "a": 1.0},
            "b (2) > 1",
        ),
        ("known(a) or b > 1", {"a": 2.0}, "known(a)"),
        ("a > 5 or (a > 0 and (b > 5 or b > 1 or b > 0))", {"a": 1.0, "b": 2.0}, "a (1) > 0 and b (2) > 1"),
        ("not (a > 5 or b > 5)", {"a": 2.0, "b": 1.0}, "not (a (2) > 5 or b (1) > 5)"),
        ("0 < a < 2 or b > 1", {"a": 1.0}, "0 < a (1) < 2"),
    ],
)
def test_of_alternatives_those_are_shown_that_hold(text: str, values: Values, shown: str) -> None:
    evidence = render(parse(text, SIGNALS, PARAMETERS), values.get)
    assert evidence.text == shown
    assert evidence.clause == text


def test_evidence_holds_the_values_by_name() -> None:
    evidence = render(parse("a + b > limit", SIGNALS, PARAMETERS), {"a": 1.0}.get)
    assert dict(evidence.values) == {"a": 1.0, "b": None, "limit": 0.75}


def test_a_bound_formats_and_prints_as_one() -> None:
    assert f"{AtMost(2.5):.2f}" == "<= 2.50"
    assert str(AtMost(2.5)) == "<= 2.5"
    assert repr(AtMost(2.5)) == "AtMost(2.5)"
    assert f"{AtLeast(2.5):.2f}" == ">= 2.50"
    assert str(AtLeast(2.5)) == ">= 2.5"
    assert repr(AtLeast(2.5)) == "AtLeast(2.5)"


def test_the_longest_chain_is_evaluated() -> None:
    assert number("+".join(["1"] * 249)) == 249
    assert number("+".join(["a"] * 249), a=1.0) == 249
    assert truth(" or ".join(["a>1"] * 70), a=2.0) is YES


def test_two_hundred_and_fifty_clauses_cost_well_under_a_scrape() -> None:
    texts = ["a > limit", "b > 2 * limit", "a > 0.5 and b < 5", "a / b > 0.1", "a > c"]
    clauses = [parse(text, SIGNALS, PARAMETERS) for text in texts] * 50
    lookup: Callable[[str], float | None] = {"a": 2.0, "b": 3.0, "c": 1.0}.get
    once = min(timeit.repeat(lambda: [clause.truth(lookup) for clause in clauses], number=1, repeat=50))
    assert once < 0.003  # some 0.15 ms on an idle core


@pytest.mark.parametrize("piece", ["(a > 0)", "not a > 0", "min(a,1)>0", "a > -1", "known(a)"])
def test_side_by_side_is_not_nested(piece: str) -> None:
    assert truth(" and ".join([piece] * 25), a=1.0) is (NO if piece.startswith("not") else YES)


@pytest.mark.parametrize(
    ("before", "inner", "after"),
    [
        ("(", "a > 0", ")"),
        ("not ", "a > 0", ""),
        ("-", "a", " > 0"),
        ("max(1, ", "a", ") > 0"),
    ],
)
def test_twenty_levels_are_read_and_one_more_is_not(before: str, inner: str, after: str) -> None:
    tail = after if ")" in after else ""
    close, compare = (tail[:1], after.removeprefix(")"))
    for depth, fits in ((20, True), (21, False)):
        text = before * depth + inner + close * depth + compare
        if fits:
            parse(text, SIGNALS, PARAMETERS)
        else:
            assert "nested deeper than 20" in refused(text).message


def test_five_hundred_characters_are_read_and_one_more_is_not() -> None:
    text = "a > 0" + " " * 495
    assert truth(text, a=1.0) is YES
    assert refused(text + " ").message == "longer than 500 characters"


def test_a_number_in_the_place_of_an_answer_is_told_how_to_compare_it() -> None:
    assert refused("a and b > 0").hint == "compare it: `a > 0`"
    assert refused("a + b and b > 0").hint == "compare it with something"


def test_long_names_are_shown_by_their_start() -> None:
    assert refused("x" * 80 + " > 0").message == f"no signal is named `{'x' * 80}`"
    assert refused("x" * 81 + " > 0").message == f"no signal is named `{'x' * 80}...`"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("min(2, 9, a)", 2.0),
        ("min(9, 2, a)", 2.0),
        ("min(a, b)", AtLeast(5)),
        ("min(5, a)", 5.0),
        ("min(7, a)", AtLeast(5)),
        ("max(a, b)", AtLeast(8)),
        ("min(-a, b)", AtMost(-5)),
        ("min(-a, -9)", AtMost(-9)),
        ("min(-a, -4)", AtMost(-5)),
        ("max(-a, -9)", AtMost(-5)),
        ("max(-a, -4)", -4.0),
        ("max(-a, -b)", AtMost(-5)),
        ("max(-a, b)", AtLeast(8)),
        ("0 * a", 0.0),
        ("-2 * a", AtMost(-10)),
        ("-a * -2", AtLeast(10)),
        ("-a * -b", AtLeast(40)),
        ("a * -b", AtMost(-40)),
        ("0 + a", AtLeast(5)),
        ("a + b", AtLeast(13)),
        ("a - b", None),
        ("a - -b", AtLeast(13)),
        ("b - 1 / a", AtLeast(7.8)),
        ("1 / a", AtMost(0.2)),
        ("1 / (1 / a)", None),  # which may be as small as one likes
        ("1 / -a", AtLeast(-0.2)),
        ("a / b", None),
        ("-a / b", None),
        ("a / -b", None),
    ],
)
def test_bounds_in_arithmetic_stay_bounds_or_become_unknown(text: str, expected: float | None) -> None:
    found = number(text, a=AtLeast(5), b=AtLeast(8))
    assert found == expected
    assert type(found) is type(expected)


def test_whole_numbers_are_numbers() -> None:
    values: dict[str, float | None] = {"a": 3, "b": 2}
    assert parse("a * b + a", SIGNALS, PARAMETERS).number(values.get) == 9
    assert parse("a / b", SIGNALS, PARAMETERS).number(values.get) == 1.5
    assert parse("a > b", SIGNALS, PARAMETERS).truth(values.get) is YES
    assert parse("a < b", SIGNALS, PARAMETERS).truth(values.get) is NO
    assert parse("a == 3 and b != 3", SIGNALS, PARAMETERS).truth(values.get) is YES
    assert parse("a * b > 5.5", SIGNALS, PARAMETERS).truth(values.get) is YES
    huge: dict[str, float | None] = {"a": 10**400, "b": 2}
    assert parse("a > b", SIGNALS, PARAMETERS).truth(huge.get) is UNKNOWN
    assert parse("a * b", SIGNALS, PARAMETERS).number(huge.get) is None
