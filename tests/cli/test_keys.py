"""everlog keys: a private key is in its own folder, in a file that somebody asked for, and nowhere else."""

from __future__ import annotations

import base64
import importlib.util
import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.trust.test_key_files import openssh

from everlog.testing.signing import key
from everlog.trust.key_files import KeyFolder

KEY = key(7)


@pytest.fixture
def signed(everlog: Run) -> Run:
    assert everlog("init", "--signed").code == 0
    assert everlog("append", "note.added", "-s", "note/1", "text=one").code == 0
    return everlog


def folder(place: Path) -> KeyFolder:
    return KeyFolder(place / ".everlog" / "keys", passphrase=lambda name: b"correct horse")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_keys_are_listed_and_shown_in_every_form(signed: Run) -> None:
    ((own, use, last, passphrase),) = signed("keys", "list").rows
    assert (use, last, passphrase) == ("signs", "1", "no")
    shown = signed("keys", "show", "--json").data
    assert shown["key"] == own
    assert shown["did"] == f"did:key:{own}"
    assert shown["openssh"].startswith("ssh-ed25519 AAAA")
    assert shown["verifier"].startswith(f"everlog/{signed('--json').data['log_id']}/{own}/")
    for form in ("did", "openssh"):
        assert signed("keys", "show", shown[form], "--json").data == shown
    spare = signed("keys", "new", "-q").out.strip()
    assert {row[0]: row[1] for row in signed("keys", "list").rows} == {own: "signs", spare: "spare"}


def test_a_checkpoint_is_checked_with_the_verifier_key(signed: Run, place: Path) -> None:
    shown = signed("keys", "show", "--json").data
    assert signed("checkpoint", "--out", "monday").code == 0
    for form in ("key", "did", "openssh", "verifier"):
        assert signed("verify", "--checkpoint", "monday", "--key", shown[form]).code == 0


def test_a_log_continues_under_a_new_key(signed: Run) -> None:
    old = signed("keys", "show", "-q").out.strip()
    done = signed("keys", "rotate", "--json").data
    assert done["before"] == old
    assert signed("append", "note.added", "-s", "note/1", "text=two").code == 0
    assert {row[0]: row[1:3] for row in signed("keys", "list").rows} == {
        old: ["former", "2"],
        done["key"]: ["signs", "1"],
    }
    assert signed("verify").code == 0
    spare = signed("keys", "new", "-q").out.strip()
    assert signed("keys", "rotate", "--to", f"did:key:{spare}", "-q").out.strip() == spare
    refused = signed("keys", "rotate", "--to", old, "--json")
    assert refused.error["code"] == "conflict"
    assert signed("keys", "rotate", "--to", "nonsense", "--json").error["code"] == "invalid_field"


def test_what_is_refused_says_what_to_type(everlog: Run) -> None:
    assert everlog("keys", "list").code == 4
    everlog("init")
    assert everlog("keys", "list").rows == []
    assert everlog("keys", "show", "--json").error["hint"].startswith("everlog config set sign required")
    assert everlog("keys", "rotate", "--json").error["code"] == "no_key"
    assert everlog("keys", "export", "out.key", "--json").error["code"] == "no_key"
    assert everlog("keys", "import", "nowhere", "--json").error["code"] == "not_found"


def test_an_unsigned_log_that_must_be_signed_gets_a_key_with_its_next_event(everlog: Run) -> None:
    everlog("init")
    everlog("append", "note.added", "-s", "note/1", "text=one")
    assert everlog("config", "set", "sign", "required").code == 0
    assert everlog("append", "note.added", "-s", "note/1", "text=two").code == 0
    assert [row[1:3] for row in everlog("keys", "list").rows] == [["signs", "1"]]
    # It never falls back: without its key it refuses, whatever the setting.
    shutil.rmtree(".everlog/keys")
    for setting in ("required", "off"):
        everlog("config", "set", "sign", setting)
        refused = everlog("append", "note.added", "-s", "note/1", "text=three", "--json")
        assert (refused.code, refused.error["code"]) == (7, "no_key")
    assert everlog("log").code == 0


