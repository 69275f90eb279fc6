"""What a person sees: at most 80 columns, no word cut, and a pager for what does not fit on the screen."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Result, Run

from everlog.cli import pager

COLUMNS = 80
SESSIONS = """
init ; init
init --program wp ; config show ; config get programs
schema add deploy.finished service:str 'result:ok | failed' 'seconds:float = 0' ; schema list
schema show deploy.finished ; schema lock ; schema check
append deploy.finished -s deploy/1 service=shop result=broken ; errors ; errors --stats
append nte.added -s note/1 text=x ; append note.added -s note/1 txt=x ; append note.added
append note.added -s note/1 text='Hello' --actor user:somebody.with.a.rather.long.name ; log ; show 1
log --type note.aded ; log -s note/2 ; log -n 2 --reverse ; log --since 1h ; log --kind memo
tail --no-follow ; tail -n 3 --no-follow ; log --to-end -n 1 ; log --after 0 -n 2 ; log --after 0 --limit 1
state note/long ; state note/log ; state streams note/long ; state nothing
diff note/long 1 2 ; diff note/long -1h ; why note/long text ; why note/long nothing
views list ; views get streams ; views get streams note/long ; views get stream ; views rebuild types --yes
purge note/gone --reason 'It was a mistake that nobody wants to see again, so it has to go' ; log --purges
purge note/gone --reason mistake --force --confirm 'purge note/gone' ; log --purges ; log ; verify
verify ; doctor ; verify --json
export - ; export all.jsonl ; import all.jsonl --dry-run ; import nothing.jsonl
copy here sqlite:other.db ; copy sqlite:.everlog/log.db sqlite:other.db ; verify --log sqlite:other.db
config set scope acme/shop ; config set scop x ; config get scope ; config path
help ; help --all ; help exit-codes ; help output ; help cursors ; help types ; help agents ; help nothing
help operations ; log --help ; append --help ; serve --help ; sync --help ; views rebuild --help
lgo ; log --lmit 3 ; log --limit 3 ; log -n x ; views ; snapshot ; keys
wp spec checkout 'Pay with one click, in all of the shops that we have, on the telephone and elsewhere' ; wp board
wp create WP50 'A title that is so long that no line of a terminal has room for all of it' --feature checkout
wp status WP01 ; wp history WP01 ; wp next ; wp claim WP01 ; wp move WP01 nowhere ; wp board --all ; wp nxt
issue list ; issue list --status all -n 3 ; issue ready ; issue search door ; issue show nothing
issue create 'The door squeaks whenever somebody opens it, which keeps the whole house awake' ; issue list
issue create 'The door squeaks whenever somebody opens it, which keeps the whole house awake now' ; issue list
agent list ; agent list --pending ; agent sources ; agent propose shell '{"run": "make deploy of all that there is"}'
community members ; community chats ; community posts ; community policy ; community files ; community show
control list ; control audit acme ; control deploy history acme/shop/prod ; control desired acme/shop/prod
snapshot create streams ; snapshot list ; snapshot verify ; snapshot list nothing
consumers list ; consumers lag nobody ; conflicts list ; conflicts detect
keys list ; keys new ; checkpoint ; heads
tokens list ; tokens new robot --actor agent:robot ; tokens revoke robot ; hooks list ; peers list
index rebuild ; segments archive ; dump ; git install ; upgrade
program list ; program new inventory ; program list
pipeline --help ; pipeline check --help ; bench --help ; demo --help ; completion --help ; forget --help
forget user:nobody ; forget --status ; sync ; join ; peers add
init --store nonsense:x other ; init --agents third ; verify -C third ; -C third ; --version
errors -n 5 ; errors --code wrong_sequence ; append note.added -s note/1 text=x --expect 99 ; errors -n 1
-C nowhere log ; --log sqlite:nowhere.db log ; log --after nonsense ; show zzz ; show 01M7GNA1VYFX6R4DN7FYV6RCAF
"""


@pytest.fixture
def terminal(place: Path, everlog: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line on a terminal of 80 columns, in a folder with a log in which everything is long."""
    long = "This text is far longer than a line, and it goes on with words; " * 5
    for words in (
        ["init"],
        ["append", "note.added", "-s", "note/long", f"text={long}", "--actor", "agent:builder-of-the-north-wing"],
        ["append", "note.added", "-s", "note/long", "text=Short now", "--key", "k1"],
        ["append", "note.added", "-s", "note/gone", "text=gone", "--actor", "user:ada"],
        ["wp", "create", "WP01", "Build the door of the house that stands at the far end of the garden"],
        ["issue", "create", "The window of the kitchen does not close any more, and the rain comes in"],
        ["community", "create", "house"],
        ["control", "org", "create", "acme"],
        ["control", "app", "create", "acme/shop"],
        ["control", "environment", "create", "acme/shop/prod"],
        ["control", "deploy", "request", "acme/shop/prod", "registry.example.org/shop@sha256:" + "0" * 64],
    ):
        found = everlog(*words)
        assert found.code == 0, found.err
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("TERM", "xterm")

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        with monkeypatch.context() as patched:
            for stream in (sys.stdout, sys.stderr):
                patched.setattr(stream, "isatty", lambda: True)
            return everlog(*arguments, stdin=stdin)

    return run


