"""How many histories a Hypothesis machine plays: a number for every run, and one for --full."""

from __future__ import annotations

from hypothesis import settings


def examples(everyday: int, *, full: int, steps: int) -> settings:
    """Return the settings of a machine; `tests/conftest.py` has loaded the profile."""
    is_full = settings.get_current_profile_name() == "full"
    return settings(max_examples=full if is_full else everyday, stateful_step_count=steps, deadline=None)
