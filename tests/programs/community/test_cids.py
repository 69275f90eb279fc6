from __future__ import annotations

import pytest

from everlog.programs.community.cids import require_cid

SHA_256 = bytes([0x12, 0x20]) + bytes(range(32))
BASE_58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def in_base_58(data: bytes) -> str:
    number, digits = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        digits = BASE_58[digit] + digits
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + digits


@pytest.mark.parametrize(
    "cid",
    [
        "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG",  # the read-me of IPFS
        "QmdfTbBqBPQ7VNxZEYEj14VmRuZBkqFbiwReogJgS1zR1n",  # an empty file
        "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",
        "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku",
        "zb2rhe5P4gXftAwvA4eXQ5HJwsER2owDyS9sKaQRRVQPn93bA",
        "f01551220" + "00" * 32,
        "z" + in_base_58(bytes([1, 0x55]) + SHA_256),
        in_base_58(SHA_256),
    ],
)
def test_a_cid_is_taken(cid: str) -> None:
    require_cid(cid)


@pytest.mark.parametrize(
    ("cid", "why"),
    [
        ("", "begins with Qm, or with b"),
        ("b", "nothing after the letter"),
        ("hello", "begins with Qm, or with b"),
        ("x" * 200, "at most 128 characters"),
        ("QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbd", "promises a hash of|is of a SHA-256 hash"),
        ("QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbd0", "'0' is no digit"),
        ("bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzd1", "'1' is no digit"),
        ("bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fb", "promises a hash of 32 bytes"),
        ("BAFYBEIGDYRZT5SFP7UDM7HU76UH7Y26NF3EFUYLQABF3OCLGTQY55FBZDI", "begins with Qm, or with b"),
        ("f0155122", "base 16"),
        ("f01551220" + "00" * 31, "promises a hash of 32 bytes and has 31"),
        ("f01551210" + "00" * 16, "a SHA-256 hash has 32 bytes, not 16"),
        ("f02551220" + "00" * 32, "version 2 of CIDs"),
        ("f0180001220" + "00" * 32, "shortest form"),
        ("f01", "ends too early"),
        ("f01" + "ff" * 20, "ends too early"),
    ],
)
def test_what_is_no_cid_is_refused_with_the_reason(cid: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        require_cid(cid)