def lines_of(found: Result) -> list[str]:
    return re.sub("\x1b\\[[0-9;]*m", "", found.out + found.err).replace("\r", "\n").split("\n")


def too_long(lines: list[str]) -> list[str]:
    """Return the lines that exceed the terminal, but for one word that alone has no room on any line."""
    return [line for line in lines if len(line) > COLUMNS and len(line.split()) > 1]


def cut_words(lines: list[str]) -> list[str]:
    """Return words that were cut, unless they would fill half a line."""
    found = [word for line in lines for word in re.findall(r"\S+…", line)]
    return [word for word in found if len(word) < COLUMNS // 2 and not word.endswith(("=…", "type…"))]


@pytest.mark.parametrize("session", SESSIONS.strip().split("\n"))
def test_no_line_is_too_long_and_no_word_is_cut(terminal: Run, session: str) -> None:
    calls = [shlex.split(call) for call in session.split(" ; ")]
    for call in calls:
        if "--json" not in call and call != ["export", "-"]:
            lines = lines_of(terminal(*call))
            assert too_long(lines) == [], call
            assert cut_words(lines) == [], call
            assert "because of a defect" not in "".join(lines), call


def test_there_are_forty_sessions() -> None:
    assert len(SESSIONS.strip().split("\n")) >= 40


def every_command() -> list[str]:
    names = (Path(__file__).parents[1] / "visible" / "recorded" / "options.txt").read_text(encoding="utf-8")
    return re.findall(r"^# (.+)$", names, re.MULTILINE)


def test_no_page_of_help_has_a_longer_line(terminal: Run) -> None:
    wrong = {}
    for name in every_command():
        found = terminal(*name.split(), "--help")
        if lines := too_long(lines_of(found)):
            wrong[name] = lines
    assert wrong == {}


# ---- the pager


@pytest.fixture
def small_screen(monkeypatch: pytest.MonkeyPatch, place: Path) -> Callable[[str], None]:
    def page_with(command: str) -> None:
        monkeypatch.setenv("PAGER", command)
        monkeypatch.setattr(pager, "_rows", lambda: 5)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)

    return page_with


def test_more_than_a_screen_goes_to_the_pager(
    capfd: pytest.CaptureFixture[str], small_screen: Callable[[str], None]
) -> None:
    small_screen("sed 's/^/paged: /'")
    pager.show(["1", "2", "3", "4"])
    assert capfd.readouterr().out == "1\n2\n3\n4\n"
    pager.show(["1", "2", "3", "4", "5"])
    assert capfd.readouterr().out == "".join(f"paged: {number}\n" for number in range(1, 6))


@pytest.mark.parametrize("command", ["cat", "", "there-is-no-such-pager 2>/dev/null"])
def test_without_a_pager_it_is_printed(
    capfd: pytest.CaptureFixture[str], small_screen: Callable[[str], None], command: str
) -> None:
    small_screen(command)
    pager.show([*"12345"])
    assert capfd.readouterr().out == "1\n2\n3\n4\n5\n"


def test_less_ends_if_it_fits_and_keeps_colours(
    capfd: pytest.CaptureFixture[str], small_screen: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_screen("sh -c 'cat >/dev/null; echo $LESS'")
    monkeypatch.delenv("LESS", raising=False)
    pager.show([*"12345"])
    assert capfd.readouterr().out == "FRX\n"
    monkeypatch.setenv("LESS", "M")
    pager.show([*"12345"])
    assert capfd.readouterr().out == "M\n"


def test_a_pipe_gets_no_pager(everlog: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", f"tee {place}/paged")
    monkeypatch.setattr(pager, "_rows", lambda: 2)
    assert len(everlog("help", "--all").out.splitlines()) > 40
    assert not (place / "paged").exists()
