"""The promises about the small state that commits with the events: claims and notes. Part of `StoreContract`."""

from __future__ import annotations

import pytest

from everlog.core.event import Position
from everlog.stores.contract import Claim, Store
from everlog.stores.small_state import read_claim, read_note, read_notes
from everlog.testing.builders import Boom, claimed_among, put_claim, put_note, seal_any


class SmallStateContract:
    # ---- claims

    def test_a_claim_names_the_events_of_its_request(self, store: Store) -> None:
        """F82: visible inside the write at once, everywhere after it, and not under any other name."""
        with store.open_write() as writer:
            writer.append([seal_any(), seal_any()])
            put_claim(writer, b"1" * 16, Position(1), 2)
            assert read_claim(writer, b"1" * 16) == Claim(Position(1), 2)

        assert read_claim(store.small_state, b"1" * 16) == Claim(Position(1), 2)
        assert read_claim(store.small_state, b"2" * 16) is None
        assert claimed_among(store.small_state, [b"1" * 16, b"2" * 16]) == {b"1" * 16}
        assert claimed_among(store.small_state, [b"2" * 16, b"3" * 16]) == set()
        with store.open_write() as writer:
            put_claim(writer, b"3" * 16, writer.append([seal_any()])[0].position, 1)
            assert claimed_among(writer, [b"2" * 16]) == set()
            assert claimed_among(writer, [b"1" * 16, b"2" * 16, b"3" * 16]) == {b"1" * 16, b"3" * 16}

    def test_claims_commit_with_the_events_of_their_write(self, store: Store) -> None:
        """F82: neither a failed write nor a failed attempt claims anything."""
        with pytest.raises(Boom), store.open_write() as writer:
            writer.append([seal_any()])
            put_claim(writer, b"1" * 16, Position(1), 1)
            raise Boom
        with store.open_write() as writer:
            with pytest.raises(Boom), writer.attempt():
                writer.append([seal_any()])
                put_claim(writer, b"2" * 16, Position(1), 1)
                raise Boom
            assert read_claim(writer, b"2" * 16) is None
            writer.append([seal_any()])
            put_claim(writer, b"3" * 16, Position(1), 1)

        assert [read_claim(store.small_state, name * 16) for name in (b"1", b"2")] == [None, None]
        assert read_claim(store.small_state, b"3" * 16) == Claim(Position(1), 1)

    def test_a_name_that_is_claimed_again_leads_to_the_newer_events(self, store: Store) -> None:
        for first in (1, 2):
            with store.open_write() as writer:
                writer.append([seal_any()])
                put_claim(writer, b"1" * 16, Position(first), 1)

        assert read_claim(store.small_state, b"1" * 16) == Claim(Position(2), 1)

    # ---- notes

    def test_notes_are_found_by_prefix_in_order_of_their_keys(self, store: Store) -> None:
        with store.open_write() as writer:
            for key in ("b/2", "a/1", "a/2", "a", "ab"):
                put_note(writer, key, key.upper())

        assert list(read_notes(store.small_state, "a/").items()) == [("a/1", "A/1"), ("a/2", "A/2")]
        assert list(read_notes(store.small_state, "", newest_first=True)) == ["b/2", "ab", "a/2", "a/1", "a"]
        assert list(read_notes(store.small_state, "a", limit=2)) == ["a", "a/1"]

    def test_a_note_is_replaced_and_removed(self, store: Store) -> None:
        with store.open_write() as writer:
            put_note(writer, "k", "1")
            put_note(writer, "gone", "1")
        with store.open_write() as writer:
            put_note(writer, "k", "2")
            put_note(writer, "gone", None)
            assert read_notes(writer, "") == {"k": "2"}
            assert [read_note(writer, key) for key in ("k", "gone", "never")] == ["2", None, None]

        state = store.small_state
        assert read_notes(state, "") == {"k": "2"}
        assert [read_note(state, key) for key in ("k", "gone", "never")] == ["2", None, None]

    def test_an_expired_note_is_not_there(self, store: Store) -> None:
        with store.open_write() as writer:
            put_note(writer, "old", "1", expires_us=1)
            put_note(writer, "new", "1", expires_us=2**60)

        state = store.small_state
        assert read_notes(state, "") == {"new": "1"}
        assert (read_note(state, "old"), read_note(state, "new")) == (None, "1")

    def test_notes_commit_with_the_events_of_their_write(self, store: Store) -> None:
        """F33, F82."""
        with pytest.raises(Boom), store.open_write() as writer:
            writer.append([seal_any()])
            put_note(writer, "cursor", "1")
            raise Boom

        assert (store.head(), read_notes(store.small_state, "")) == (0, {})
