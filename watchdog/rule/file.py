"""The shape of a rule file: every key with what it may hold and what it is for."""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from watchdog.errors import ExpressionError
from watchdog.history.number import AtLeast, AtMost, Bound
from watchdog.language.expression import Expression
from watchdog.language.template import Template, value_format
from watchdog.model import SEVERITY_RANK, Limit, Scope, Severity
from watchdog.rule.clause import (
    NUMBER,
    in_grammar,
    names_of,
    own_name,
    read_clause,
    read_number,
    read_parts,
    refused,
    text_of,
)
from watchdog.rule.rule import Direction, Expectation
from watchdog.schema import Duration
from watchdog.strict_yaml import Kind, Word, YamlFile

KIND = Kind("a rule file", "it starts with `id:`", max_bytes=256 * 1024, max_nesting=12, max_entries=200)
ID = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")
RECORDING = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")
PHASE = re.compile(r"[1-9][0-9]{0,3}")
VERSION = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+)?")
BOUNDS: Mapping[str, type[Bound]] = {">= ": AtLeast, "<= ": AtMost}
SUGGEST_FORMAT = "{value:.0f}"


def rule_file(path: str, content: bytes) -> YamlFile:
    """A rule file of that path and content."""
    return YamlFile(path, content, KIND)


def _template(value: Any, info: ValidationInfo, has_value: bool = False) -> Template:
    names = names_of(info)
    try:
        found = Template.read(text_of(value), names.signals, names.parameters, has_value)
    except ExpressionError as error:
        raise in_grammar(error) from None
    names.used.update(found.parameters)
    return found


def _remedy_template(value: Any, info: ValidationInfo) -> Template:
    return _template(value, info, names_of(info).has_value)


def _format(value: Any, info: ValidationInfo) -> str:
    if not names_of(info).suggests:
        raise refused("`suggest_format` without `suggest`")
    try:
        return value_format(text_of(value))
    except ExpressionError as error:
        raise in_grammar(error) from None


def _decimal(value: Any) -> float:
    if isinstance(value, Word) and NUMBER.fullmatch(value) and isfinite(float(value)):
        return float(value)
    raise PydanticCustomError("decimal", "must be a decimal number")


def _number_or_bound(value: Any) -> float:
    kind = BOUNDS.get(value[:3]) if isinstance(value, str) and not isinstance(value, Word) else None
    return kind(_decimal(Word(value[3:]))) if kind else _decimal(value)


def _phase(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, Word) or not PHASE.fullmatch(value):
        raise refused("a phase is a number from 1 on")
    return int(value)


def _written(value: Any) -> str:
    if not isinstance(value, str):
        raise refused("a text is expected here", "put it in quotes")
    return str(value)


def _not_empty(value: Any) -> Any:
    if value == []:
        raise PydanticCustomError("too_short", "must not be empty")
    return value


def _matching(pattern: re.Pattern[str], wanted: str) -> BeforeValidator:
    def check(value: Any) -> str:
        text = text_of(value)
        if not pattern.fullmatch(text):
            raise refused(f"`{text}` is not {wanted}")
        return text

    return BeforeValidator(check)


def _parameter_name(name: str, info: ValidationInfo) -> str:
    return own_name(name, "parameter", names_of(info))


def _signal_name(name: str, info: ValidationInfo) -> str:
    if name not in names_of(info).signals:
        raise refused(f"no signal is named `{name}`", known="signals", name=name)
    return name


def _remembered_name(name: str, info: ValidationInfo) -> str:
    if f"{name}_baseline" not in names_of(info).signals:
        raise refused(f"`{name}` is not remembered, so no two stretches can be alike in it")
    return name


def _factor(value: Any) -> float:
    factor = _decimal(value)
    if factor <= 1:
        raise refused("a likeness is a factor above 1")
    return factor