def test_a_key_is_exported_to_a_new_file_and_imported_again(signed: Run, place: Path) -> None:
    target = place / "saved.key"
    assert signed("keys", "export", "saved.key").code == 0
    assert mode(target) == 0o600
    assert signed("keys", "export", "saved.key", "--json").error["code"] == "conflict"
    shutil.rmtree(".everlog/keys")
    assert signed("append", "note.added", "-s", "note/1", "text=two").code == 7
    assert signed("keys", "import", "saved.key").code == 0
    assert signed("append", "note.added", "-s", "note/1", "text=two").code == 0
    assert (mode(place / ".everlog" / "keys"), mode(next((place / ".everlog" / "keys").glob("*.key")))) == (
        0o700,
        0o600,
    )
    target.chmod(0o644)
    assert "chmod 600" in signed("keys", "import", "saved.key", "--json").error["hint"]


def test_a_key_with_a_passphrase_is_used_with_the_file_that_has_it(signed: Run, place: Path) -> None:
    (place / "phrase").write_text("correct horse\n")
    signed("config", "set", "passphrase_file", "../phrase")
    spare = signed("keys", "new", "--passphrase", "-q").out.strip()
    assert signed("keys", "rotate", "--to", spare).code == 0
    assert signed("append", "note.added", "-s", "note/1", "text=two").code == 0
    successor = signed("keys", "rotate", "-q").out.strip()  # protected as the one before it
    assert {row[0]: row[3] for row in signed("keys", "list").rows}[successor] == "yes"
    (place / "phrase").write_text("wrong\n")
    refused = signed("append", "note.added", "-s", "note/1", "text=three", "--json")
    assert (refused.error["code"], "wrong" in refused.error["why"]) == ("no_key", True)
    signed("config", "set", "passphrase_file", "")
    assert "no terminal" in signed("append", "note.added", "-s", "note/1", "text=x", "--json").error["message"]


def test_an_openssh_key_is_imported(signed: Run, place: Path) -> None:
    file = place / "id_ed25519"
    file.write_bytes(openssh(KEY.seed, KEY.public.raw))
    file.chmod(0o600)
    assert signed("keys", "import", str(file), "-q").out.strip() == KEY.public.origin
    assert signed("keys", "rotate", "--to", KEY.public.openssh).code == 0
    assert signed("append", "note.added", "-s", "note/1", "text=two").code == 0


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_an_openssh_key_with_a_passphrase_needs_the_extra(signed: Run, place: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "correct horse", "-f", str(place / "locked")]
    subprocess.run(command, check=True)
    public = (place / "locked.pub").read_text()
    (place / "phrase").write_text("correct horse\n")
    signed("config", "set", "passphrase_file", "../phrase")
    taken = signed("keys", "import", "locked", "--json")
    if not (importlib.util.find_spec("cryptography") and importlib.util.find_spec("bcrypt")):
        assert (taken.code, taken.error["code"]) == (7, "unavailable")
        assert "pip install 'cryptography[ssh]'" in taken.error["hint"]
    else:
        assert signed("keys", "show", public, "-q").out.strip() == taken.data["key"]
        (place / "phrase").write_text("wrong\n")
        assert signed("keys", "import", "locked", "--json").error["code"] == "no_key"


