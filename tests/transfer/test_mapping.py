"""CSV with a mapping: what a row becomes, and what is wrong with one that becomes nothing."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from tests.transfer.test_exporting import a_log, source

from everlog.errors import BadFile
from everlog.log.log import Log
from everlog.transfer.import_pass import Options
from everlog.transfer.importing import Imported, import_files
from everlog.transfer.mapping import RowMapping, read_mapping, rows

ORDERS = """\
type = "order.{status}"
stream = "order/{number}"
actor = "user:{clerk}"
occurred_at = "{when}"
scope = "acme/{shop}"
[payload]
total = "amount:float"
pieces = "pieces:int"
paid = "paid:bool"
extra = "extra:json"
note = "remark"
"""
CSV = b"""\
number,status,clerk,when,shop,amount,pieces,paid,extra,remark
17,placed,ada,2026-11-01T10:00:00Z,main,12.50,3,yes,"{""gift"": true}","two
lines"
18,placed,Bob Roe,2026-11-01T11:00:00+01:00,main,1,1,no,,
"""


def imported(log: Log, data: bytes, mapping: str = ORDERS, **options: Any) -> Imported:
    chosen = Options(mapping=read_mapping(mapping, source="orders.toml"))
    return import_files(log, [source(data, "orders.csv")], chosen, **options)


def test_a_row_becomes_an_event_made_of_its_columns() -> None:
    log = a_log()
    found = imported(log, CSV)
    assert (found.new, found.shapes) == (2, {"csv": 2})
    first, second = (recorded.event for recorded in log.read())
    assert (first.type, first.stream, first.actor, first.scope) == (
        "order.placed",
        "order/17",
        "user:ada",
        "acme/main",
    )
    assert first.payload == {"total": 12.5, "pieces": 3, "paid": True, "extra": {"gift": True}, "note": "two\nlines"}
    assert second.payload == {"total": 1, "pieces": 1, "paid": False}, "empty cells are left out"
    assert second.actor == "user:Bob~20Roe"
    assert second.occurred_at.hour == 10, "times are in UTC"


def test_importing_it_again_records_nothing_and_has_the_same_digest() -> None:
    log = a_log()
    first, again = imported(log, CSV), imported(log, CSV)
    assert (again.new, again.digest) == (0, first.digest)
    assert imported(a_log(), CSV).digest == first.digest


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ((b"12.50", b"a lot"), "the column amount holds 'a lot', which is no float"),
        ((b",yes,", b",perhaps,"), "which is no bool"),
        ((b"2026-11-01T10:00:00Z", b"yesterday"), "occurred_at is 'yesterday', not a time"),
        ((b"17,placed,", b"17,,"), "the column status is empty, and the type is made of it"),
        ((b"18,placed", b"18,placed,more"), "it has 11 cells, and there are 10 columns"),
        ((b'"two\nlines"', b'"two\nlines'), "it is not CSV"),
        ((b"number,status", b"nr,status"), "there is no column number"),
        ((b"ada", b"\xff"), "it is not UTF-8"),
    ],
)
def test_a_row_that_does_not_fit_is_named_and_nothing_is_recorded(spoil: tuple[bytes, bytes], told: str) -> None:
    log = a_log()
    with pytest.raises(BadFile) as error:
        imported(log, CSV.replace(*spoil, 1))
    assert told in str(error.value) + str(error.value.details)
    assert log.head() == 0


@pytest.mark.parametrize("text", ["type = 1", 'type = "a"', "type =", ORDERS + 'x = "a:colour"', ORDERS + "[more]\n"])
def test_a_mapping_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadFile):
        read_mapping(text, source="orders.toml")


def test_without_a_payload_every_column_is_in_it_as_text() -> None:
    mapping = RowMapping(type="row.read", stream="row/{a}")
    (row,) = rows(lambda size, at: b"\xef\xbb\xbfa,b,c\n1,,x\n"[at : at + size], mapping)
    assert mapping.foreign(row.value).payload == {"a": "1", "c": "x"}


SHIPPED = """\
type = "order.{event.kind}"
stream = "order/{order.number}"
actor = "user:{by}"
occurred_at = "{at}"
id = "{key}"
[payload]
sku = "order.lines.0.sku"
total = "order.total:float"
whole = "order"
"""


def test_an_object_becomes_an_event_made_of_its_paths() -> None:
    log = a_log()
    order = {"number": 17, "total": "12.50", "lines": [{"sku": "a-1"}]}
    lines = [
        {"event": {"kind": "shipped"}, "order": order, "by": "ada", "at": "2026-11-01T10:00:00Z"},
        {"event.kind": "paid", "order": {"number": "18", "total": 3}},
    ]
    found = imported(log, "".join(json.dumps(line) + "\n" for line in lines).encode(), SHIPPED)
    assert (found.new, found.shapes) == (2, {"json": 2})
    first, second = (recorded.event for recorded in log.read())
    assert (first.type, first.stream, first.actor) == ("order.shipped", "order/17", "user:ada")
    assert first.payload == {"sku": "a-1", "total": 12.5, "whole": order}
    assert (second.type, second.stream, second.payload["total"]) == ("order.paid", "order/18", 3.0)
    packed = imported(a_log(), gzip.compress(json.dumps(lines).encode()), SHIPPED)
    assert packed.digest == found.digest, "a packed array of the same objects"


def test_new_ids_replace_those_of_a_mapped_object_too() -> None:
    line = json.dumps({"event": {"kind": "shipped"}, "order": {"number": 1}, "key": "no-ulid"}).encode()
    with pytest.raises(BadFile, match="--new-ids"):
        imported(a_log(), line, SHIPPED)
    log = a_log()
    options = Options(mapping=read_mapping(SHIPPED, source="orders.toml"), new_ids=True)
    assert import_files(log, [source(line)], options).new_ids == 1
    assert next(iter(log.read())).event.tags == {"was.id": "no-ulid"}


@pytest.mark.parametrize("data", [b'{"kind": 1}\n{"kind": 2}\n', b"a,b\n1,2\n"])
def test_a_mapping_that_matches_nothing_is_an_error_even_if_bad_lines_are_set_aside(data: bytes) -> None:
    kept: list[bytes] = []
    with pytest.raises(BadFile, match="the mapping matches none of"):
        imported(a_log(), data, SHIPPED, set_aside=kept.extend)
    assert kept == []
