"""Views of one's own whose code is broken: everything else answers, and a purge reaches what they kept."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from everlog.views.builds.open_build import OpenBuild
from everlog.views.registry import Views

WORDS = "unmistakable-words"

OWN = """
from everlog import View

class Texts(View):
    name = "texts"
    types = ("note.added",)

    def initial(self):
        return {"texts": []}

    def apply(self, state, event):
        return {"texts": [*state["texts"], event.payload["text"]]}

class ByActor(Texts):
    name = "by-actor"

    def key(self, event):
        return event.actor

VIEWS = [Texts, ByActor]
"""

NOT_LOADED = {
    "gone": "",
    "a library is missing": "import no_such_library\n",
    "fails": "1 / 0\n",
    "fails without Exception": "class Odd(BaseException): pass\nraise Odd('odd')\n",
    "fails with an error that cannot be shown": "class Odd(Exception):\n def __str__(self): 1 / 0\nraise Odd\n",
    "no such attribute": "OTHER = 1\n",
}
NOT_USED = {
    "is no view": "VIEWS = 5\n",
    "is a class that is no view": "class VIEWS: pass\n",
    "is no view, and cannot be shown": "class Odd:\n def __repr__(self): 1 / 0\nVIEWS = Odd()\n",
    "is a list with one that is no view": OWN + "VIEWS = [5]\n",
    "cannot be made": OWN + "class Bad(Texts):\n def __init__(self): 1 / 0\nVIEWS = [Bad]\n",
    "cannot be made: odd": OWN + "class Bad(Texts):\n def __init__(self): raise GeneratorExit\nVIEWS = [Bad]\n",
    "needs arguments": OWN + "class Bad(Texts):\n def __init__(self, place): pass\nVIEWS = [Bad]\n",
    "has a bad name": OWN + "class Bad(Texts):\n name = 'No Name'\nVIEWS = [Bad]\n",
    "has no name": OWN + "class Bad(Texts):\n name = 7\nVIEWS = [Bad]\n",
    "has a bad version": OWN + "class Bad(Texts):\n version = 0\nVIEWS = [Bad]\n",
    "has bad types": OWN + "class Bad(Texts):\n types = 5\nVIEWS = [Bad]\n",
    "has the name of a built-in view": OWN + "class Bad(Texts):\n name = 'streams'\nVIEWS = [Bad]\n",
    "has the name of a program's view": OWN + "class Bad(Texts):\n name = 'issues.current'\nVIEWS = [Bad]\n",
    "has the name of the fields": OWN + "class Bad(Texts):\n name = 'fields'\nVIEWS = [Bad]\n",
}
BROKEN = NOT_LOADED | NOT_USED
Break = Callable[[str], None]


@pytest.fixture(params=["sqlite:log.db", "jsonl:log"])
def own(request: pytest.FixtureRequest, everlog: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Notes on two streams, and views of one's own that have been run and rebuilt."""
    assert everlog("init", "--store", request.param).code == 0
    (place / "own_views.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sys.modules.pop("own_views", None)
    assert everlog("config", "set", "views", "own_views:VIEWS").code == 0
    assert everlog("append", "note.added", "-s", "note/1", "text=stays").code == 0
    assert everlog("append", "note.added", "-s", "note/2", f"text={WORDS}", "--actor", "user:ada").code == 0
    assert everlog("views", "run", "--to-end").code == 0
    assert everlog("views", "rebuild", "texts").code == 0
    return everlog


@pytest.fixture
def break_it(own: Run, place: Path) -> Break:
    def write(code: str) -> None:
        sys.modules.pop("own_views", None)
        (place / "own_views.py").unlink(missing_ok=True)
        if code:
            (place / "own_views.py").write_text(code)

    return write


def words_left(place: Path) -> list[str]:
    return [str(path) for path in place.rglob("*") if path.is_file() and WORDS.encode() in path.read_bytes()]


def purge(own: Run) -> tuple[int, str]:
    done = own("purge", "note/2", "--reason", "a request", "--confirm", "purge note/2")
    return done.code, done.err


@pytest.mark.parametrize("code", BROKEN.values(), ids=BROKEN)
def test_a_purge_takes_the_states_of_broken_views_along_and_does_not_fail(
    own: Run, place: Path, break_it: Break, code: str
) -> None:
    assert words_left(place), "otherwise this proves nothing"
    break_it(code)
    done, told = purge(own)
    assert (done, told.count("left out")) == (0, 1)
    assert words_left(place) == []
    break_it(OWN)
    assert own("views", "get", "texts", "--json").data["states"] == {"note/1": {"texts": ["stays"]}}
    assert own("views", "get", "by-actor", "user:ada").code == 4
    assert own("views", "audit").code == 0


@pytest.mark.parametrize("own", ["sqlite:log.db"], indirect=True)
@pytest.mark.parametrize("code", BROKEN.values(), ids=BROKEN)
def test_everything_else_answers_with_a_warning(own: Run, break_it: Break, code: str) -> None:
    break_it(code)
    words = "cannot be loaded, and are left out" if code in NOT_LOADED.values() else "cannot be used, and is left out"
    for asked in (("state", "note/1"), ("views",), ("views", "get", "streams", "note/1"), ("why", "note/1", "text")):
        found = own(*asked)
        assert (found.code, found.err.count(words)) == (0, 1), (asked, found.err)
    assert "everlog config set views ''" in own("views").err
    missing = own("views", "get", "texts", "note/1")
    assert (missing.code, "there is no view texts" in missing.err, words in missing.err) == (4, True, True)
    assert own("doctor").code == 0


@pytest.mark.parametrize("own", ["sqlite:log.db"], indirect=True)
def test_a_broken_view_leaves_its_neighbours_alone(own: Run, break_it: Break) -> None:
    break_it(OWN + "class Other(Texts): pass\nVIEWS = [5, Texts, Texts, Other, ByActor]\n")
    found = own("views", "get", "texts", "note/2")
    assert (found.code, WORDS in found.out) == (0, True)
    assert found.err.count("is left out") == 2
    assert "own_views.Texts has the name texts already" in found.err
    assert own("views", "get", "by-actor", "user:ada").code == 0


@pytest.mark.parametrize("own", ["sqlite:log.db"], indirect=True)
def test_a_setting_that_is_no_module_and_attribute_is_told_and_hinders_nobody(
    own: Run, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setenv("EVERLOG_VIEWS", "nonsense")
    found = own("state", "note/1")
    assert (found.code, "it is not of the form module:attribute" in found.err) == (0, True)
    assert purge(own)[0] == 0
    assert words_left(place) == []


@pytest.mark.parametrize("own", ["sqlite:log.db"], indirect=True)
@pytest.mark.parametrize("name", [name for name in NOT_USED if "view" not in name])
def test_a_view_that_cannot_be_used_is_refused_as_a_setting(own: Run, break_it: Break, name: str) -> None:
    break_it(NOT_USED[name])
    refused = own("config", "set", "views", "own_views:VIEWS", "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_settings")


@pytest.mark.parametrize("own", ["sqlite:log.db"], indirect=True)
@pytest.mark.parametrize("end", ["raise SystemExit(0)\n", "raise KeyboardInterrupt\n"])
def test_code_that_ends_the_program_does_so_before_anything_is_purged(
    own: Run, break_it: Break, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    break_it(end)
    if "SystemExit" in end:
        with pytest.raises(SystemExit):
            purge(own)
        assert "the views 'own_views:VIEWS' end this program while they are loaded, with 0" in capsys.readouterr().err
    else:
        assert purge(own)[0] == 130
    break_it(OWN)
    assert own("log", "--purges", "--json").data == []


def test_states_that_could_not_be_emptied_are_told_and_emptied_later(
    own: Run, place: Path, break_it: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object, **named: object) -> None:
        raise OSError("no room")

    break_it("")
    with monkeypatch.context() as hindered:
        hindered.setattr("everlog.views.builds.purge.drop_build", full)
        hindered.setattr(OpenBuild, "advance", full)
        done, told = purge(own)
    assert (done, own("log", "--purges", "--json").data[0]["stream"]) == (0, "note/2")
    assert words_left(place)
    assert (
        "the purge of note/2 is recorded, but the states of actors, by-actor, streams, texts, types may still contain"
        in told
    )
    assert "OSError: no room; when that is repaired, type: everlog views run --to-end" in told
    assert own("views", "run", "--to-end").code == 0
    assert words_left(place) == []


@pytest.mark.parametrize("own", ["sqlite:log.db"], indirect=True)
def test_a_purge_stands_and_says_so_even_if_there_is_no_getting_at_the_states(
    own: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object, **named: object) -> None:
        raise OSError("no such disk")

    with monkeypatch.context() as hindered:
        hindered.setattr(Views, "__init__", broken)
        done, told = purge(own)
    assert done == 0
    assert "the purge of note/2 is done, but the states of views may still contain words of it: no such disk" in told
    assert own("views", "run", "--to-end").code == 0
    assert words_left(place) == []
