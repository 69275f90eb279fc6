"""docs/http.md has every route, as the table has it."""

from __future__ import annotations

from tests.docs.http_page import PAGE, page


def test_the_page_is_what_the_route_table_says() -> None:
    text = PAGE.read_text()
    assert page(text) == text, "write it again: python -m tests.docs.http_page"
