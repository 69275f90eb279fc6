"""Check a checkpoint, a proof and a heads note of everlog without everlog: `python stranger.py FILE [VERIFIER KEY]`.

It is written from docs/reference/formats.md, RFC 8032, RFC 9162 and the C2SP pages alone, and imports nothing but the
standard library. It prints what it has checked, and raises an error if anything is wrong.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

# ---- Ed25519, as RFC 8032 writes it down

Point = tuple[int, int, int, int]
P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = int(pow(2, (P - 1) // 4, P))


def recover(y: int, sign: int) -> int:
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = int(pow(square, (P + 3) // 8, P))
    if (x * x - square) % P:
        x = x * ROOT % P
    assert y < P
    assert (x * x - square) % P == 0, "not a point"
    return P - x if x & 1 != sign else x


def add(one: Point, other: Point) -> Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % P
    b = (one[1] + one[0]) * (other[1] + other[0]) % P
    c, d = 2 * one[3] * other[3] * D % P, 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(number: int, point: Point) -> Point:
    found: Point = (0, 1, 1, 0)
    while number:
        if number & 1:
            found = add(found, point)
        point, number = add(point, point), number >> 1
    return found


def point_of(data: bytes) -> Point:
    number = int.from_bytes(data, "little")
    y = number & (2**255 - 1)
    x = recover(y, number >> 255)
    return x, y, 1, x * y % P


BASE_Y = 4 * pow(5, P - 2, P) % P
BASE = (recover(BASE_Y, 0), BASE_Y, 1, recover(BASE_Y, 0) * BASE_Y % P)


def check_signature(key: bytes, message: bytes, signature: bytes) -> None:
    s = int.from_bytes(signature[32:], "little")
    assert len(signature) == 64
    assert s < Q, "not a signature"
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % Q
    left, right = times(s, BASE), add(point_of(signature[:32]), times(challenge, point_of(key)))
    assert (left[0] * right[2] - right[0] * left[2]) % P == 0, "the signature is wrong"
    assert (left[1] * right[2] - right[1] * left[2]) % P == 0, "the signature is wrong"


# ---- signed notes


def key_of_origin(text: str) -> bytes:
    """did:key without its prefix: base58 of the bytes ed 01 and the key."""
    number = 0
    for char in text[1:]:
        number = number * 58 + "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz".index(char)
    data = number.to_bytes(34, "big")
    assert text[0] == "z"
    assert data[:2] == b"\xed\x01", "not an Ed25519 key"
    return data[2:]


def key_id(name: str, kind: bytes, key: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + kind + key).digest()[:4]


def open_note(data: bytes, verifier_key: str = "") -> tuple[str, list[str]]:
    """Return the text of a note and the names of those whose signatures were checked."""
    text, lines = data.decode().rsplit("\n\n", 1)
    text += "\n"
    checked = []
    for line in lines.splitlines():
        dash, name, encoded = line.split(" ")
        assert dash == "—"
        blob = base64.b64decode(encoded, validate=True)
        given, signature = blob[:4], blob[4:]
        if verifier_key and verifier_key.split("+")[0] == name:
            key = base64.b64decode(verifier_key.split("+", 2)[2], validate=True)[1:]
        else:
            key = key_of_origin(name.split("/")[2] if name.startswith("everlog/") else name)
        if given == key_id(name, b"\x01", key):
            check_signature(key, text.encode(), signature)
        else:
            assert given == key_id(name, b"\x04", key), "the line names another key"
            time = int.from_bytes(signature[:8], "big")
            check_signature(key, f"cosignature/v1\ntime {time}\n{text}".encode(), signature[8:])
        checked.append(name)
    return text, checked


# ---- trees


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_of_path(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """RFC 9162, 2.1.3.2."""
    assert index < size
    first, last, found = index, size - 1, leaf
    for beside in path:
        assert last, "the path is too long"
        if first & 1 or first == last:
            found = node(beside, found)
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            found = node(found, beside)
        first, last = first >> 1, last >> 1
    assert last == 0, "the path is too short"
    return found


def check_proof(proof: dict[str, Any]) -> tuple[str, list[str]]:
    """A file of `everlog prove`."""
    text, checked = open_note(proof["checkpoint"].encode())
    name, size, root = text.splitlines()[:3]
    leaf = hashlib.sha256(b"\x00" + proof["header"].encode()).digest()
    path = [base64.b64decode(one) for one in proof["inclusion"]["path"]]
    index = proof["position"] - 1
    assert root_of_path(leaf, index, int(size), path) == base64.b64decode(root), "it is not in the tree"
    header = json.loads(proof["header"])
    if "payload" in proof:
        committed = hashlib.sha256(base64.b64decode(proof["salt"]) + proof["payload"].encode()).digest()
        assert base64.b64encode(committed).decode() == header[15], "it has another payload"
    group = proof["group"]
    path = [base64.b64decode(one) for one in group["path"]]
    found = root_of_path(leaf, header[6] - group["first"], group["count"], path)
    lines = ("everlog group 1", proof["log"], header[5], group["first"], group["count"], found.hex())
    message = "".join(f"{line}\n" for line in lines).encode()
    check_signature(key_of_origin(header[5]), message, base64.b64decode(group["signature"]))
    assert name.split("/")[1] == proof["log"], "it is of another log"
    return name, checked


if __name__ == "__main__":
    content = Path(sys.argv[1]).read_bytes()
    if content.startswith(b"{"):
        print("proof", *check_proof(json.loads(content)))
    else:
        print("note", *open_note(content, *sys.argv[2:])[1])
