"""Line ends that git or an editor has changed to those of Windows: reported as what they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.stores.jsonl.own import codes, day_files, own, texts

from everlog.errors import BadFile, Damaged
from everlog.log.verify.verify import verify
from everlog.stores.jsonl.merge import merge_day_files
from everlog.stores.jsonl.store import JsonlStore


@pytest.mark.parametrize("index", ["there", "gone"])
def test_line_ends_of_windows_are_named_by_every_read_and_write(path: Path, index: str) -> None:
    store = JsonlStore(path)
    for text in ("one", "two\r"):
        own(store, payload={"text": text})
    (file,) = day_files(path)
    good = file.read_bytes()
    file.write_bytes(good.replace(b"\n", b"\r\n"))
    if index == "gone":
        store.close()
        shutil.rmtree(path / "local")
        store = JsonlStore(path)
    for act in (lambda: list(store.read()), lambda: list(store.blocks()), lambda: own(store)):
        with pytest.raises(Damaged, match=r"line ends of Windows \(CRLF\)") as raised:
            act()
        assert raised.value.details["line"] == 1
        assert "carriage return" in raised.value.why
        assert "everlog git install" in raised.value.hint
        assert "sed -i" in raised.value.hint
    assert codes(store).count("crlf") == 1
    assert verify(store).problems[0].code == "crlf"
    with pytest.raises(BadFile, match="cannot be merged") as refused:
        merge_day_files("day", good, file.read_bytes())
    assert "CRLF" in refused.value.why

    file.write_bytes(file.read_bytes().replace(b"\r\n", b"\n"))  # as the hint says
    assert texts(store) == ["one", "two\r"]
    own(store)
    assert verify(store).problems == ()
    store.close()
