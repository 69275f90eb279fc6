"""The pure parts of snapshots: patches, thinning, triggers, fingerprints, files."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.views.conftest import Said

from everlog.core.canonical import canonical
from everlog.core.event import Event
from everlog.errors import Damaged
from everlog.views.fingerprint import code_fingerprint
from everlog.views.incremental import Body, apply_patch, make_patch
from everlog.views.thinning import Due, Thinning, superfluous
from everlog.views.view import View

# ---- patches

keys = st.text(max_size=3) | st.sampled_from(["a/b", "a~b", "~1", "/", ""])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=10,
)
rows = st.dictionaries(keys, values.map(lambda state: canonical([1, 0, "", None, state])), max_size=5)
bodies = st.builds(
    lambda rows, places: {"rows": rows, "places": places, "letters": {}},
    rows,
    st.dictionaries(keys, st.text("0123456789abcdef", max_size=4).map(canonical), max_size=3),
)


@given(bodies, bodies)
def test_a_patch_leads_from_any_body_to_any_other(base: Body, body: Body) -> None:
    assert apply_patch(base, make_patch(base, body)) == {
        section: dict(sorted(members.items())) for section, members in body.items()
    }


@given(values, values)
def test_a_patch_of_one_state_does_what_rfc_6902_says(was: Any, now: Any) -> None:
    """Applied by another, plainer hand: on the decoded document, operation by operation."""
    base: Body = {"rows": {"k": canonical([1, 0, "", None, was])}, "places": {}, "letters": {}}
    body: Body = {"rows": {"k": canonical([2, 0, "", ["s"], now])}, "places": {}, "letters": {}}
    document: Any = {"rows": {"k": [1, 0, "", None, was]}, "places": {}, "letters": {}}
    document = json.loads(json.dumps(document))
    for op in json.loads(make_patch(base, body)):
        parts = [part.replace("~1", "/").replace("~0", "~") for part in op["path"].split("/")[1:]]
        target = document
        for part in parts[:-1]:
            target = target[int(part)] if isinstance(target, list) else target[part]
        last = parts[-1]
        if op["op"] == "remove":
            del target[int(last) if isinstance(target, list) else last]
        elif isinstance(target, list):
            if last == "-":
                target.append(op["value"])
            else:
                assert op["op"] == "replace"
                target[int(last)] = op["value"]
        else:
            assert (last in target) == (op["op"] == "replace")
            target[last] = op["value"]
    assert canonical(document["rows"]["k"]) == body["rows"]["k"]


def test_a_list_that_grew_costs_what_was_added() -> None:
    long = list(range(1000))
    base: Body = {"rows": {"k": canonical([1, 0, "", None, {"l": long}])}, "places": {}, "letters": {}}
    body: Body = {"rows": {"k": canonical([2, 0, "", None, {"l": [*long, 7]}])}, "places": {}, "letters": {}}
    assert len(make_patch(base, body)) < 150


@pytest.mark.parametrize(
    "patch",
    [
        b'[{"op":"remove","path":"/rows/none"}]',
        b'[{"op":"replace","path":"/rows/k/9","value":1}]',
        b'[{"op":"add","path":"/rows/k"}]',
        b'[{"op":"move","path":"/rows/k/0","value":1}]',
        b'[{"op":"add","path":"","value":1}]',
        b'[{"op":"add","path":"/nowhere/k","value":1}]',
        b"[{",
        b"{}",
    ],
)
def test_a_patch_that_does_not_fit_is_damage(patch: bytes) -> None:
    base: Body = {"rows": {"k": canonical([1, 0, "", None, {}])}, "places": {}, "letters": {}}
    with pytest.raises(Damaged):
        apply_patch(base, patch)


# ---- thinning and triggers

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


class Made(msgspec.Struct, frozen=True):
    id: str
    created_us: int
    view: str = "board"
    base: str = ""


def at(hours: float, *, base: str = "", view: str = "board") -> Made:
    return Made(f"{view}-{hours:g}", us(NOW - timedelta(hours=hours)), view, base)


def us(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def gone(*found: Made, protected: frozenset[str] = frozenset()) -> list[str]:
    return superfluous(found, now_us=us(NOW), protected=protected)


def test_everything_of_the_last_day_stays() -> None:
    assert gone(*[at(hours) for hours in range(25)]) == []


def test_of_a_day_of_the_last_month_the_newest_stays() -> None:
    same_day = [at(48), at(49), at(50)]
    assert gone(at(0), *same_day) == ["board-50", "board-49"]


def test_of_a_week_of_the_last_year_the_newest_stays() -> None:
    day = 24.0
    monday = 40 * day + 12 - 24 * 0  # NOW is a Monday noon
    weeks = [at(monday + day * number) for number in range(14)]
    left = {one.id for one in weeks} - set(gone(at(0), *weeks))
    assert len(left) in (2, 3)
    kept_weeks = {
        datetime.fromtimestamp(one.created_us / 1e6, UTC).isocalendar()[:2] for one in weeks if one.id in left
    }
    assert len(kept_weeks) == len(left)


def test_after_a_year_nothing_stays_but_the_newest() -> None:
    assert gone(at(24 * 400), at(24 * 401)) == [f"board-{24 * 401}"]


def test_what_is_protected_or_a_base_stays() -> None:
    base, other = at(24 * 500), at(24 * 501)
    assert gone(at(0, base=base.id), base, other) == [other.id]
    assert gone(at(0), base, other, protected=frozenset([other.id])) == [base.id]


def test_views_are_thinned_apart() -> None:
    assert gone(at(48), at(48.5, view="other")) == []


@given(st.lists(st.tuples(st.integers(0, 24 * 800), st.booleans()), max_size=40))
def test_thinning_twice_is_thinning_once(ages: list[tuple[int, bool]]) -> None:
    found = [msgspec.structs.replace(at(hours), id=f"{place}") for place, (hours, _) in enumerate(ages)]
    protected = frozenset(one.id for one, (_, kept) in zip(found, ages, strict=True) if kept)
    first = set(gone(*found, protected=protected))
    assert not first & protected
    left = [one for one in found if one.id not in first]
    assert gone(*left, protected=protected) == []
    assert not found or left
    assert len({one.id for one in left if us(NOW) - one.created_us > 365 * 86_400_000_000} - protected) <= 1


def test_the_first_trigger_that_fires_wins() -> None:
    due = Due()
    hour, mb = 3_600_000_000, 1024 * 1024
    assert due.reason(age_us=7 * hour, events=0, log_bytes=600 * mb) == ""
    assert due.reason(age_us=0, events=9_999, log_bytes=0) == ""
    assert due.reason(age_us=0, events=10_000, log_bytes=0) == "events"
    assert due.reason(age_us=0, events=1, log_bytes=500 * mb) == "size"
    assert due.reason(age_us=6 * hour, events=1, log_bytes=0) == "time"
    assert Due(hours=0, events=0, log_mb=0).reason(age_us=9 * hour, events=10**9, log_bytes=10**12) == ""


def test_the_rule_of_thinning_can_be_another() -> None:
    rule = Thinning(all_hours=1, daily_days=0, weekly_days=0)
    assert superfluous([at(0), at(0.5), at(2)], now_us=us(NOW), rule=rule) == ["board-2"]


# ---- fingerprints


def test_the_fingerprint_follows_the_code_also_where_there_is_no_source() -> None:
    def make(text: str) -> View:
        space: dict[str, Any] = {"View": View}
        exec(
            f"class Made(View):\n    name = 'made'\n    def apply(self, state, event):\n        return {text}", space
        )
        found: View = space["Made"]()
        return found

    assert code_fingerprint(make("{'a': 1}")) == code_fingerprint(make("{'a': 1}"))
    assert code_fingerprint(make("{'a': 1}")) != code_fingerprint(make("{'a': 2}"))
    assert code_fingerprint(make("[x for x in state]")) != code_fingerprint(make("[x + 1 for x in state]"))

    class Using(Said):
        uses = (canonical,)

    class UsingMore(Said):
        uses = (canonical, us)

    fingerprints = {code_fingerprint(view) for view in (Said(), Using(), UsingMore())}
    assert len(fingerprints) == 3

    class Deeper(Said):
        def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
            return super().apply(state, event)

    assert code_fingerprint(Deeper()) != code_fingerprint(Said())
    assert code_fingerprint(Said()) == code_fingerprint(Said())