_STRING, _DECIMAL = WithJsonSchema({"type": "string"}), WithJsonSchema({"type": "number"})
Text = Annotated[str, BeforeValidator(text_of)]
Title = Annotated[Text, AfterValidator(lambda text: " ".join(text.split()))]
Written = Annotated[str, PlainValidator(_written), WithJsonSchema({"type": ["string", "number", "boolean"]})]
Decimal = Annotated[float, PlainValidator(_decimal), _DECIMAL]
NumberOrBound = Annotated[
    float, PlainValidator(_number_or_bound), WithJsonSchema({"type": ["number", "string"]})
]
CLAUSE, PART = "clause", "part"
"""Marks in the JSON Schema of what is defined once in it."""
Clause = Annotated[Expression, PlainValidator(read_clause), WithJsonSchema({"$comment": CLAUSE})]
Parts = Annotated[
    dict[str, Expression],
    PlainValidator(read_parts),
    WithJsonSchema({"type": "object", "additionalProperties": {"$comment": PART}}),
]
Number = Annotated[Expression, PlainValidator(read_number), WithJsonSchema({"type": ["string", "number"]})]
Told = Annotated[Template, PlainValidator(_template), _STRING]
RemedyTold = Annotated[Template, PlainValidator(_remedy_template), _STRING]
ValueFormat = Annotated[str, PlainValidator(_format), _STRING]
Flag = Annotated[str, _matching(FLAG, "a flag such as --max-num-seqs")]
RecordingName = Annotated[str, _matching(RECORDING, "the name of a recording, without its folder and ending")]
PhaseNumber = Annotated[int, PlainValidator(_phase), WithJsonSchema({"type": "integer", "minimum": 1})]
Version = Annotated[str, _matching(VERSION, "a version such as 0.26.0")]
ParameterName = Annotated[str, AfterValidator(_parameter_name)]
SignalName = Annotated[str, AfterValidator(_signal_name)]
RememberedName = Annotated[str, AfterValidator(_remembered_name)]
Factor = Annotated[float, PlainValidator(_factor), _DECIMAL]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ParameterPart(_Part):
    """A named threshold, which settings may override."""

    value: Decimal = Field(description="The threshold.")
    unit: Text = Field(description="Its unit: seconds, ratio, requests.")
    why: Text = Field(description="Why it is this one.")


class RaisePart(_Part):
    """A worse severity, and the clause that calls for it."""

    severity: Severity = Field(description="critical or warning, worse than the rule's own.")
    when: Clause = Field(description="The clause that raises it.")


class RemedyPart(_Part):
    """One thing to do. `{value}` in its texts stands for what `suggest` or `value` gives.

    A mapping with `first` and a list of remedies is a group: the first that can be offered is. `when` and `unless`
    beside `first` hold for all of them.
    """

    shared: Text | None = Field(
        None, description="A remedy of remedies.yaml by its id; keys beside it take the place of its own."
    )

    suggest: Number | None = Field(
        None, description="The flag's value, computed from signals and parameters."
    )
    value: Told | None = Field(None, description="The flag's value as text, instead of `suggest`.")
    suggest_format: ValueFormat = Field(SUGGEST_FORMAT, description="How `suggest` is written.")
    action: RemedyTold = Field(description="What to do, in the imperative.")
    flag: Flag | None = Field(None, description="The launch flag that it changes.")
    direction: Direction | None = Field(None, description="Which way the flag moves: raise, lower or set.")
    lasting: bool | None = Field(
        None,
        description="Whether it keeps the trouble from coming back; if not given, a flag does, and an action "
        "without one helps right now.",
    )
    why: RemedyTold = Field(description="Why it helps.")
    price: RemedyTold | None = Field(None, description="What it costs; left out where it costs nothing.")
    when: Clause | None = Field(None, description="Offered only where this is yes.")
    unless: Clause | None = Field(None, description="Not offered where this is yes.")
    first_version: Version | None = Field(None, description="The first vLLM version that it applies to.")
    last_version: Version | None = Field(None, description="The last vLLM version that it applies to.")

    @model_validator(mode="before")
    @classmethod
    def _begin(cls, values: Any, info: ValidationInfo) -> Any:
        """Notes what the texts of this remedy may speak of, before they are read."""
        given = values if isinstance(values, dict) else {}
        names_of(info).suggests = "suggest" in given
        names_of(info).has_value = "suggest" in given or "value" in given
        return values

    @field_validator("value")
    @classmethod
    def _one_value(cls, value: Template | None, info: ValidationInfo) -> Template | None:
        if names_of(info).suggests:
            raise refused("a remedy has `suggest` or `value`, not both")
        return value


class OwnTestPart(_Part):
    """What the rule must say of given signal values, or in a phase of a recording.

    A signal that is not given is unknown.
    """

    name: Text = Field(description="What it shows.")
    recording: RecordingName | None = Field(
        None, description="A recording by its name, which is that of its file; instead of `signals`."
    )
    phase: PhaseNumber | None = Field(
        None, description="Which phase of the recording, counted from 1.", validate_default=True
    )
    signals: dict[SignalName, NumberOrBound] | None = Field(
        None, description="Values by signal; '>= 10' or '<= 10' for a bound.", validate_default=True
    )
    expect: Expectation = Field(
        description="Of values fires, silent or unknown; in a recording fires, leads or silent."
    )
    severity: Severity | None = Field(None, description="The severity it must have.")
    cause_contains: Text | None = Field(None, description="What must stand in the cause.")
    remedy: dict[str, Written] = Field({}, description="Flags that must be offered, each with its value.")
    not_offered: tuple[Text, ...] = Field((), description="Flags that must not be offered.")

    @field_validator("phase")
    @classmethod
    def _in_a_recording(cls, phase: int | None, info: ValidationInfo) -> int | None:
        if (phase is None) != (info.data.get("recording", phase) is None):
            raise refused("a test has both `recording` and `phase`, or none of them")
        return phase

    @field_validator("signals")
    @classmethod
    def _or_a_recording(cls, signals: dict[str, float] | None, info: ValidationInfo) -> dict[str, float]:
        is_recorded = info.data.get("recording") is not None
        if is_recorded and signals is not None:
            raise refused("a test has `signals` or a `recording`, not both")
        if signals is None and not is_recorded and "recording" in info.data:
            raise PydanticCustomError("missing", "must be given")
        return signals or {}

    @field_validator("expect")
    @classmethod
    def _can_be_seen(cls, expect: Expectation, info: ValidationInfo) -> Expectation:
        is_recorded = info.data.get("recording") is not None
        if expect is (Expectation.UNKNOWN if is_recorded else Expectation.LEADS):
            of = "in a recording" if is_recorded else "of values"
            raise refused(f"no test expects `{expect}` {of}")
        return expect

    @field_validator("name")
    @classmethod
    def _once(cls, name: str, info: ValidationInfo) -> str:
        if name in names_of(info).tests:
            raise refused(f"two tests have the name `{name}`")
        names_of(info).tests.add(name)
        return name


