"""Signed notes, checkpoints and cosignatures: the vectors of C2SP and of Go, and a checker that shares no code."""

from __future__ import annotations

import ast
import base64
import subprocess
import sys
from pathlib import Path

import pytest
from tests.trust import stranger

from everlog.core.chain import NO_CHAIN, simple_chain
from everlog.core.event import Link, Position
from everlog.core.merkle import consistency, root
from everlog.errors import BadFile, EverlogError, HistoryChanged, InvalidField, NotFound
from everlog.stores.contract import Identity
from everlog.trust.keys import PrivateKey
from everlog.trust.notes import (
    COSIGNATURE,
    Checkpoint,
    Note,
    NoteSignature,
    Signed,
    Verifier,
    cosign,
    heads_text,
    name_of,
    parse_checkpoint,
    parse_name,
    parse_note,
    parse_verifier,
    sign,
    who_signed,
)
from everlog.trust.witness import cosign_checkpoint

# golang.org/x/mod/sumdb/note, note_test.go
PETER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
PETER_SEED = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
ENOCH = "EnochRoot+af0cfe78+ATtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop"
TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
PETER_LINE = (
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
ENOCH_LINE = (
    "— EnochRoot rwz+eBzmZa0SO3NbfRGzPCpDckykFXSdeX+MNtCOXm2/5n2tiOHp+vAF1aGrQ5ovTG01oOTGwnWLox33WWd1RvMc+QQ=\n"
)

# C2SP, tlog-cosignature.md: the example of a checkpoint with a cosignature
SOFA = """example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

— example.com/behind-the-sofa \
Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
— witness.example.com/w1 \
jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==
"""

LEAVES = [root([bytes([number])]) for number in range(40)]


@pytest.fixture
def key() -> PrivateKey:
    return PrivateKey(bytes(range(32)))


def checkpoint_of(key: PrivateKey, size: int, leaves: list[bytes] = LEAVES) -> Note:
    identity = Identity("01LOG", key.public.origin, "epoch1", 0)
    name = str(name_of(identity))
    return sign(Note(Checkpoint(name, size, root(leaves[:size])).text), name, key)


# ---- vectors


def test_a_note_of_go_is_made_again_byte_for_byte() -> None:
    made = sign(Note(TEXT), "PeterNeumann", PrivateKey(PETER_SEED))
    assert str(made) == f"{TEXT}\n{PETER_LINE}"
    assert PrivateKey(PETER_SEED).public.verifier("PeterNeumann") == PETER
    replaced = Note(TEXT, (NoteSignature("PeterNeumann", bytes.fromhex("c74f20a3"), b"old"),))
    assert sign(replaced, "PeterNeumann", PrivateKey(PETER_SEED)) == made


def test_a_note_of_go_is_read() -> None:
    note = parse_note(f"{TEXT}\n{PETER_LINE}{ENOCH_LINE}{PETER_LINE}".encode())
    assert note.text == TEXT
    assert [one.name for one in note.signatures] == ["PeterNeumann", "EnochRoot"]
    for one, verifier in zip(note.signatures, map(parse_verifier, (PETER, ENOCH)), strict=True):
        assert verifier.made(one)
        assert verifier.accepts(note.text, one.signature)
        assert not verifier.accepts(note.text + "\n", one.signature)
    assert who_signed(note).unknown == ("PeterNeumann", "EnochRoot")


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT + "\n",
        f"{TEXT}\n{PETER_LINE[:-1]}",
        f"\x01{TEXT}\n{PETER_LINE}",
        f"{TEXT}\n{PETER_LINE.replace('PeterNeumann', 'Bad Name')}",
        f"{TEXT}\n— a+b x08go/ZJkuBS9UG=\n",
        f"{TEXT}\n{PETER_LINE}Unexpected line.\n",
        f"{TEXT}\n{PETER_LINE * 101}",
        f"{TEXT}\n— PeterNeumann x08g\n",
        "",
    ],
)
def test_what_is_no_note_for_go_is_none_here(text: str) -> None:
    with pytest.raises(BadFile):
        parse_note(text.encode())


def test_bytes_that_are_no_text_are_no_note() -> None:
    for data in (b"\xff" + f"{TEXT}\n{PETER_LINE}".encode(), b"a" * 2_000_000):
        with pytest.raises(BadFile):
            parse_note(data)


