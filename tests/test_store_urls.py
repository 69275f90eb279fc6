"""The URL of a store: what is one, its path, and what is never shown of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlog.errors import InvalidSettings
from everlog.store_urls import (
    has_password,
    require_url,
    shown_url,
    store_path,
    typed_url,
    url_below,
    url_from_folder,
    without_password,
)

# the URL, how it is shown in a message, and how it is typed again
URLS = [
    (
        "postgresql://ada:hunter2@db/logs?schema=a",
        "postgresql://db/logs?schema=a",
        "postgresql://ada@db/logs?schema=a",
    ),
    ("postgresql://ada@db/logs", "postgresql://db/logs", "postgresql://ada@db/logs"),
    ("postgresql://db/logs?user=u&password=hunter2", "postgresql://db/logs?user=u", "postgresql://db/logs?user=u"),
    ("postgresql://db/logs?sslpassword=hunter2", "postgresql://db/logs", "postgresql://db/logs"),
    ("postgresql:/u:hunter2@db/logs", "postgresql:/db/logs", "postgresql:/u@db/logs"),
    ("postgres:u:hunter2@x", "postgres:x", "postgres:u@x"),
    ("sqlite:a@b.db", "sqlite:a@b.db", "sqlite:a@b.db"),
    ("memory:", "memory:", "memory:"),
    ("log.db", "log.db", "log.db"),
    # signs that should be escaped in a password, and are not
    ("postgresql://u:hunter2/x@db/logs", "postgresql://db/logs", "postgresql://u@db/logs"),
    ("postgresql://u:hunter2?x@db/logs", "postgresql://db/logs", "postgresql://u@db/logs"),
    ("postgresql://u:hunter2@x@db/logs", "postgresql://db/logs", "postgresql://u@db/logs"),
    (
        "postgresql://u:hunter2/w?@x@db/logs?schema=a",
        "postgresql://db/logs?schema=a",
        "postgresql://u@db/logs?schema=a",
    ),
    ("postgresql://u:hunter2?a=b@db/logs", "postgresql://db/logs", "postgresql://u@db/logs"),
    # a sign @ in an option is not the end of a password
    (
        "postgresql://db/logs?user=ada@acme",
        "postgresql://db/logs?user=ada@acme",
        "postgresql://db/logs?user=ada@acme",
    ),
]


@pytest.mark.parametrize(("url", "shown", "typed"), URLS)
def test_a_url_is_shown_without_what_is_secret_in_it(url: str, shown: str, typed: str) -> None:
    assert shown_url(url) == shown
    assert without_password(url) == typed
    assert has_password(url) == ("hunter2" in url)


def test_a_url_is_typed_as_one_word_of_a_shell() -> None:
    assert typed_url("sqlite:my log.db") == "'sqlite:my log.db'"
    assert typed_url("postgresql://u:hunter2@db/logs") == "postgresql://u@db/logs"


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("", "sqlite:log.db"),
        ("jsonl", "jsonl:events"),
        ("log.db", "sqlite:log.db"),
        ("sqlite:", "sqlite:log.db"),
        ("postgresql:db", "postgresql://HOST/DATABASE"),
        ("mysql://db/logs", "there is no store mysql:"),
    ],
)
def test_a_text_that_is_no_url_is_refused_with_one_that_is(url: str, hint: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        require_url(url)
    assert refused.value.hint.startswith(hint)


def test_the_refusal_of_a_url_does_not_repeat_its_password() -> None:
    with pytest.raises(InvalidSettings) as refused:
        require_url("postgresql:/u:hunter2@db/logs")
    assert "hunter2" not in f"{refused.value} {refused.value.why} {refused.value.hint} {refused.value.details}"


def test_a_path_starts_where_it_is_relative_to() -> None:
    base = Path("/srv/shop")
    assert store_path("sqlite:log.db", base=base) == base / "log.db"
    assert store_path("segments:///data/log", base=base) == Path("/data/log")
    assert store_path("postgresql://db/logs", base=base) is None
    assert store_path("memory:", base=base) is None
    assert url_below("jsonl:log", Path("sub")) == "jsonl:sub/log"
    assert url_below("postgresql://db/logs", Path("sub")) == "postgresql://db/logs"
    assert url_from_folder("sqlite:log.db", base=base, folder=base / ".everlog") == "sqlite:../log.db"
    assert url_from_folder("sqlite:/tmp/log.db", base=base, folder=base / ".everlog") == "sqlite:/tmp/log.db"
