"""One error for many callers: each gets one of his own, unless that would not say the same."""

from __future__ import annotations

import errno

import pytest

from everlog.log.write.group import own_copy


class OwnOSError(OSError):
    def __init__(self, number: int, words: str) -> None:
        super().__init__(number, words)


class OwnUnicodeError(UnicodeDecodeError):
    def __init__(self, data: bytes) -> None:
        super().__init__("utf-8", data, 0, 1, "invalid start byte")


class Slotted(Exception):
    __slots__ = ("place",)

    def __init__(self, place: str) -> None:
        super().__init__("something is wrong")
        self.place = place


@pytest.mark.parametrize("trouble", [OwnOSError(errno.ENOSPC, "full"), OwnUnicodeError(b"\xff"), Slotted("here")])
def test_an_error_whose_copy_would_not_say_the_same_is_raised_by_all(trouble: Exception) -> None:
    assert own_copy(trouble) is trouble


def test_an_error_that_had_a_cause_is_copied_all_the_same() -> None:
    trouble = OSError(errno.EIO, "Input/output error")
    trouble.__cause__ = ValueError("why")
    made = own_copy(trouble)
    assert (type(made), str(made)) == (OSError, "[Errno 5] Input/output error")
    assert made is not trouble is made.__cause__


def test_an_error_of_a_group_says_its_words_once() -> None:
    class NoSuchTable(Exception):
        def __init__(self, name: str) -> None:
            super().__init__(f"no such table {name}")

    assert str(own_copy(NoSuchTable("a"))) == "no such table a"
