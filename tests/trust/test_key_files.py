"""Key files: modes, passphrases, OpenSSH, and nothing of a private key anywhere else."""

from __future__ import annotations

import base64
import logging
import os
import stat
from pathlib import Path

import pytest

import everlog
from everlog.errors import BadFile, Conflict, EverlogError, NoKey
from everlog.testing.signing import key, unsigned_events
from everlog.trust.key_files import KeyFolder
from everlog.trust.openssh import read_openssh
from everlog.trust.passphrases import asked_for

KEY = key(7)
ORIGIN = KEY.public.origin


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "keys", passphrase=lambda name: b"correct horse")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_key_is_readable_by_its_owner_alone_and_ignored_by_git(folder: KeyFolder) -> None:
    path = folder.keep(KEY)
    assert (mode(folder.path), mode(path)) == (0o700, 0o600)
    assert (folder.path / ".gitignore").read_text() == "*\n"
    assert folder.load(ORIGIN).sign(b"x") == KEY.sign(b"x")
    assert [(one.origin, one.protected) for one in folder.list()] == [(ORIGIN, False)]


@pytest.mark.parametrize("wrong", ["file", "folder"])
def test_a_key_that_others_can_read_is_not_used(folder: KeyFolder, wrong: str) -> None:
    path = folder.keep(KEY)
    (path if wrong == "file" else folder.path).chmod(0o640 if wrong == "file" else 0o755)
    with pytest.raises(NoKey, match="can be read by others") as refusal:
        folder.load(ORIGIN)
    assert "chmod" in refusal.value.hint


def test_a_protected_key_needs_its_passphrase(folder: KeyFolder) -> None:
    path = folder.keep(KEY, protect=True)
    assert folder.load(ORIGIN).seed == KEY.seed
    assert base64.b64encode(KEY.seed) not in path.read_bytes()
    with pytest.raises(NoKey, match="was not opened"):
        KeyFolder(folder.path, passphrase=lambda name: b"wrong").load(ORIGIN)
    with pytest.raises(NoKey, match="passphrase"):
        KeyFolder(folder.path).load(ORIGIN)
    # What is made in its place is protected, too.
    folder.new(like=ORIGIN)
    assert [one.protected for one in folder.list()] == [True, True]


def test_a_key_file_under_another_name_is_refused(folder: KeyFolder) -> None:
    path = folder.keep(KEY)
    other = key(8).public.origin
    path.rename(folder.path / f"{other}.key")
    with pytest.raises(BadFile, match="not a key file"):
        folder.load(other)
    with pytest.raises(NoKey):
        folder.load(ORIGIN)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"\xff", b'{"public":"x","secret":"AAAA","everlog":"key","format":1}', b'{"x":' + b"[" * 100_000],
    ids=["empty", "nothing in it", "bytes", "another key", "deep"],
)
def test_a_damaged_key_file_is_named_and_not_quoted(folder: KeyFolder, content: bytes) -> None:
    path = folder.keep(KEY)
    path.write_bytes(content)
    with pytest.raises(BadFile, match="not a key file"):
        folder.load(ORIGIN)


def test_a_key_is_exported_and_imported(folder: KeyFolder, tmp_path: Path) -> None:
    folder.keep(KEY, protect=True)
    target = folder.export(ORIGIN, tmp_path / "saved")
    assert mode(target) == 0o600
    with pytest.raises(Conflict, match="there already"):
        folder.export(ORIGIN, target)
    other = KeyFolder(tmp_path / "other", passphrase=lambda name: b"correct horse")
    assert other.import_file(target).public == KEY.public
    assert [one.protected for one in other.list()] == [True]


def openssh(seed: bytes, public: bytes, *, kind: bytes = b"ssh-ed25519") -> bytes:
    def text(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    inner = b"1234" * 2 + text(kind) + text(public) + text(seed + public) + text(b"ada@shop") + b"\1\2\3"
    blob = b"openssh-key-v1\0" + text(b"none") * 2 + text(b"") + b"\0\0\0\1" + text(text(kind) + text(public))
    lines = base64.encodebytes(blob + text(inner))
    return b"-----BEGIN OPENSSH PRIVATE KEY-----\n" + lines + b"-----END OPENSSH PRIVATE KEY-----\n"


def test_an_openssh_key_is_imported(folder: KeyFolder, tmp_path: Path) -> None:
    file = tmp_path / "id_ed25519"
    file.write_bytes(openssh(KEY.seed, KEY.public.raw))
    file.chmod(0o600)
    assert folder.import_file(file).public == KEY.public
    assert folder.load(ORIGIN).seed == KEY.seed
    file.chmod(0o644)
    with pytest.raises(NoKey, match="read by others"):
        folder.import_file(file)


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        openssh(KEY.seed, key(8).public.raw)[:-60],
        openssh(KEY.seed, KEY.public.raw, kind=b"ssh-rsa"),
        openssh(KEY.seed, key(8).public.raw[:31]),
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
    ],
)
def test_any_other_file_is_refused_without_being_quoted(data: bytes) -> None:
    with pytest.raises(BadFile) as refusal:
        read_openssh(data, lambda: b"")
    assert base64.b64encode(KEY.seed).decode()[:12] not in repr(refusal.value.__dict__)


