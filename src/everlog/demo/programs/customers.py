"""Customers of the shop: types of the company's own, declared as data beside those of the programs."""

from __future__ import annotations

from everlog.demo.week import Thread, Week
from everlog.log.log import Log

TYPES = """\
# The event types of this log's own. `everlog schema show customer.registered` explains one.

[types."customer.registered"]
doc = "A customer signed up."
fields = { name = "str", plan = "free | team = 'free'" }

[types."customer.note_taken"]
doc = "Support wrote something down about a customer."
fields = { text = "str" }

[types."customer.plan_changed"]
doc = "A customer goes to another plan."
fields = { went_to = "free | trial | team" }

[types."customer.plan_changed".transitions]
kind = "customer"
field = "went_to"
initial = "free"
allowed = { free = ["trial"], trial = ["team", "free"], team = ["free"] }
"""

NAMES = ("Ines", "Tomasz", "Yuki", "Olu", "Maren", "Kofi", "Lin", "Ravi", "Sofia", "Tariq")
ERASED = "customer/42"
"""The customer whose events are purged on request."""

SCOPE = "acme/billing"


def threads(log: Log, week: Week) -> list[Thread]:
    return [_customer(log, week, number, name) for number, name in enumerate(NAMES, start=40)]


def _customer(log: Log, week: Week, number: int, name: str) -> Thread:
    stream = f"customer/{number}"

    def record(type: str, actor: str, **payload: str) -> None:
        log.append(type, stream=stream, payload=payload, actor=actor, scope=SCOPE, occurred_at=week.now)

    yield week.on((number - 40) * 0.5, 9)
    record("customer.registered", "service:signup", name=name)
    yield week.at_work(200)
    record("customer.note_taken", "user:grace", text=f"{name} asked about the team plan.")
    if number % 2:
        yield week.at_work(300)
        record("customer.plan_changed", "service:billing", went_to="trial")
