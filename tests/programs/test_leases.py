"""Of several processes that claim one piece of work at once, one gets it: in each program that has claims."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import clean_environment

import everlog

CLAIM = """
import sys, everlog
from everlog import programs
url, actor, program, name = sys.argv[1:]
claim = next(one for one in programs.load(program).commands if one.verb == "claim")
field = "issue" if program == "issues" else "id"
with everlog.open(url, actor=actor) as log:
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        print("won", everlog.perform(log, claim(**{field: name})).result.claimed_by)
    except everlog.EverlogError as error:
        print("lost", error.code)
"""


def _create(program: str, log: everlog.Log) -> str:
    from everlog.programs.issues.commands import Create as CreateIssue
    from everlog.programs.workpackages.commands import Create as CreatePackage

    if program == "issues":
        return everlog.perform(log, CreateIssue(title="the door squeaks")).result.short_id
    return everlog.perform(log, CreatePackage(id="WP01", title="Oil the door")).result.id


@pytest.mark.parametrize(("program", "store"), [("issues", "sqlite:{}/log.db"), ("workpackages", "jsonl:{}/log")])
def test_of_eight_processes_that_claim_at_once_one_wins(program: str, store: str, tmp_path: Path) -> None:
    url = store.format(tmp_path)
    with everlog.open(url, actor="user:ada") as log:
        name, head = _create(program, log), log.head()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM, url, f"agent:n{number}", program, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment(tmp_path),
        )
        for number in range(8)
    ]
    for one in started:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in started:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    answers = [one.communicate(timeout=120)[0].split() for one in started]
    won = [who for how, who in answers if how == "won"]
    assert len(won) == 1, answers
    assert [code for how, code in answers if how == "lost"] == ["rule_refused"] * 7
    with everlog.open(url) as log:
        assert log.head() == head + 1
        ((_, row),) = log.view(f"{program}.claims").items()
        assert row["holder"] == won[0]
