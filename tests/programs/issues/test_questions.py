"""What the questions about issues show, and to whom."""

from __future__ import annotations

from pathlib import Path

import everlog
from everlog.programs.command import By
from everlog.programs.issues.commands import Comment, Create
from everlog.programs.issues.questions import IssueHistory, Show
from everlog.programs.perform import ask, perform


def test_what_others_recorded_in_an_issue_is_shown_only_to_those_who_may_see_it(tmp_path: Path) -> None:
    url, ada = f"sqlite:{tmp_path / 'log.db'}", By(actor="user:ada")
    with everlog.open(url) as log, everlog.open(url) as other:
        uid = perform(log, Create(title="The door squeaks", project="house"), ada).result.uid
        perform(log, Comment(issue=uid, text="oil it"), ada)
        other.append("issue.commented", stream=f"issue/{uid}", payload={"body": "secret"}, scope="garden")
        for within, seen in (("", ["oil it", "secret"]), ("house", ["oil it"])):
            assert [one["body"] for one in ask(log, Show(issue=uid), within=within)["comments"]] == seen
            _, *comments = ask(log, IssueHistory(issue=uid), within=within)
            assert [one["said"]["body"] for one in comments] == seen
