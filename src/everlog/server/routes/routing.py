"""Which route a request is for: by its path as it is, or by a pattern if the path has parameters.

/v1/jobs/{id}                 one part of the path
/v1/views/{view}:lag          a part of a part
/v1/views/{view}/{key+}       the rest of the path, with its slashes
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from everlog.core.text import did_you_mean
from everlog.errors import NoSuchRoute, WrongMethod
from everlog.server.routes.route import Route

_PARAMETER = re.compile(r"\{(\w+)(\+?)\}")


class Table:
    """Finds routes. Of two patterns that match, the one with fewer variable parts counts."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        patterns: dict[str, dict[str, Route]] = {}
        for route in routes:
            known = patterns if "{" in route.path else self._exact
            known.setdefault(route.path, {})[route.method] = route
        ordered = sorted(patterns, key=_precedence)
        self._patterns = [(_compiled(path), patterns[path]) for path in ordered]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        found = self._exact.get(path)
        params: dict[str, str] = {}
        if found is None:
            for pattern, methods in self._patterns:
                if (match := pattern.fullmatch(path)) is not None:
                    params, found = match.groupdict(), methods
                    break
        if found is None:
            near = did_you_mean(path[:200], self._exact)
            raise NoSuchRoute(f"there is nothing at {path[:200]}", hint=near or "GET /openapi.json lists every route")
        route = found.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted(found))
            raise WrongMethod(f"{path[:200]} does not take {method}", why=f"it takes {allowed}", allow=allowed)
        return route, params


def _precedence(path: str) -> tuple[bool, int]:
    return "+}" in path, -len(_PARAMETER.sub("", path))


def _compiled(path: str) -> re.Pattern[str]:
    pieces = _PARAMETER.split(path)
    text = ""
    for index in range(0, len(pieces) - 1, 3):
        text += re.escape(pieces[index]) + f"(?P<{pieces[index + 1]}>{'.+' if pieces[index + 2] else '[^/]+'})"
    return re.compile(text + re.escape(pieces[-1]), re.DOTALL)
