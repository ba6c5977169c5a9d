"""Texts of a rule with values put in: `{waiting_last:.0f} requests wait[, {running_last:.0f} run]`.

What stands in square brackets is left out where a value in it is unknown, and a sentence there where all its values are
zero: it would say that nothing happened. `[[` and `]]` are plain brackets. Elsewhere
what holds an unknown value is left out as a reader would do it: an aside in brackets, a clause, a sentence.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from string import Formatter
from typing import NamedTuple, Self

from watchdog.errors import ExpressionError
from watchdog.history.number import finite
from watchdog.language.expression import NO_PARAMETERS
from watchdog.model import NO_LABELS, Lookup
from watchdog.text import nearest, number_text, seconds_text

VALUE = "value"
TEXTS = frozenset({"failure", "last_words", "blind", "version", "programs", "idle_targets"})
"""What a text may quote that is no number: the last failure, what fired before restarts, what is missing, who idles."""
TIME = "time"
"""The format of seconds as people say a time: 38 ms, 4.2 s, 3m 20s."""
_FORMAT = re.compile(rf"(?:,?(?:\.[0-9])?[feg%]|{TIME})?")
_BRACKET = re.compile(r"\{\{|\{[^}]*\}|\[\[|\]\]|\[|\]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Stands for an unknown value until what holds it is left out; nothing that is shown has such a character.
_UNKNOWN = "\0"
_ZERO = re.compile(r"0(?:\.0+)?%?")
_ASIDE = re.compile(rf" ?\([^()]*{_UNKNOWN}[^()]*\)")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=\S)")
# What stands in an aside joins no clauses.
_CLAUSE_END = re.compile(r"([,;:] )(?![^()]*\))")
_JOINING_WORD = re.compile(r"^(?:and|but|so|while|which) ")
# `the last one with: {failure}`: words that announce a value mean nothing without it.
_ANNOUNCED = re.compile(rf"(?:(?<=[,;] )|^)[^,;:]*: {_UNKNOWN}(?=[,;.!?]|$)")
# "1 requests wait" as people say it: what is counted, and what one of it does.
_COUNTED = (
    "requests|prompts|tokens|streams|servers|engines|rules|scrapes|restarts|steps|preemptions|connections"
    "|answers|leases|fetches|transfers|adapters|blocks|stores|drafts"
)
_DONE = "wait|run|use|share|start|get|finish|arrive|ask|need|take"
_ONE = re.compile(rf"(?<![\w.,:-])1 ((?:[a-z]+ )?)({_COUNTED})\b(?: ({_DONE})\b)?")
_ONE_DOES = re.compile(r"(?<![\w.,:-])1 (wait|run)\b")
_ONE_HAS = re.compile(r"(?<![\w.,:-])(1 [a-z]+(?: [a-z]+)?) (are|were|have)\b")
_SINGULAR = {"are": "is", "were": "was", "have": "has"}


class Part(NamedTuple):
    """A piece of plain text and the field after it; an empty name where there is none."""

    literal: str
    name: str
    specification: str


class Section(NamedTuple):
    """A stretch of a text: an optional one vanishes where a value in it is unknown."""

    parts: tuple[Part, ...]
    is_optional: bool


class Template(str):
    """The text as written, read once: its fields, the signals it reads and the parameters bound into it.

    `plain` is what it says whatever the values, None where it has a field.
    """

    __slots__ = ("fields", "names", "parameters", "plain", "sections")

    fields: tuple[str, ...]
    plain: str | None
    sections: tuple[Section, ...]
    names: tuple[str, ...]
    parameters: Mapping[str, float]

    @classmethod
    def read(
        cls,
        text: str,
        known: Collection[str],
        parameters: Mapping[str, float] = NO_PARAMETERS,
        has_value: bool = False,
    ) -> Self:
        """Reads a text whose fields are signals, parameters and, where it has one, the remedy's `{value}`.

        Raises:
            ExpressionError: for an unknown name, for anything in a field but a name and a plain format, and
                for brackets that do not match.
        """
        parts = _parts(text)
        for part in parts:
            if part.name == VALUE and has_value and part.specification:
                raise ExpressionError(
                    "the value has its format already", _brace(text, VALUE), "write {value}"
                )
            if part.name in TEXTS and part.specification:
                raise ExpressionError(f"`{part.name}` is a text and has no format", _brace(text, part.name))
            if part.name and part.name not in TEXTS and not (part.name == VALUE and has_value):
                _check_name(text, part, {*known, *parameters}, has_value)
        used = dict.fromkeys(part.name for part in parts if part.name)
        template = cls(text)
        template.fields = tuple(used)
        template.sections = _sections(text)
        literals = (part.literal for section in template.sections for part in section.parts)
        template.plain = None if used else "".join(literals)
        template.names = tuple(name for name in used if name not in {*parameters, *TEXTS, VALUE})
        template.parameters = {name: parameters[name] for name in used if name in parameters}
        return template


def render_text(
    template: Template, lookup: Lookup, value: str | None = None, texts: Mapping[str, str] = NO_LABELS
) -> str:
    """The text with its values, ">= x" for a lower bound; what holds an unknown one is left out, empty where all does.

    `value` is the remedy's own, already as text; `texts` are those of TEXTS.
    """
    if template.plain is not None:
        return template.plain
    pieces = []
    for section in template.sections:
        shown = [_shown(part, template, lookup, value, texts) for part in section.parts]
        if section.is_optional and (None in shown or _is_of_nothing(section, shown)):
            continue
        for part, text in zip(section.parts, shown, strict=True):
            pieces += [part.literal, _UNKNOWN if text is None else text]
    whole = "".join(pieces)
    return _counted(_without_unknown(whole) if _UNKNOWN in whole else whole)


def _is_of_nothing(section: Section, shown: Sequence[str | None]) -> bool:
    """Whether it is a whole sentence, and each value in it is zero."""
    first, last = section.parts[0].literal.lstrip(), section.parts[-1].literal.rstrip()
    values = [text for part, text in zip(section.parts, shown, strict=True) if part.name]
    is_sentence = first[:1].isupper() and last.endswith(".")
    return is_sentence and bool(values) and all(_ZERO.fullmatch(text or "") for text in values)


def _counted(text: str) -> str:
    """The text with one of a thing in the singular, and with the verb that belongs to it."""
    if "1 " not in text:
        return text
    text = _ONE.sub(_one, text)
    text = _ONE_DOES.sub(r"1 \1s", text)
    return _ONE_HAS.sub(lambda found: f"{found[1]} {_SINGULAR[found[2]]}", text)


def _one(found: re.Match[str]) -> str:
    verb = found[3]
    thing = f"1 {found[1]}{found[2].removesuffix('es' if found[2].endswith('ches') else 's')}"
    if verb is None:
        return thing
    return f"{thing} {verb}{'es' if verb.endswith('sh') else 's'}"


def _without_unknown(text: str) -> str:
    """The sentences of which something is left without their unknown parts."""
    return " ".join(filter(None, map(_known_clauses, _SENTENCE_END.split(text))))


def _known_clauses(sentence: str) -> str:
    """The sentence without asides and clauses that hold an unknown value; empty where every clause does."""
    if _UNKNOWN not in sentence:
        return sentence
    body = _ANNOUNCED.sub(_UNKNOWN, _ASIDE.sub("", sentence))
    end = body[-1] if body.endswith((".", "!", "?")) else ""
    kept, is_headless = "", False
    for joint, clause in _clauses(body.removesuffix(end)):
        leads = joint != ", " or _JOINING_WORD.match(clause) is not None
        if _UNKNOWN in clause:
            is_headless = is_headless or leads
        elif leads or not is_headless:
            is_headless = False
            kept += joint + clause if kept else _JOINING_WORD.sub("", clause, count=1)
    if " " not in kept and kept != body.removesuffix(end):
        return ""  # the one word that introduced what is unknown
    if not body.startswith(kept):
        kept = kept[:1].upper() + kept[1:]
    return kept + end if kept else ""


def _clauses(sentence: str) -> Iterator[tuple[str, str]]:
    """Each clause after what joins it to the one before; what follows a comma leans on the clause that leads."""
    first, *rest = _CLAUSE_END.split(sentence)
    yield "", first
    yield from zip(rest[::2], rest[1::2], strict=True)


def _shown(
    part: Part, template: Template, lookup: Lookup, value: str | None, texts: Mapping[str, str]
) -> str | None:
    """A field's value as text, empty where there is no field; None where it is unknown."""
    if not part.name:
        return ""
    if part.name == VALUE:
        return value
    if part.name in TEXTS:
        return texts.get(part.name)
    number = template.parameters.get(part.name)
    if number is None:
        number = finite(lookup(part.name))
    return None if number is None else _formatted(number, part.specification)