def test_every_other_verifier_key_is_refused() -> None:
    assert parse_verifier(PETER).name == "PeterNeumann"
    others = {PETER[first:end] for first in range(len(PETER)) for end in range(first + 1, len(PETER) + 1)} - {PETER}
    others |= {PETER[:place] + chr(ord(PETER[place]) + 1) + PETER[place + 1 :] for place in range(len(PETER))}
    others |= {
        "PeterNeumann+cc469956+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TWBADKEY==",
        "PeterNeumann+173116ae+ZRpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
    }
    for other in others:
        with pytest.raises(InvalidField):
            parse_verifier(other)


def test_the_example_of_c2sp_is_read() -> None:
    note = parse_note(SOFA.encode())
    assert str(note) == SOFA
    found = parse_checkpoint(note.text)
    assert (found.origin, found.size) == ("example.com/behind-the-sofa", 20852163)
    assert found.text == note.text
    assert int.from_bytes(note.signatures[1].signature[:8], "big") == 1679315147


@pytest.mark.parametrize(
    "text",
    [
        "a\n1\n",
        "a\n01\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n",
        "a\n-1\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n",
        "a\n٣\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n",
        "a\n" + "9" * 19 + "\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n",
        "a\n" + "9" * 100_000 + "\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n",
        "a\n1\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2J=\n",
        "a\n1\nAAAA\n",
        "\n1\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n",
        "a\n1\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\nb\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(BadFile):
        parse_checkpoint(text)


# ---- who signed


def test_a_checkpoint_shows_who_signed_and_cosigned(key: PrivateKey) -> None:
    witness = PrivateKey(b"w" * 32)
    note = checkpoint_of(key, 7)
    assert parse_name(parse_checkpoint(note.text).origin) == name_of(
        Identity("01LOG", key.public.origin, "epoch1", 0)
    )
    assert who_signed(note).by == key.public.origin
    both = parse_note(str(cosign(note, witness, 1_700_000_000)).encode())
    assert who_signed(both).by == key.public.origin
    assert who_signed(both).cosigned == ((witness.public.origin, 1_700_000_000),)
    assert who_signed(Note(note.text)).by == ""


def test_a_changed_note_has_wrong_signatures(key: PrivateKey) -> None:
    witness = PrivateKey(b"w" * 32)
    note = cosign(checkpoint_of(key, 7), witness, 1_700_000_000)
    other = checkpoint_of(key, 8)
    for one in note.signatures:
        with pytest.raises(BadFile, match="is wrong"):
            who_signed(Note(other.text, (one,)))
    later = NoteSignature(
        note.signatures[1].name, note.signatures[1].key_id, bytes(8) + note.signatures[1].signature[8:]
    )
    with pytest.raises(BadFile, match="is wrong"):
        who_signed(Note(note.text, (later,)))


def test_another_key_is_not_taken_for_that_of_the_log(key: PrivateKey) -> None:
    """It signs under the name of the log, or takes the name and the four bytes: neither is the log."""
    mallory = PrivateKey(b"m" * 32)
    note = checkpoint_of(key, 7)
    name = note.signatures[0].name
    assert who_signed(sign(Note(note.text), name, mallory)) == Signed(unknown=(name,))
    forged = NoteSignature(name, note.signatures[0].key_id, mallory.sign(note.text.encode()))
    with pytest.raises(BadFile, match="is wrong"):
        who_signed(Note(note.text, (forged,)))


def test_a_plain_signature_is_no_cosignature(key: PrivateKey) -> None:
    witness = PrivateKey(b"w" * 32)
    note = sign(checkpoint_of(key, 7), witness.public.origin, witness)
    assert who_signed(note).cosigned == ()
    assert who_signed(note).by == key.public.origin


# ---- cosigning


def test_a_witness_follows_a_log_that_grows(key: PrivateKey) -> None:
    witness = PrivateKey(b"w" * 32)
    seen: Note | None = None
    for old, size in ((0, 5), (5, 5), (5, 9), (9, 40)):
        proof = consistency(LEAVES[:size], old) if seen else []
        seen = cosign_checkpoint(checkpoint_of(key, size), seen=seen, proof=proof, key=witness, now_s=1_700_000_000)
        assert who_signed(seen).cosigned == ((witness.public.origin, 1_700_000_000),)


def test_a_witness_refuses_a_log_that_was_changed(key: PrivateKey) -> None:
    witness = PrivateKey(b"w" * 32)
    seen = checkpoint_of(key, 9)
    changed = [*LEAVES[:4], LEAVES[30], *LEAVES[5:]]
    for new, leaves in ((20, changed), (9, changed), (8, LEAVES)):
        proof = consistency(leaves[:new], min(9, new))
        with pytest.raises(HistoryChanged):
            cosign_checkpoint(
                checkpoint_of(key, new, leaves), seen=seen, proof=proof, key=witness, now_s=1_700_000_000
            )
    with pytest.raises(HistoryChanged):
        cosign_checkpoint(checkpoint_of(key, 20), seen=seen, proof=[], key=witness, now_s=1_700_000_000)


def test_a_witness_refuses_what_the_log_did_not_sign(key: PrivateKey) -> None:
    witness = PrivateKey(b"w" * 32)
    with pytest.raises(NotFound):
        cosign_checkpoint(Note(checkpoint_of(key, 3).text), seen=None, proof=[], key=witness, now_s=1)
    broken = Note(checkpoint_of(key, 4).text, checkpoint_of(key, 3).signatures)
    with pytest.raises(BadFile):
        cosign_checkpoint(broken, seen=None, proof=[], key=witness, now_s=1)


# ---- heads


def test_heads_are_the_same_for_any_order(key: PrivateKey) -> None:
    chains = {
        "01B": simple_chain(Link(12, bytes(range(32))), Position(5)),
        "01A": simple_chain(Link(3, bytes(32)), Position(7)),
        "01C": NO_CHAIN,
    }
    text = heads_text("01LOG", chains)
    assert text == (
        "everlog heads 1\n01LOG\n01A 3 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
        "01B 12 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n01C 0 -\n"
    )
    assert heads_text("01LOG", dict(reversed(chains.items()))) == text
    assert who_signed(sign(Note(text), key.public.origin, key)).by == key.public.origin


# ---- a stranger


def test_a_stranger_checks_a_checkpoint(key: PrivateKey, tmp_path: Path) -> None:
    witness = PrivateKey(b"w" * 32)
    note = cosign(checkpoint_of(key, 7), witness, 1_700_000_000)
    file = tmp_path / "checkpoint"
    file.write_text(str(note))
    name = note.signatures[0].name
    done = subprocess.run(
        [sys.executable, "-I", stranger.__file__, str(file), key.public.verifier(name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["note", name, witness.public.origin]
    file.write_text(str(note).replace("\n7\n", "\n8\n"))
    changed = subprocess.run([sys.executable, "-I", stranger.__file__, str(file)], capture_output=True, timeout=60)
    assert changed.returncode != 0


def test_a_stranger_checks_the_vectors() -> None:
    assert stranger.open_note(f"{TEXT}\n{PETER_LINE}".encode(), PETER) == (TEXT, ["PeterNeumann"])


def test_the_stranger_shares_no_code() -> None:
    tree = ast.parse(Path(stranger.__file__).read_text())
    imported = {name.name for one in ast.walk(tree) if isinstance(one, ast.Import) for name in one.names}
    imported |= {str(one.module) for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
    assert imported <= {"__future__", "base64", "hashlib", "json", "pathlib", "sys", "typing"}


@pytest.mark.parametrize("seed", range(200))
def test_any_change_of_a_signed_note_is_noticed(seed: int) -> None:
    import random

    chosen = random.Random(seed)
    key = PrivateKey(bytes([seed % 256]) * 32)
    note = cosign(checkpoint_of(key, 7), PrivateKey(b"w" * 32), 1_700_000_000)
    data = bytearray(str(note).encode())
    place = chosen.randrange(len(data))
    data[place] ^= 1 << chosen.randrange(8)
    try:
        found = parse_note(bytes(data), unsigned=True)
        signed = who_signed(found)
        parse_checkpoint(found.text)
    except EverlogError:
        return
    whole = who_signed(note)
    assert found.text == note.text or not signed.by
    assert (signed.by, signed.cosigned) != (whole.by, whole.cosigned) or found == note


def test_a_cosigner_is_named_by_its_key(key: PrivateKey) -> None:
    verifier = Verifier(key.public.origin, key.public, COSIGNATURE)
    (one,) = cosign(Note("a\n"), key, 5).signatures
    assert verifier.made(one)
    assert verifier.accepts("a\n", one.signature)
    assert not verifier.accepts("a\n", one.signature[:-1])
