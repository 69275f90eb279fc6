"""From what a caller says to what may be recorded, before the log is locked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlog.catalog.catalog import Catalog
from everlog.core.canonical import canonical
from everlog.core.codec import commitment
from everlog.errors import InvalidField, InvalidPayload, SecretFound
from everlog.log.write.draft import Draft, Limits, Prepared, PreparedDraft
from everlog.log.write.prepare import _all_at_once, _one_by_one, prepare


def prepared(catalog: Catalog, *drafts: Draft, **limits: Any) -> list[PreparedDraft]:
    return list(prepare(drafts, catalog, actor="user:default", limits=Limits(**limits)))


def test_a_prepared_draft_is_encoded_and_committed_to(catalog: Catalog) -> None:
    (item,) = prepared(catalog, Draft(type="note.added", stream="note/1", payload={"text": "hi"}))
    assert item.version == 2
    assert item.payload == {"text": "hi", "topic": ""}
    assert item.body == canonical(item.payload)
    assert item.commitment == commitment(item.salt, item.body)
    assert item.actor == "user:default"
    assert item.id is None


def test_salts_are_sixteen_bytes_and_never_the_same(catalog: Catalog) -> None:
    """Equal payloads must not show as equal commitments, or an erased one could be guessed."""
    items = prepared(catalog, *[Draft(type="thing.said", stream="thing/1")] * 100)
    assert {len(item.salt) for item in items} == {16}
    assert len({item.salt for item in items}) == len({item.commitment for item in items}) == 100


def test_the_drafts_own_actor_comes_first(catalog: Catalog) -> None:
    (item,) = prepared(catalog, Draft(type="thing.said", stream="thing/1", actor="user:ada"))
    assert item.actor == "user:ada"


def test_names_are_checked_in_every_draft_of_a_batch(catalog: Catalog) -> None:
    good = Draft(type="thing.said", stream="thing/1", scope="acme")
    for bad in (
        Draft(type="thing.said", stream="thing", scope="acme"),
        Draft(type="thing.said", stream="thing/1", scope="/"),
        Draft(type="thing.said", stream="thing/1", actor="ada", scope="acme"),
        Draft(type="thing.said", stream="thing/1", scope="acme", request_id="a\tb"),
        Draft(type="thing.said", stream="thing/1", scope="acme", tags={"A": "b"}),
    ):
        for _ in range(2):
            with pytest.raises(InvalidField):
                prepared(catalog, good, good, bad)
        with pytest.raises(InvalidField):
            prepared(catalog, bad, good)


@pytest.mark.parametrize("alone", [True, False])
def test_a_name_that_was_accepted_in_one_field_is_refused_in_another_where_it_does_not_fit(
    catalog: Catalog, alone: bool
) -> None:
    """Names that were seen are not looked at again, each in its own field."""
    good = Draft(type="thing.said", stream="item/1", actor="user:ada", scope="acme")
    prepared(catalog, good)
    for bad in (
        Draft(type="thing.said", stream="user:ada", actor="user:ada", scope="acme"),
        Draft(type="thing.said", stream="acme", actor="user:ada", scope="acme"),
        Draft(type="thing.said", stream="item/1", actor="item/1", scope="acme"),
        Draft(type="thing.said", stream="item/1", actor="acme", scope="acme"),
    ):
        with pytest.raises(InvalidField):
            prepared(catalog, *([bad] if alone else [good, bad]))
    odd = Draft(type="thing.said", stream="item_/1", scope="item_/1")  # a scope as well as a stream
    prepared(catalog, odd)
    prepared(catalog, Draft(type="thing.said", stream="item/1", scope="a_/b/c"))
    with pytest.raises(InvalidField):
        prepared(catalog, Draft(type="thing.said", stream="a_/b/c"))


def test_tags_are_copied_and_times_become_utc(catalog: Catalog) -> None:
    tags = {"team": "a"}
    moment = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    (item,) = prepared(catalog, Draft(type="thing.said", stream="thing/1", tags=tags, occurred_at=moment))
    tags["team"] = "b"
    assert item.draft.tags == {"team": "a"}
    assert item.draft.occurred_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert item.draft.occurred_at is not None
    assert item.draft.occurred_at.tzinfo is UTC


def test_payloads_are_copied_all_the_way_down(catalog: Catalog) -> None:
    deep: list[Any] = [{"a": [1]}]
    (item,) = prepared(catalog, Draft(type="thing.said", stream="thing/1", payload={"value": deep}))
    deep[0]["a"].append(2)
    assert item.payload == {"value": [{"a": [1]}]}


def test_drafts_share_no_defaults() -> None:
    one, other = (Draft(type="thing.said", stream="thing/1") for _ in range(2))
    one.payload["x"] = 1
    assert other.payload == {}
    assert one.tags is not other.tags


def test_the_first_refusal_comes_out_and_nothing_else_matters(catalog: Catalog) -> None:
    with pytest.raises(InvalidPayload):
        prepared(
            catalog,
            Draft(type="thing.said", stream="thing/1"),
            Draft(type="note.added", stream="note/1"),
            Draft(type="no.such", stream="note/1"),
        )


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_secret_is_found_wherever_in_the_batch_it_stands(catalog: Catalog, place: int) -> None:
    drafts = [Draft(type="thing.said", stream="thing/1", payload={"value": "harmless"}) for _ in range(3)]
    drafts[place] = Draft(type="thing.said", stream="thing/1", payload={"value": ["AKIA" + "ABCDEFGHIJKLMNOP"]})
    for _ in range(2):  # what was seen to be clean before must not make it look clean now
        with pytest.raises(SecretFound):
            prepared(catalog, *drafts)


TEXTS = st.sampled_from(
    ["", "hi", "cause-12ab", "é", "a\tb", "x" * 300, "AKIAABCDEFGHIJKLMNOP", "trace-00ff", 7, None, 0]
)
VALUES = st.one_of(
    st.sampled_from(["", "hi", "é\u2028", "\ud800", "password=hunter2secret", "ghp_" + "a" * 36, "x" * 70_000]),
    st.sampled_from([0, 1, -1, 2**53, 2**53 - 1, 1.0, -0.0, 0.5, True, False, None, [1], {"a": 1}]),
)


@st.composite
def any_drafts(draw: st.DrawFn) -> list[Draft]:
    types = draw(
        st.sampled_from([("flat.noted",), ("flat.noted", "flat.counted"), ("flat.noted", "thing.said", "no.such")])
    )
    some = st.builds(
        Draft,
        type=st.sampled_from(types),
        stream=st.sampled_from(["note/1", "note/2", "note"]),
        payload=st.one_of(
            st.fixed_dictionaries({"text": st.sampled_from(["hi", "ho", "é"])}),
            st.dictionaries(st.sampled_from(["text", "topic", "count", "value", "password"]), VALUES, max_size=3),
            st.just(7),
        ),
        actor=st.sampled_from(["", "user:ada", "ada"]),
        scope=st.sampled_from(["", "acme", "/"]),
        id=st.sampled_from(["", "01K00000000000000000000000", "no id"]),
        causation_id=TEXTS,
        correlation_id=TEXTS,
        tags=st.sampled_from([{}, {"team": "a"}, None]),
        occurred_at=st.sampled_from([None, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1)]),
    )
    usual = st.builds(Draft, type=st.sampled_from(types), stream=st.just("note/1"), payload=st.just({"text": "hi"}))
    return draw(st.lists(st.one_of(usual, usual, some), min_size=1, max_size=5))


@settings(max_examples=300, deadline=None)
@given(drafts=any_drafts(), keys=st.lists(st.sampled_from(["k-1", "AKIAABCDEFGHIJKLMNOP"]), max_size=2))
def test_drafts_that_are_prepared_at_once_are_as_if_prepared_one_by_one(drafts: list[Draft], keys: list[str]) -> None:
    """What is refused one by one is never accepted at once, and what is accepted is the same to the byte."""
    expected = _outcome(lambda: _one_by_one(drafts, FLAT, "user:default", Limits(), keys))
    found = _outcome(lambda: prepare(drafts, FLAT, actor="user:default", limits=Limits(), keys=keys))
    if isinstance(expected, Exception) or isinstance(found, Exception):
        assert (type(found), str(found)) == (type(expected), str(expected))
        return
    for name in ("versions", "payloads", "bodies", "actors", "ids"):
        assert getattr(found, name) == getattr(expected, name)
    assert [list(map(type, payload.values())) for payload in found.payloads] == [
        list(map(type, payload.values())) for payload in expected.payloads
    ]
    assert found.commitments == [commitment(salt, body) for salt, body in zip(found.salts, found.bodies, strict=True)]


def _outcome(work: Callable[[], Prepared]) -> Prepared | Exception:
    try:
        return work()
    except Exception as refusal:
        return refusal


def test_a_batch_of_flat_payloads_is_prepared_at_once() -> None:
    drafts = [Draft("flat.noted", f"note/{number}", {"text": f"text {number}"}) for number in range(10)]
    prepare(drafts, FLAT, actor="user:ada", limits=Limits())  # the first time of each name and text
    assert _all_at_once(drafts, FLAT, "user:ada", Limits(), ["k-1"]) is not None


FLAT = Catalog()


@FLAT.event("flat.noted")
class Noted(msgspec.Struct):
    text: str
    topic: str = ""


@FLAT.event("flat.counted")
class Counted(msgspec.Struct):
    text: str = ""
    count: int | bool | None = 0


@FLAT.event("thing.said")
class Said(msgspec.Struct):
    value: float | str | None = None