def value_format(text: str) -> str:
    """The text itself, checked to be a format of a remedy's number such as `{value:.0f}` and nothing else.

    Raises:
        ExpressionError: for any other field, and for none.
    """
    names = [part.name for part in _parts(text) if part.name]
    if names != [VALUE]:
        raise ExpressionError("a format has one field, the value", _brace(text), "such as {value:.0f}")
    return text


def _formatted(value: float, specification: str) -> str:
    if specification == TIME:
        return seconds_text(value)
    return format(value, specification) if specification else number_text(value)


def _sections(text: str) -> tuple[Section, ...]:
    """The text cut at its brackets; those within braces are none."""
    sections = []
    begin, opened = 0, None
    for match in _BRACKET.finditer(text):
        if match.group() not in {"[", "]"}:
            continue
        column = match.start()
        if match.group() == "[":
            if opened is not None:
                raise ExpressionError("an optional part in an optional part", column, "[[ is a plain bracket")
            opened = column
        elif opened is None:
            raise ExpressionError("`]` without `[`", column, "]] is a plain bracket")
        sections.append(_section(text[begin:column], match.group() == "]"))
        if match.group() == "]":
            if not any(part.name for part in sections[-1].parts):
                raise ExpressionError(
                    "an optional part without a value", opened or 0, "[[ is a plain bracket"
                )
            opened = None
        begin = match.end()
    if opened is not None:
        raise ExpressionError("`[` without `]`", opened, "[[ is a plain bracket")
    return (*sections, _section(text[begin:], is_optional=False))