def test_a_private_key_is_in_nothing_that_is_printed_or_written_elsewhere(signed: Run, place: Path) -> None:
    """Every command that touches keys or writes files, and every refusal; then all bytes are searched."""
    printed: list[str] = []

    def run(*words: str) -> None:
        for form in ((), ("--json",), ("--agent",)):
            done = signed(*words, *form)
            printed.extend((done.out, done.err))

    first = KeyFolder(place / ".everlog" / "keys").list()[0].origin
    (place / "id").write_bytes(openssh(KEY.seed, KEY.public.raw))
    (place / "id").chmod(0o600)
    for words in (
        ("keys", "new"),
        ("keys", "import", "id"),
        ("keys", "list"),
        ("keys", "show"),
        ("keys", "rotate", "--to", KEY.public.origin),
        ("append", "note.added", "-s", "note/1", "text=two"),
        ("keys", "rotate"),
        ("keys", "rotate", "--to", first),
        ("keys", "export", "saved.key"),
        ("keys", "export", "saved.key"),
        ("keys", "import", "saved.key"),
        ("checkpoint", "--out", "c"),
        ("prove", "#1", "--out", "p"),
        ("heads",),
        ("export", "--out", "events.jsonl"),
        ("copy", "jsonl:copy"),
        ("copy", "segments:copied"),
        ("snapshot", "create"),
        ("views", "list"),
        ("purge", "note/1", "--reason", "test", "--yes"),
        ("errors",),
        ("log",),
        ("verify",),
        ("doctor",),
        ("config", "show"),
    ):
        run(*words)
    keys = folder(place)
    seeds = [keys.load(one.origin).seed for one in keys.list()]
    assert len(seeds) >= 5
    forms = [
        form
        for seed in seeds
        for form in (seed, seed.hex().encode(), base64.b64encode(seed)[:40], base64.urlsafe_b64encode(seed)[:40])
    ]
    everything = {"what was printed": "".join(printed).encode()} | {
        str(file): file.read_bytes()
        for file in place.rglob("*")
        if file.is_file() and keys.path not in file.parents and file.name not in ("saved.key", "id")
    }
    assert len(everything) > 8
    assert [name for name, data in everything.items() for form in forms if form in data] == []
    assert any(form in (place / "saved.key").read_bytes() for form in forms)  # so the search can find something


def test_the_members_who_act_from_a_log_announce_its_next_key(signed: Run) -> None:
    """So their rights pass to it: a community knows its members by their nodes."""
    made = signed("community", "create", "hearth", "--sealed", "--actor", "user:ada", "-q").out.strip()
    old = signed("keys", "show", "-q").out.strip()
    new = signed("keys", "rotate", "-q").out.strip()
    assert signed("config", "set", "authors", f"community:{made}").code == 0
    assert signed("community", "policy", "--who-chats", "moderator", "--actor", "user:ada").code == 0
    assert signed("community", "members", "--json").data[0]["member"] == "user:ada"
    types = [row[3] for row in signed("log").rows]
    assert [one for one in types if one != "note.added"] == [
        "community.created",
        "node.manifest.updated",
        "origin.succeeded",
        "community.policy.updated",
    ]
    assert old != new
    assert signed("verify").code == 0


def test_a_signed_log_may_be_the_everlog_folder_itself(everlog: Run, place: Path) -> None:
    assert everlog("init", "--signed", "--store", "segments:.").code == 0
    assert everlog("append", "note.added", "-s", "note/1", "text=hello").code == 0
    assert everlog("verify").code == 0
    assert (place / ".everlog" / "keys").is_dir()


def test_a_copied_folder_says_that_it_takes_a_new_key(everlog: Run, place: Path) -> None:
    assert everlog("init", "here", "--signed").code == 0
    assert everlog("-C", "here", "append", "note.added", "-s", "note/1", "text=hello").code == 0
    shutil.copytree(place / "here", place / "copy")
    done = everlog("-C", "copy", "append", "note.added", "-s", "note/1", "text=again")
    assert done.code == 0
    new = everlog("-C", "copy", "keys", "show", "--json")
    assert json.loads(new.out)["data"]["key"] in done.err
    assert "copied or put back" in done.err
    assert "copied" not in everlog("-C", "copy", "append", "note.added", "-s", "note/1", "text=more").err
    assert "copied" not in everlog("-C", "here", "append", "note.added", "-s", "note/1", "text=more").err


def test_a_folder_with_a_key_and_no_log_is_a_join_that_was_begun(everlog: Run, place: Path) -> None:
    (place / ".everlog" / "keys").mkdir(parents=True)
    for command in (("sync", "http://127.0.0.1:9"), ("log",)):
        found = everlog(*command)
        assert found.code != 0
        assert "everlog join URL" in found.err
        assert "--new" not in found.err
