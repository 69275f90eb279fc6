"""Personal fields: sealed in every store, opened for every reader that has the key, and a stand-in without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

import everlog
from everlog.catalog.personal import Personal
from everlog.errors import InvalidPayload, KeyReuse, SchemaBroken, SecretFound
from everlog.log.log import Log
from everlog.trust.sealing import key_id_of

CATALOG = everlog.Catalog()
EMAIL = "ada.lovelace@example.org"


@CATALOG.event("customer.registered")
class Registered(msgspec.Struct):
    customer: str
    email: Annotated[str, Personal(of="customer")]
    age: Annotated[int | None, Personal(of="customer")] = None
    plan: str = "free"


@CATALOG.event("order.placed")
class Placed(pydantic.BaseModel):
    customer: int
    courier: str = ""
    address: Annotated[dict[str, str], Personal(of="customer", stand_in={})]
    phone: Annotated[str | None, Personal(of="courier")] = None


class Emails(everlog.View):
    name = "emails"
    version = 1
    types = frozenset(("customer.registered",))

    def apply(self, state: Any, event: everlog.Event) -> Any:
        return {"email": event.payload["email"].lower()}


@pytest.fixture(params=["sqlite:log.db", "jsonl:log", "segments:log", "memory:"])
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    monkeypatch.chdir(tmp_path)
    with everlog.open(request.param, catalog=CATALOG, actor="user:ada") as log:
        yield log


def register(log: Log, customer: str = "c/1", **more: Any) -> everlog.Recorded:
    payload = {"customer": customer, "email": EMAIL, "age": 36}
    return log.append("customer.registered", stream=customer, payload=payload, **more)


def forget(log: Log, subject: str) -> None:
    assert log.sealing is not None
    log.sealing.ring.destroy(log.sealing.ring.ids_of(subject))


def files_with(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_a_reader_gets_the_value_and_the_store_an_envelope(log: Log, tmp_path: Path) -> None:
    made = register(log)
    assert made.event.payload == {"customer": "c/1", "email": EMAIL, "age": 36, "plan": "free"}
    assert list(log.read()) == [made] == list(log.page_after(0).events)
    assert log.get(made.event.id) == made
    (typed,) = log.read(Registered)
    assert typed.payload == Registered("c/1", EMAIL, 36)

    (stored,) = log.stored.read()
    assert stored.event.payload["plan"] == "free"
    assert key_id_of(stored.event.payload["email"]) == key_id_of(stored.event.payload["age"]) != ""
    assert log.verify().ok
    assert files_with(tmp_path, EMAIL) == []


def test_without_the_key_a_reader_gets_a_stand_in(log: Log) -> None:
    register(log)
    register(log, "c/2")
    forget(log, "c/1")
    one, other = log.read(Registered)
    assert one.payload == Registered("c/1", "[sealed]", None)
    assert other.payload == Registered("c/2", EMAIL, 36)
    assert log.view(Emails).get("c/1").state == {"email": "[sealed]"}
    assert log.view(Emails).get("c/2").state == {"email": EMAIL}
    assert log.verify().ok


def test_views_get_the_opened_value(log: Log) -> None:
    log.views.register(Emails, mode="inline")
    register(log)
    assert log.view(Emails).get("c/1").state == {"email": EMAIL}


def test_one_event_may_hold_fields_of_several_persons(log: Log) -> None:
    payload = {"customer": 1, "courier": "bob", "address": {"street": "1 Row"}, "phone": "123"}
    log.append("order.placed", stream="order/1", payload=payload)
    assert next(log.read()).event.payload == payload
    forget(log, "bob")
    assert next(log.read()).event.payload == {**payload, "phone": "[sealed]"}
    (typed,) = log.read(Placed)
    assert typed.payload.phone == "[sealed]"
    forget(log, "1")
    (typed,) = log.read(Placed)
    assert typed.payload.address == {}


def test_a_batch_of_several_types_is_sealed(log: Log) -> None:
    log.append("note.added", stream="note/1", payload={"text": "one"})
    drafts = [
        everlog.Draft("note.added", "note/2", {"text": "two"}),
        everlog.Draft("customer.registered", "c/1", {"customer": "c/1", "email": EMAIL}),
        everlog.Draft("customer.registered", "c/2", {"customer": "c/2", "email": "bob@example.org"}),
    ]
    records = log.append_batch(drafts)
    assert [record.event.payload.get("email") for record in records] == [None, EMAIL, "bob@example.org"]
    assert list(log.read(after=1)) == list(records)
    assert log.verify().ok


def test_a_retry_is_compared_by_the_value(log: Log) -> None:
    first = register(log, key="k")
    again = register(log, key="k")
    assert (again, log.head()) == (first, 1)
    with pytest.raises(KeyReuse):
        log.append("customer.registered", stream="c/1", payload={"customer": "c/1", "email": "x"}, key="k")
    given = register(log, id="01M7GJY4JREWXR7F6ZT4NFS1FE")
    assert register(log, id="01M7GJY4JREWXR7F6ZT4NFS1FE") == given


def test_a_secret_is_found_before_it_is_sealed(log: Log) -> None:
    with pytest.raises(SecretFound):
        log.append("customer.registered", stream="c/1", payload={"customer": "c/1", "email": "ghp_" + 36 * "a"})
    with pytest.raises(InvalidPayload):
        log.append("customer.registered", stream="c/1", payload={"customer": "", "email": EMAIL})
    assert log.head() == 0


def test_a_text_that_looks_sealed_is_a_value_like_any_other(log: Log) -> None:
    text = "sealed:1:" + "A" * 22 + ":AAAA"
    log.append("customer.registered", stream="c/1", payload={"customer": "c/1", "email": text})
    assert next(log.read()).event.payload["email"] == text


def test_a_person_who_comes_back_gets_a_new_key(log: Log) -> None:
    register(log)
    forget(log, "c/1")
    register(log)
    assert [record.event.payload["email"] for record in log.read()] == ["[sealed]", EMAIL]


@pytest.mark.parametrize("store", ["sqlite:log.db", "jsonl:log"])
def test_a_second_handle_opens_what_the_first_one_sealed(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with everlog.open(store, catalog=CATALOG) as one, everlog.open(store, catalog=CATALOG) as other:
        register(one)
        assert next(other.read()).event.payload["email"] == EMAIL
        forget(one, "c/1")
        register(other)
        assert [record.event.payload["email"] for record in one.read()] == ["[sealed]", EMAIL]
    path = tmp_path / f"{store.partition(':')[2]}.keys"
    path.rename(tmp_path / "elsewhere")
    with everlog.open(store, catalog=CATALOG) as without:
        assert [record.event.payload["email"] for record in without.read()] == ["[sealed]", "[sealed]"]
        assert without.verify().ok


def test_a_key_that_is_destroyed_while_a_request_waits_is_not_used(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as log:
        register(log)
        request = log.writer.request(
            [everlog.Draft("customer.registered", "c/1", {"customer": "c/1", "email": EMAIL})], "", "append"
        )
        log.writer.prepare([request])
        forget(log, "c/1")
        with pytest.raises(everlog.EverlogError, match="destroyed"):
            log.writer.write(request.do)
        register(log)
        assert [record.event.payload["email"] for record in log.read()] == ["[sealed]", EMAIL]


def test_an_old_version_is_opened_before_it_is_upcast(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, catalog=CATALOG) as log:
        register(log)
    catalog = everlog.Catalog()
    catalog.event("customer.registered", version=1)(Registered)

    @catalog.event("customer.registered", version=2)
    class RegisteredNow(msgspec.Struct):
        customer: str
        mail: Annotated[str, Personal(of="customer")]

    @catalog.upcaster("customer.registered", from_version=1)
    def rename(old: dict[str, Any]) -> dict[str, Any]:
        return {"customer": old["customer"], "mail": old["email"].upper()}

    with everlog.open(url, catalog=catalog) as log:
        assert next(log.read()).event.payload == {"customer": "c/1", "mail": EMAIL.upper()}
        log.append("customer.registered", stream="c/1", payload={"customer": "c/1", "mail": EMAIL})
        forget(log, "c/1")
        assert [record.payload.mail for record in log.read(RegisteredNow)] == ["[SEALED]", "[sealed]"]


def test_a_declared_type_may_have_personal_fields(tmp_path: Path) -> None:
    from everlog.catalog.declared import declare, read_types

    fields = {"customer": "str", "email": "str personal of customer", "age": "int? personal of customer"}
    catalog = read_types(declare("", "customer.joined", fields))
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=catalog) as log:
        log.append("customer.joined", stream="c/1", payload={"customer": "c/1", "email": EMAIL, "age": 36})
        forget(log, "c/1")
        assert next(log.read()).event.payload == {"customer": "c/1", "email": "[sealed]", "age": None}
    assert files_with(tmp_path, EMAIL) == []


class Inner(msgspec.Struct):
    name: Annotated[str, Personal(of="customer")]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"email": Annotated[str, Personal("customer")]}, "no other field"),
        ({"email": Annotated[str, Personal("email")]}, "no other field"),
        ({"customer": str, "age": Annotated[int, Personal("customer")]}, "stand_in="),
        ({"customer": str, "all": list[Annotated[str, Personal("customer")]]}, "mark the field all itself"),
        ({"customer": str, "inner": Inner}, "mark the field inner itself"),
        (
            {"customer": str, "a": Annotated[str, Personal("b")], "b": Annotated[str, Personal("customer")]},
            "b is personal",
        ),
    ],
)
def test_a_model_whose_personal_fields_cannot_work_is_refused(fields: dict[str, Any], why: str) -> None:
    catalog = everlog.Catalog()
    catalog.event("a.b")(msgspec.defstruct("Model", list(fields.items())))
    with pytest.raises(SchemaBroken) as refusal:
        catalog.validate("a.b", {})
    assert why in refusal.value.why
