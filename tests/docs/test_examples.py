"""The programs in examples/ run, and print what they should. Each states in its first line what it shows."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

import everlog

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], ModuleType]:
    """A function that imports an example by its name. The current folder is an empty one."""
    monkeypatch.chdir(tmp_path)

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


def test_every_example_states_what_it_shows_and_stays_short() -> None:
    paths = sorted(EXAMPLES.glob("*.py"))
    assert len(paths) == 4
    for path in paths:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith('"""')
        assert 40 <= len(lines) <= 120, path.name


def test_a_task_runs_only_when_a_person_has_approved_it(
    example: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    example("agent_queue").main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("refused: agent:builder cannot approve its own command")
    assert lines[1].startswith("worker-1 runs ")
    assert lines[2:] == ["pytest executed", "rm rejected"]


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgresql"])
def test_the_outbox_sells_once_per_request_and_publishes_around_a_dead_letter(
    store: str,
    example: Callable[[str], ModuleType],
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    url = {"memory": "memory:", "sqlite": "sqlite:shop.db"}.get(store) or request.getfixturevalue("postgres_url")
    example("outbox").main(url)
    assert capsys.readouterr().out.splitlines() == [
        "ada sold",
        "bob sold",
        "eve sold",
        "eve sold",
        "kim none left",
        "published [('article/lamp', 'ada'), ('article/lamp', 'bob')]",
        "dead letters [(4, 'ConnectionError: the broker did not answer')]",
    ]


def test_every_change_of_a_row_is_in_the_audit_log(
    example: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    example("sqlalchemy_audit").main()
    assert capsys.readouterr().out.splitlines() == [
        "1 insert {'city': [None, 'Bern'], 'id': [None, 42], 'name': [None, 'Bob']}",
        "2 update {'city': ['Bern', 'Basel']}",
        "3 delete {'city': ['Basel', None], 'id': [42, None], 'name': ['Bob', None]}",
        "sound",
    ]


def test_the_to_do_app_answers_retries_equally_and_reports_conflicts(example: Callable[[str], ModuleType]) -> None:
    app = example("todo_app").app

    async def talk() -> list[tuple[int, Any]]:
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://x") as web,
        ):
            milk, key = {"title": "Buy milk"}, {"Idempotency-Key": "1"}
            answers = [
                await web.post("/todos/milk", json=milk, headers=key),
                await web.post("/todos/milk", json=milk, headers=key),
                await web.post("/todos/milk", json=milk),
                await web.post("/todos/bread/done"),
                await web.post("/todos/milk/done"),
                await web.get("/todos"),
            ]
            return [(one.status_code, one.json()) for one in answers]

    first, again, twice, missing, done, shown = asyncio.run(talk())
    assert first == again == (201, {"position": 1})
    assert (twice[0], twice[1]["code"]) == (409, "wrong_sequence")
    assert (missing[0], missing[1]["code"]) == (409, "wrong_sequence")
    assert done == (200, {"position": 2})
    assert shown == (200, {"milk": {"title": "Buy milk", "done": True}})
    with everlog.open("sqlite:todo.db", create=False) as log:
        assert log.verify().ok


def test_the_notebook_runs_and_reads_again_after_a_purge(capsys: pytest.CaptureFixture[str]) -> None:
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "notebook.ipynb", "exec"), names)
    assert capsys.readouterr().out.splitlines() == [
        "[(5, 'text 4', 'work'), (6, 'text 5', 'weather')]",
        "[('weather', 3), ('work', 2), ('home', 1)]",
        "reset: purged",
        "[('weather', 3), ('home', 2), ('work', 1)]",
    ]