def test_the_last_number_is_kept_beside_the_key_and_never_goes_back(folder: KeyFolder) -> None:
    folder.keep(KEY)
    assert folder.last_signed(ORIGIN, "LOG") == 0
    folder.remember(ORIGIN, "LOG", 1_000)
    other = KeyFolder(folder.path)
    other.remember(ORIGIN, "LOG", 7)
    other.close()
    assert other.last_signed(ORIGIN, "LOG") == 1_000
    assert other.last_signed(ORIGIN, "OTHER") == 0
    folder.close()


def test_a_passphrase_is_read_from_a_file_or_a_descriptor(tmp_path: Path) -> None:
    (tmp_path / "phrase").write_bytes(b"correct horse\n")
    assert asked_for(tmp_path / "phrase")[0]("x") == b"correct horse"
    reading, writing = os.pipe()
    os.write(writing, b"correct horse\n")
    os.close(writing)
    try:
        assert [ask("x") for ask in asked_for(Path(f"/dev/fd/{reading}"))] == [b"correct horse"] * 2
    finally:
        os.close(reading)
    with pytest.raises(NoKey, match="no terminal"):
        asked_for(None)[0]("x")


# ---- a signed log with its key in a folder


def test_a_log_by_url_has_its_keys_beside_it(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, signed=True) as log:
        first = log.append("note.added", stream="note/1", payload={"text": "one"})
        assert first.event.origin == log.identity.origin
    (found,) = KeyFolder(tmp_path / "log.db.keys").list()
    assert found.origin == first.event.origin
    with everlog.open(url) as log:  # its origin is a key: it signs without being asked to
        log.append("note.added", stream="note/1", payload={"text": "two"})
        assert unsigned_events(log.stored) == []
    assert KeyFolder(tmp_path / "log.db.keys").last_signed(found.origin, log.identity.log_id) == 2
    found.path.unlink()
    with everlog.open(url) as log:
        assert [recorded.event.payload["text"] for recorded in log.read()] == ["one", "two"]
        with pytest.raises(NoKey):
            log.append("note.added", stream="note/1", payload={"text": "three"})


def test_a_restored_copy_takes_a_new_key_and_origin_before_it_writes(tmp_path: Path) -> None:
    """The number beside the key shows it, also where nothing else does."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, signed=True) as log:
        log.append("note.added", stream="note/1", payload={"text": "one"})
        old = log.identity.origin
    backup = (tmp_path / "log.db").read_bytes()
    with everlog.open(url) as log:
        log.append("note.added", stream="note/1", payload={"text": "lost"})
    (tmp_path / "log.db").write_bytes(backup)
    for name in tmp_path.glob("log.db-*"):
        name.unlink()  # the lock file with its own memory, and the write-ahead log
    with everlog.open(url) as log:
        again = log.append("note.added", stream="note/1", payload={"text": "other"})
        assert again.event.origin != old
        assert again.event.origin_seq == 1
        assert log.identity.former == (old,)
        assert unsigned_events(log.stored) == []
        assert log.verify().ok
    assert len(KeyFolder(tmp_path / "log.db.keys").list()) == 2


def test_a_private_key_is_in_no_file_of_the_log_no_output_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for kind in ("sqlite:log.db", "jsonl:lines", "segments:data"):
        url = kind.replace(":", f":{tmp_path}/")
        with everlog.open(url, signed=True) as log:
            for number in range(3):
                log.append("note.added", stream=f"note/{number}", payload={"text": "x"})
            log.purge("note/1", reason="asked to")
            origin, events = log.identity.origin, list(log.read())
        folder = KeyFolder(Path(url.partition(":")[2] + ".keys"))
        seed = folder.load(origin).seed
        forms = (seed, seed.hex().encode(), base64.b64encode(seed), base64.b64encode(seed)[:20])
        texts = [repr(folder.load(origin)).encode(), repr(events).encode(), caplog.text.encode()]
        files = [file for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".key"]
        texts += [file.read_bytes() for file in files]
        assert not any(form in text for form in forms for text in texts)
        (folder.path / f"{origin}.key").write_bytes(b'{"secret":"' + base64.b64encode(seed) + b'"')
        with pytest.raises(EverlogError) as refusal:
            folder.load(origin)
        assert base64.b64encode(seed).decode() not in repr((refusal.value.__dict__, refusal.value.__context__))
