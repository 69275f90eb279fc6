"""The stored state of a group: it commits with its write, it has the names of existing logs, and groups are apart."""

from __future__ import annotations

import json

import pytest

from everlog.consumers.group_state import (
    Grant,
    GroupState,
    Membership,
    Progress,
    forget_group,
    group_names,
    keep_group,
    keep_progress,
    read_group,
    read_progress,
)
from everlog.core.query import EVERYTHING
from everlog.stores.contract import Store
from everlog.stores.memory import MemoryStore
from everlog.stores.small_state import read_note

STATE = GroupState(
    key="stream",
    query=EVERYTHING,
    start="0",
    grants=(Grant("a", 1), Grant(), Grant("b", 2), Grant("a", 3)),
    members={"a": Membership(1, 100), "b": Membership(2, 200)},
    tokens=3,
)


def filled() -> Store:
    store = MemoryStore()
    with store.open_write() as write:
        for name in ("mailer", "mailer-2"):
            keep_group(write, name, STATE)
            keep_progress(write, name, 0, Progress("7@x", done=(9,), attempts={9: (1, 5)}))
    return store


def test_a_group_and_its_progress_are_read_back_equal() -> None:
    store = filled()
    assert read_group(store.small_state, "mailer") == STATE
    assert read_progress(store.small_state, "mailer", 0) == Progress("7@x", done=(9,), attempts={9: (1, 5)})
    assert read_group(store.small_state, "other") is None
    assert read_progress(store.small_state, "mailer", 1) is None


def test_the_members_keep_the_name_that_existing_logs_have() -> None:
    text = read_note(filled().small_state, "consumers/mailer/group")
    assert text is not None
    assert json.loads(text)["seats"] == {"a": {"token": 1, "until_us": 100}, "b": {"token": 2, "until_us": 200}}


def test_a_failed_write_changes_no_group() -> None:
    store = filled()
    with pytest.raises(ZeroDivisionError), store.open_write() as write:
        forget_group(write, "mailer")
        raise ZeroDivisionError
    assert read_group(store.small_state, "mailer") == STATE


def test_a_group_is_forgotten_without_one_whose_name_begins_alike() -> None:
    store = filled()
    with store.open_write() as write:
        forget_group(write, "mailer")
    assert group_names(store.small_state) == ["mailer-2"]
    assert read_progress(store.small_state, "mailer", 0) is None
    assert read_progress(store.small_state, "mailer-2", 0) is not None


def test_grants_change_one_by_one() -> None:
    changed = STATE.granting({1: Grant("b", 4)})
    assert (changed.held_by("a"), changed.held_by("b")) == ([0, 3], [1, 2])
    assert STATE.held_by("b") == [2]
