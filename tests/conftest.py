"""Options and profiles of the whole suite."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("everlog.testing.store_contract", "everlog.testing.store_machine")

settings.register_profile("everyday", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.register_profile("full", deadline=None, max_examples=500)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the long forms: more kills, more events, more examples")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("full" if config.getoption("--full") else "everyday")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="long form: ./everlog test --full"))
