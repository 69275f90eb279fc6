"""In place of a Postgres outbox table: the log is the outbox, and a group of consumers publishes from it.

    python outbox.py postgresql://user@host/database      # or sqlite:shop.db

An order is one append: the event, the check of the stock and its view commit together. Publishing is at least once,
in order per stream; what the broker refuses is retried and becomes a dead letter, and everything else goes on.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

import everlog
from everlog.consumers import Group

catalog = everlog.Catalog()


@catalog.event("stock.delivered")
class Delivered(msgspec.Struct):
    count: int


@catalog.event("stock.sold")
class Sold(msgspec.Struct):
    count: int
    customer: str


class Stock(everlog.View):
    """One row per article: how many are left. It changes in the transaction of the append."""

    name = "stock"
    kind = "article"

    def apply(self, state: dict[str, Any], event: everlog.Event) -> dict[str, Any]:
        sign = 1 if event.type == "stock.delivered" else -1
        return {"left": state.get("left", 0) + sign * event.payload["count"]}


def sell(log: everlog.Log, article: str, customer: str, request: str) -> int | None:
    """Sell one article, once per request. If another sale was faster, decide again."""
    stream = f"article/{article}"
    while True:
        records = list(log.read(stream=stream))
        for record in records:
            if record.event.idempotency_key == request:  # a retry of a sale, perhaps of the last one
                return record.position
        row = log.view(Stock).get(stream)
        if row is None or row.state["left"] < 1:
            return None
        try:
            return log.append(Sold(1, customer), stream=stream, expect=records[-1].sequence, key=request).position
        except everlog.errors.WrongSequence:
            continue


class Broker:
    """Stands for Kafka, RabbitMQ or a mail server. It fails now and then, and always for one customer."""

    def __init__(self) -> None:
        self.published: list[tuple[str, str]] = []
        self.calls = 0

    def publish(self, key: str, body: dict[str, Any]) -> None:
        self.calls += 1
        if body.get("customer") == "eve" or self.calls % 4 == 0:
            raise ConnectionError("the broker did not answer")
        self.published.append((key, body.get("customer", "")))


def main(url: str) -> None:
    broker = Broker()
    with everlog.open(url, catalog=catalog, actor="service:shop") as log:
        log.views.register(Stock, mode="inline")
        log.append(Delivered(3), stream="article/lamp")
        for request, customer in (("r1", "ada"), ("r2", "bob"), ("r3", "eve"), ("r3", "eve"), ("r4", "kim")):
            print(customer, "sold" if sell(log, "lamp", customer, request) else "none left")

        sales = everlog.Query(types=frozenset(["stock.sold"]))
        group = Group(log, "publisher", sales, partitions=4, attempts_max=2, retry_s=0.01)
        with group.member("publisher-1") as member:  # start as many processes as you like
            member.run(lambda record: broker.publish(record.event.stream, record.event.payload), to_end=True)
        print("published", broker.published)
        print("dead letters", [(letter.position, letter.reason) for letter in group.dead_letters()])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory:")
