from __future__ import annotations

import random
from typing import Any

from everlog.core.ids import id_text
from everlog.programs.issues.short_ids import LENGTH_MIN, bucket_of, every_end, is_uid, names_in, short_id_of

UID = "01M7Q2X4T9ZK3V5B8N6W1YHRAC"


def made(uid: str, *, short_id: str = "", scope: str = "", lamport: int = 1) -> dict[str, Any]:
    return {uid: {"scope": scope, "short_id": short_id, "lamport": lamport, "event": uid}}


def names(*living: dict[str, Any], purged: dict[str, Any] | None = None) -> dict[str, str]:
    issues = {uid: issue for one in living for uid, issue in one.items()}
    return {name.uid: name.short_id for name in names_in({"issues": issues, "purged": purged or {}})}


def test_a_short_id_is_the_end_of_the_uid_as_long_as_it_has_to_be() -> None:
    assert short_id_of(UID, set()) == "hrac"
    assert short_id_of(UID, {"hrac"}) == "yhrac"
    assert short_id_of(UID, {"hrac", "yhrac", "1yhrac"}) == "w1yhrac"
    assert short_id_of(UID, every_end([UID])) == UID.lower()


def test_a_number_is_never_a_short_id() -> None:
    assert short_id_of("01M7Q2X4T9ZK3V5B8N6W1Y1234", set()) == "y1234"
    assert short_id_of("01M7Q2X4T9ZK3V5B8N60000000", {"n60000000"}) == "8n60000000"


def test_of_two_that_recorded_the_same_the_first_in_the_causal_order_keeps_it() -> None:
    one, other = "01AAAAAAAAAAAAAAAAAAAXHRAC", "01AAAAAAAAAAAAAAAAAAAYHRAC"
    both = names(made(other, short_id="hrac", lamport=1), made(one, short_id="hrac", lamport=2))
    assert both == {other: "hrac", one: "xhrac"}
    assert names(made(one, short_id="hrac"), made(other, short_id="hrac", scope="elsewhere")) == {
        one: "hrac",
        other: "hrac",
    }


def test_what_is_purged_keeps_its_name_and_everybody_else_theirs() -> None:
    """Also where the purge took away the event that came first: then nobody moves up."""
    first, second, third = ("01AAAAAAAAAAAAAAAAAA" + end for end in ("AZHRAC", "AYHRAC", "XYHRAC"))
    living = [made(uid, short_id="hrac", lamport=at) for at, uid in enumerate((first, second, third), start=1)]
    before = names(*living)
    assert before == {first: "hrac", second: "yhrac", third: "xyhrac"}
    gone = {first: {"scope": "", "short_id": "hrac"}}
    assert names(*living, purged=gone) == before
    assert names(*living[1:], purged=gone) == before


def test_an_issue_older_than_short_ids_gets_one_and_a_recorded_one_that_is_not_its_own_is_not_believed() -> None:
    assert names(made(UID)) == names(made(UID, short_id="abcd")) == {UID: "hrac"}
    assert names_in(None) == []


def test_names_are_distinct_in_a_scope_and_the_same_in_whatever_order_issues_are_looked_at() -> None:
    chance = random.Random(4)
    for _ in range(200):
        uids = {id_text((chance.getrandbits(10) << 20) | 0x12ABC) for _ in range(8)}
        assert len({bucket_of(uid) for uid in uids}) == 1
        living, taken = [], dict[str, set[str]]()
        for at, uid in enumerate(sorted(uids)):
            scope = chance.choice(["", "a"])
            short = chance.choice(["", short_id_of(uid, taken.get(scope, set()))])
            taken.setdefault(scope, set()).add(short)
            living.append(made(uid, short_id=short, scope=scope, lamport=at // 2))
        expected = names(*living)
        chance.shuffle(living)
        assert names(*living) == expected
        state = {"issues": {uid: issue for one in living for uid, issue in one.items()}, "purged": {}}
        by_scope = [(name.scope, name.short_id) for name in names_in(state)]
        assert len(set(by_scope)) == len(by_scope)
        assert all(uid.lower().endswith(short) and len(short) >= LENGTH_MIN for uid, short in expected.items())


def test_a_uid_is_a_ulid_in_its_one_spelling() -> None:
    assert is_uid(UID)
    assert not is_uid(UID.lower())
    assert not is_uid("130")
    assert not is_uid(UID + "0")
