"""checkpoint, prove, heads, and what verify checks of their files."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.trust import stranger

from everlog.errors import CHECK_FAILED


def test_a_checkpoint_is_compared_with_the_log(notes: Run, tmp_path: Path) -> None:
    made = notes("checkpoint")
    assert made.out.splitlines()[1] == "5"
    assert "has no key" in made.err
    file = str(tmp_path / "monday")
    assert notes("checkpoint", "--out", file).code == 0
    assert Path(file).read_text() == made.out
    assert notes("append", "note.added", "-s", "note/9", "text=later").code == 0

    found = json.loads(notes("verify", "--checkpoint", file, "--json").out)["data"]
    assert (found["ok"], found["checkpoint"], found["signed_by"]) == (True, 5, "nobody")
    Path(file).write_text(made.out.replace("\n5\n", "\n4\n"))
    found_wrong = notes("verify", "--checkpoint", file)
    assert found_wrong.code == CHECK_FAILED
    assert "checkpoint_differs" in found_wrong.out
    Path(file).write_text(made.out.replace("\n5\n", "\n9\n"))
    assert "log_cut_off" in notes("verify", "--checkpoint", file).out


def test_a_proof_is_checked_without_the_log(notes: Run, tmp_path: Path) -> None:
    file = tmp_path / "event.proof"
    assert notes("prove", "#2", "--payload", "--out", str(file)).code == 0
    here = json.loads(notes("verify", "--proof", str(file), "--json").out)["data"]
    assert here["proves"] == "event #2"
    assert here["events"] == 5
    elsewhere = notes("-C", "/", "verify", "--proof", str(file))
    assert elsewhere.code == 0
    assert "no log of this id here" in elsewhere.err
    file.write_text(file.read_text().replace('"position": 2', '"position": 3'))
    assert notes("-C", "/", "verify", "--proof", str(file)).code == 3


def test_a_proof_is_printed_as_it_is_written(notes: Run) -> None:
    printed = json.loads(notes("prove", "#1").out)
    assert printed["format"] == "everlog proof 1"
    assert "payload" not in printed
    assert json.loads(notes("prove", "#1", "--json").out)["data"] == printed


def test_heads_list_every_origin(notes: Run) -> None:
    note = notes("heads").out
    assert note.startswith("everlog heads 1\n")
    found = json.loads(notes("heads", "--json").out)["data"]
    assert [head["end"] for head in found["origins"].values()] == [5]
    assert found["note"] == note


def test_verify_takes_one_file(notes: Run, tmp_path: Path) -> None:
    assert notes("verify", "--key", "z6Mk").code == 2
    assert notes("verify", "--proof", "a", "--checkpoint", "b").code == 2
    assert notes("verify", "--proof", str(tmp_path / "none")).code == 4
    assert notes("verify", "--proof", str(tmp_path)).code == 4
    bad = tmp_path / "bad"
    bad.write_bytes(b"\xff" * 10)
    assert notes("verify", "--proof", str(bad)).code == 3
    assert notes("verify", "--checkpoint", str(bad)).code == 3
    bad.write_bytes(b"a" * 2_000_000)
    assert notes("verify", "--checkpoint", str(bad)).code == 3


def test_a_key_that_did_not_sign_is_named(notes: Run, tmp_path: Path) -> None:
    file = tmp_path / "c"
    notes("checkpoint", "--out", str(file))
    other = "z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
    refused = notes("verify", "--checkpoint", str(file), "--key", other)
    assert refused.code == 3
    assert "signed by nobody" in refused.err
    assert notes("verify", "--checkpoint", str(file), "--key", "nobody").code == 3


def test_a_signed_log_signs_and_a_stranger_checks(everlog: Run, tmp_path: Path) -> None:
    assert everlog("init", "--signed").code == 0
    for text in ("one", "two"):
        assert everlog("append", "note.added", "-s", "note/1", f"text={text}").code == 0
    note, proof = tmp_path / "note", tmp_path / "proof"
    assert everlog("checkpoint", "--out", str(note)).code == 0
    assert everlog("prove", "#2", "--payload", "--out", str(proof)).code == 0
    (name,) = stranger.open_note(note.read_bytes())[1]
    assert stranger.check_proof(json.loads(proof.read_text()))[1] == [name]
    own = name.split("/")[2]
    for arguments in (("--checkpoint", str(note)), ("--proof", str(proof))):
        found = json.loads(everlog("verify", *arguments, "--key", own, "--json").out)["data"]
        assert (found["ok"], found["signed_by"], found["cosigned_by"]) == (True, own, [])
        assert everlog("-C", "/", "verify", *arguments, "--key", f"did:key:{own}").code == 0
    assert everlog("heads").out.count("— ") == 1