class RulePart(_Part):
    """One cause: the clauses that show it, and what to do about it."""

    id: Annotated[str, _matching(ID, "an id: words of a-z and 0-9 with a hyphen between")] = Field(
        description="Words with hyphens between; the file's name without .yaml."
    )
    title: Title = Field(description="The cause in a few words.")
    severity: Severity = Field(description="critical, warning or info.")
    like: dict[RememberedName, Factor] = Field(
        {}, description="What makes a stretch of the past comparable: factors by signal."
    )
    or_since_start: bool = Field(
        False,
        description="Whether `_baseline` is the average since the server started until a calm stretch was seen: the "
        "cause then says so.",
    )
    limit: Limit | None = Field(None, description="What bounds throughput while it fires.")
    scope: Scope = Field(Scope.ENGINE, description="What is judged: an engine, a target or the fleet.")
    for_seconds: Duration = Field(
        0.0,
        validation_alias="for",
        description="How long it must hold before it fires, such as 30s; where it is first seen, half the time since "
        "the scrape before counts.",
    )
    keep_firing_seconds: Duration = Field(
        0.0, validation_alias="keep_firing_for", description="How long it must be clear before it resolves."
    )
    # Before all that may speak of them.
    parameters: dict[ParameterName, ParameterPart] = Field({}, description="Named thresholds.")
    where: Parts = Field({}, description="Named parts of clauses, which those below may use.")
    raise_to: RaisePart | None = Field(None, description="A worse severity and when it holds.")
    when: Annotated[tuple[Clause, ...], BeforeValidator(_not_empty)] = Field(
        description="Clauses that must all hold."
    )
    unless: tuple[Clause, ...] = Field((), description="Clauses that must not hold.")
    lasts_while: tuple[Clause, ...] = Field(
        (),
        description="Clauses that, while all hold, keep it from being over once it fires: what it left still hurts.",
    )
    began: Number | None = Field(
        None, description="How many seconds ago the trouble began; when it was first seen if not given."
    )
    explains: tuple[Text, ...] = Field((), description="Ids of rules that are its symptoms while it fires.")
    explained_by: tuple[Text, ...] = Field(
        (), description="Ids of rules of which it is a symptom while they fire."
    )
    cause: Told = Field(description="The cause in a sentence, with values: {waiting_last:.0f} requests wait.")
    remedies: tuple[RemedyPart, ...] = Field((), description="What to do, the best first.")
    unhelpful: tuple[Text, ...] = Field((), description="What will not help.")
    false_positives: tuple[Text, ...] = Field((), description="What it may be taken for.")
    references: tuple[Text, ...] = Field((), description="How we know.")
    tests: tuple[OwnTestPart, ...] = Field(
        (), description="Its own tests: firing, silent and unknown at least."
    )

    @field_validator("id")
    @classmethod
    def _is_named_as_its_file(cls, identity: str, info: ValidationInfo) -> str:
        if names_of(info).file_name != f"{identity}.yaml":
            raise refused(f"the file of the rule `{identity}` is named {identity}.yaml")
        return identity

    @field_validator("raise_to")
    @classmethod
    def _is_worse(cls, raised: RaisePart | None, info: ValidationInfo) -> RaisePart | None:
        severity = info.data.get("severity")
        if raised and severity and SEVERITY_RANK[raised.severity] >= SEVERITY_RANK[severity]:
            raise refused(f"{raised.severity} is not worse than {severity}")
        return raised

    @field_validator("parameters", mode="wrap")
    @classmethod
    def _known(
        cls, value: Any, read: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> dict[str, ParameterPart]:
        """Tells the clauses below which parameters there are: one with a fault is known all the same."""
        names = names_of(info)
        names.parameters = dict.fromkeys(value, 0.0) if isinstance(value, dict) else {}
        found: dict[str, ParameterPart] = read(value)
        names.parameters = {name: names.overrides.get(name, each.value) for name, each in found.items()}
        return found
