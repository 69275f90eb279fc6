"""The launcher as a module, and what plays the programs that it runs: a recorder, or small scripts."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "everlog"


def load() -> Any:
    loader = importlib.machinery.SourceFileLoader("everlog_launcher", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # or an "everlogc" would appear beside the script
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


launcher = load()


class FakeRunner:
    """Plays the installer: notes each command, fails those that contain a given word, makes what venv makes."""

    def __init__(self, log: Any, environ: Any, progress: Any = None) -> None:
        self.log = log
        self.environ = {"PATH": "", **{name: environ[name] for name in ("EVERLOG_WHEELS",) if name in environ}}

    commands: ClassVar[list[list[str]]]
    failing: ClassVar[tuple[str, ...]]

    def run(self, command: list[str]) -> bool:
        self.commands.append(command)
        self.log.write((" ".join(command) + "\n").encode())
        if any(word in command for word in self.failing):
            self.log.write(b"the reason it failed\n")
            self.log.flush()
            return False
        if "venv" in command:
            make_environment(Path(command[-1]))
        return True


def make_environment(venv: Path) -> None:
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "pyvenv.cfg").write_text("version = 3.11.2\n")


def make_fail(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(FakeRunner, "failing", words)


def installs(commands: list[list[str]]) -> list[list[str]]:
    return [command for command in commands if "install" in command]


def program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def refuse_writes_to(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a read-only mount would; the mode bits alone do not stop root."""
    real = os.access
    monkeypatch.setattr(launcher.os, "access", lambda path, mode: str(path) != str(place) and real(path, mode))
