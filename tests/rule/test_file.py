"""The shape of a rule file: what every key is for is written beside it, for people and for editors."""

import pytest
from pydantic import BaseModel

from watchdog.rule.file import OwnTestPart, ParameterPart, RaisePart, RemedyPart, RulePart


@pytest.mark.parametrize("part", [RulePart, ParameterPart, RaisePart, RemedyPart, OwnTestPart])
def test_every_key_says_what_it_is_for(part: type[BaseModel]) -> None:
    assert [name for name, field in part.model_fields.items() if not field.description] == []


def test_the_shape_is_a_json_schema_with_the_keys_that_people_write() -> None:
    document = RulePart.model_json_schema()
    assert {"for", "keep_firing_for", "raise_to", "remedies"} <= set(document["properties"])
    assert document["required"] == ["id", "title", "severity", "when", "cause"]
    assert document["additionalProperties"] is False