def _section(text: str, is_optional: bool) -> Section:
    parts = (
        part._replace(literal=part.literal.replace("[[", "[").replace("]]", "]")) for part in _parts(text)
    )
    return Section(tuple(parts), is_optional)


def _parts(text: str) -> tuple[Part, ...]:
    try:
        raw = list(Formatter().parse(text))
    except ValueError as error:
        raise ExpressionError(
            f"the braces do not match: {error}", _brace(text), "{{ is a plain brace"
        ) from None
    parts = []
    for literal, name, specification, conversion in raw:
        if name is None:
            parts.append(Part(literal, "", ""))
            continue
        if conversion or not _NAME.fullmatch(name):
            message = f"{{{name}}} is not a name with a format"
            raise ExpressionError(message, _brace(text, name), "such as {waiting_last:.0f}")
        if not _FORMAT.fullmatch(specification or ""):
            hint = "known are .0f to .9f, with a comma before them, the same with e, g and %, and time for seconds"
            raise ExpressionError(f"`{specification}` is not a format", _brace(text, name), hint)
        if specification == TIME and "seconds" not in name.split("_"):
            raise ExpressionError(f"`{name}` is no time: its name says no seconds", _brace(text, name))
        parts.append(Part(literal, name, specification or ""))
    return tuple(parts)


def _check_name(text: str, part: Part, known: Collection[str], has_value: bool) -> None:
    if part.name not in known:
        hint = nearest(part.name, {*known, VALUE} if has_value else known)
        raise ExpressionError(f"no signal is named `{part.name[:80]}`", _brace(text, part.name) + 1, hint)


def _brace(text: str, name: str = "") -> int:
    return max(text.find("{" + name), 0)
