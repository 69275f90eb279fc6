"""Nothing that a payload says is changed on its way to JSON: it is stored as it is, or refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from everlog.catalog import Catalog
from everlog.core.canonical import canonical
from everlog.errors import InvalidPayload, NotCanonical

CATALOG = Catalog()


@CATALOG.event("pydantic.said")
class Pydantic(BaseModel):
    number: float = 0.0
    value: Any = None
    counts: dict[int, int] = {}


class Inner(BaseModel):
    number: float = 0.0


@CATALOG.event("pydantic.nested")
class Nested(BaseModel):
    inner: Inner
    listed: list[Inner] = []


@CATALOG.event("struct.said")
class Struct(msgspec.Struct):
    value: Any = None
    texts: dict[str, Any] = {}


@CATALOG.event("struct.counted")
class Counted(msgspec.Struct):
    counts: dict[int, int] = {}


NOT_NUMBERS = [float("nan"), float("inf"), float("-inf")]


@pytest.mark.parametrize("number", NOT_NUMBERS)
def test_what_is_no_number_is_refused_and_not_stored_as_null(number: float) -> None:
    for event_type, payload in (
        ("pydantic.said", {"number": number}),
        ("pydantic.said", Pydantic(number=number)),
        ("pydantic.said", Pydantic.model_construct(number=number)),
        ("pydantic.said", {"value": number}),
        ("pydantic.said", {"value": {"deep": [1, number]}}),
        ("pydantic.nested", {"inner": {"number": number}}),
        ("pydantic.nested", Nested(inner=Inner(), listed=[Inner(), Inner(number=number)])),
    ):
        with pytest.raises(InvalidPayload) as refused:
            CATALOG.validate(event_type, payload)
        ((path, reason),) = refused.value.defects
        assert path.startswith("$.")
        assert "is not a JSON number" in reason
    _, payload = CATALOG.validate("struct.said", {"value": number})
    with pytest.raises(NotCanonical):
        canonical(payload)


@pytest.mark.parametrize(
    ("event_type", "payload"),
    [
        ("pydantic.said", {"value": {"1": 1, 1: 2}}),
        ("pydantic.said", Pydantic(value={"1": 1, 1: 2})),
        ("pydantic.said", {"value": [{"deep": {True: 1, "true": 2}}]}),
        ("pydantic.said", {"counts": {"1": 1, 1: 2}}),
        ("struct.said", {"value": {"1": 1, 1: 2}}),
        ("struct.said", Struct(value={"1": 1, 1: 2})),
        ("struct.said", {"texts": {"a": {"1": 1, 1: 2}}}),
        ("struct.counted", {"counts": {"1": 1, 1: 2}}),
    ],
)
def test_keys_that_are_the_same_as_json_are_refused(event_type: str, payload: Any) -> None:
    with pytest.raises(InvalidPayload, match=r"two keys are|not a string"):
        CATALOG.validate(event_type, payload)


def test_keys_that_are_no_texts_are_refused_unless_the_model_says_what_they_are() -> None:
    for payload in ({"value": {1: 2}}, Struct(value={1: 2}), {"texts": {"a": {None: 2}}}):
        with pytest.raises(InvalidPayload, match="not a string"):
            CATALOG.validate("struct.said", payload)
    for given in ({"counts": {1: 2}}, {"counts": {"1": 2}}, Counted(counts={1: 2})):
        assert CATALOG.validate("struct.counted", given)[1] == {"counts": {"1": 2}}
    assert CATALOG.validate("pydantic.said", {"counts": {1: 2}})[1]["counts"] == {"1": 2}
