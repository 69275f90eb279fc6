"""The tables of docs/reference/http.md, made of the route table; `reference` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from everlog.application.operations.registry import operations
from everlog.programs import TYPES
from everlog.server.routes.openapi import ABOUT_LOG, ALWAYS, WITH_BODY, WITH_TOKEN, codes_of
from everlog.server.routes.route import Route
from everlog.server.routes.table import routes
from everlog.wire.problems import every_error, status_of

_USUAL = {*ALWAYS, *WITH_TOKEN, *ABOUT_LOG, *WITH_BODY}


def http_tables() -> str:
    table = routes(operations())
    parts = [
        ("Events, streams, views, consumers and the server", [one for one in table if not _is_plain(one)]),
        ("Operations of the log", [one for one in table if _is_plain(one) and not _is_of_program(one)]),
        ("Operations of the programs", [one for one in table if _is_plain(one) and _is_of_program(one)]),
    ]
    found = [f"## {title}\n\n{_routes(some)}" for title, some in parts]
    found.append(f"## Problems\n\n{_problems()}")
    return "\n".join(found)


def _is_plain(route: Route) -> bool:
    return route.path.startswith(("/v1/do/", "/v1/ask/"))


def _is_of_program(route: Route) -> bool:
    return route.operation.partition(".")[0] in TYPES


def _routes(some: Sequence[Route]) -> str:
    lines = ["| route | what it does | role | scope | answers | its problems |", "|---|---|---|---|---|---|"]
    for route in some:
        role = route.policy.role + (", destructive" if route.policy.destructive else "")
        answers = ", ".join(dict.fromkeys(str(one.status) for one in route.answers))
        own = ", ".join(f"`{code}`" for code in codes_of(route) if code not in _USUAL)
        key = " (takes a key)" if route.keyed else ""
        path = route.path.replace("+}", "}")
        lines.append(
            f"| `{route.method} {path}` | {route.about}{key} | {role} | {route.policy.scope} | {answers} | {own} |"
        )
    return "\n".join(lines) + "\n"


def _problems() -> str:
    by_status: dict[int, list[str]] = {}
    for kind in every_error():
        by_status.setdefault(status_of(kind), []).append(kind.code)
    lines = ["| status | codes |", "|---|---|"]
    lines += [
        f"| {status} | {', '.join(f'`{code}`' for code in codes)} |" for status, codes in sorted(by_status.items())
    ]
    return "\n".join([*lines, "", *_usual()]) + "\n"


def _usual() -> Iterator[str]:
    for when, codes in (
        ("Every route may report", ALWAYS),
        ("Every route with a token may also report", WITH_TOKEN),
        ("Every route about a log may also report", ABOUT_LOG),
        ("Every route with a body may also report", WITH_BODY),
    ):
        yield f"{when} {', '.join(f'`{code}`' for code in codes)}.\n"
