"""The promises about what commits beside the events: claims and notes. A part of the store contract."""

from __future__ import annotations

import pytest

from everlog.core.event import Position
from everlog.stores.contract import Claim, Store
from everlog.testing.builders import Boom, seal_any


class SmallStateContract:
    # ---- claims

    def test_a_claim_names_the_events_of_its_request(self, store: Store) -> None:
        """F82: seen inside the write at once, by everybody after it, and not under any other name."""
        with store.write() as writer:
            writer.append([seal_any(), seal_any()])
            writer.claim(b"1" * 16, Position(1), 2)
            assert writer.claimed(b"1" * 16) == Claim(Position(1), 2)

        assert store.claimed(b"1" * 16) == Claim(Position(1), 2)
        assert store.claimed(b"2" * 16) is None
        assert store.claimed_among([b"1" * 16, b"2" * 16]) == {b"1" * 16}
        assert store.claimed_among([b"2" * 16, b"3" * 16]) == set()
        with store.write() as writer:
            writer.claim(b"3" * 16, writer.append([seal_any()])[0].position, 1)
            assert writer.claimed_among([b"2" * 16]) == set()
            assert writer.claimed_among([b"1" * 16, b"2" * 16, b"3" * 16]) == {b"1" * 16, b"3" * 16}

    def test_claims_commit_with_the_events_of_their_write(self, store: Store) -> None:
        """F82: neither a failed write nor a failed attempt claims anything."""
        with pytest.raises(Boom), store.write() as writer:
            writer.append([seal_any()])
            writer.claim(b"1" * 16, Position(1), 1)
            raise Boom
        with store.write() as writer:
            with pytest.raises(Boom), writer.attempt():
                writer.append([seal_any()])
                writer.claim(b"2" * 16, Position(1), 1)
                raise Boom
            assert writer.claimed(b"2" * 16) is None
            writer.append([seal_any()])
            writer.claim(b"3" * 16, Position(1), 1)

        assert [store.claimed(name * 16) for name in (b"1", b"2")] == [None, None]
        assert store.claimed(b"3" * 16) == Claim(Position(1), 1)

    def test_a_name_that_is_claimed_again_leads_to_the_newer_events(self, store: Store) -> None:
        for first in (1, 2):
            with store.write() as writer:
                writer.append([seal_any()])
                writer.claim(b"1" * 16, Position(first), 1)

        assert store.claimed(b"1" * 16) == Claim(Position(2), 1)

    # ---- notes

    def test_notes_are_found_by_prefix_in_order_of_their_keys(self, store: Store) -> None:
        with store.write() as writer:
            for key in ("b/2", "a/1", "a/2", "a", "ab"):
                writer.note(key, key.upper())

        assert list(store.notes("a/").items()) == [("a/1", "A/1"), ("a/2", "A/2")]
        assert list(store.notes("", newest_first=True)) == ["b/2", "ab", "a/2", "a/1", "a"]
        assert list(store.notes("a", limit=2)) == ["a", "a/1"]

    def test_a_note_is_replaced_and_removed(self, store: Store) -> None:
        with store.write() as writer:
            writer.note("k", "1")
            writer.note("gone", "1")
        with store.write() as writer:
            writer.note("k", "2")
            writer.note("gone", None)
            assert writer.notes("") == {"k": "2"}

        assert store.notes("") == {"k": "2"}

    def test_an_expired_note_is_not_there(self, store: Store) -> None:
        with store.write() as writer:
            writer.note("old", "1", expires_us=1)
            writer.note("new", "1", expires_us=2**60)

        assert store.notes("") == {"new": "1"}

    def test_notes_commit_with_the_events_of_their_write(self, store: Store) -> None:
        """F33, F82."""
        with pytest.raises(Boom), store.write() as writer:
            writer.append([seal_any()])
            writer.note("cursor", "1")
            raise Boom

        assert (store.head(), store.notes("")) == (0, {})
