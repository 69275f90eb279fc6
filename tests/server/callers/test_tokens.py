"""Tokens of a log that two processes change."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

import everlog
from everlog.errors import NotFound
from everlog.server.callers.tokens import Tokens


def test_a_token_that_was_revoked_meanwhile_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url) as here, everlog.open(url) as there:
        Tokens(here).new("ci", actor="service:ci")
        make = secrets.token_urlsafe

        def revoked_meanwhile(count: int) -> str:
            monkeypatch.undo()
            Tokens(there).revoke("ci")
            return make(count)

        monkeypatch.setattr(secrets, "token_urlsafe", revoked_meanwhile)
        with pytest.raises(NotFound):
            Tokens(here).rotate("ci")
        assert Tokens(there).every() == []
        with pytest.raises(NotFound):
            Tokens(here).revoke("ci")


def test_the_last_rotation_counts_in_every_process(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url) as here, everlog.open(url) as there:
        old = Tokens(here).new("ci", actor="service:ci", within="acme")
        first, second = Tokens(here).rotate("ci"), Tokens(there).rotate("ci")
        tokens = Tokens(here)
        assert [tokens.find(secret) is not None for secret in (old, first, second)] == [False, False, True]
        (token,) = tokens.every()
        assert (token.actor, token.within) == ("service:ci", "acme")
