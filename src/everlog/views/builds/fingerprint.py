"""A fingerprint of the code that made a state, so that states of other code are not mistaken for those of this code.

It covers the source of the view's class, of its base classes and of what it names in `uses`, its version, and for
every event type that it applies the latest version and the source of its upcasters. It does not cover what such code
calls elsewhere: give the view a new `version` when that changes its states.
"""

from __future__ import annotations

import hashlib
import inspect
import threading
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from everlog.catalog.catalog import Catalog
from everlog.core.canonical import canonical
from everlog.views.view import View


def code_fingerprint(view: View) -> str:
    """Return the fingerprint of a view's own code."""
    classes = [kind for kind in type(view).__mro__ if kind not in (View, object)]
    code = map(source_of, [*classes, *view.uses])
    return _hash([view.name, view.version, str(view.order), sorted(view.types), *code])


def is_code_of(view: View, fingerprint: str) -> bool:
    """Return whether a fingerprint is that of a view's code, or of an earlier text of the same code."""
    return fingerprint == code_fingerprint(view) or EARLIER.get((view.name, view.version)) == fingerprint


EARLIER = {
    ("streams", 1): "a754323e4c32f3625ec4e02662c562a7",
    ("types", 1): "036ade5a993e137e246e1881cd959248",
    ("actors", 1): "6d2494bb81d26193859dd0adf68ad420",
    ("fields", 1): "ffe9622555a3fa268de83abab928ea66",
    ("agents.commands", 1): "4e94689470a38ed2aff0f2d9d1001197",
    ("agents.pending", 1): "987e83354e0a3700d29403e82b183eda",
    ("agents.trace", 1): "b4b41f4895848cf08ef6cbcc0c06b4ec",
    ("agents.causes", 2): "ef36a13c00429661951114ef9d80b0fc",
    ("agents.sources", 1): "e3a6d0ecd4123c8f24628b1494906d80",
    ("community.manifest", 1): "43407fbb15cc7421c5f8a261d43edae1",
    ("community.market", 1): "15ac457d9779132191038a2173e33997",
    ("community.files", 1): "7f295f705424c0ed9d65ad7796fc16a0",
    ("community.documents", 1): "7279bf4ed9e7c6e3caa6c0b0d2828875",
    ("community.chats", 1): "88a50a6b742ab128e1443e7f1ef2e4bc",
    ("community.threads", 1): "1545531e5fb01ed3bde87de1e35d2288",
    ("controlplane.desired", 1): "b52cc22cfdf099a2f47e400bb8feda55",
    ("controlplane.deploys", 1): "9e31a80ebcdc391794de6638344ad845",
    ("controlplane.audit", 1): "92cb4dd59436cba2f106074f80882436",
    ("controlplane.places", 1): "5110101116a9e6424a806252bd6a0bdd",
    ("issues.current", 1): "977a4b020c468b4abcf63da9cdbd687a",
    ("issues.short_ids", 1): "18af0e4cba0c6cb5160e1fda7c28cba8",
    ("issues.backlinks", 1): "322b7136a53b0ecf2a52b270d0e56761",
    ("workpackages.board", 1): "8c089d83df9efdd26b9fe57f63ffbb2f",
    ("workpackages.specs", 1): "ccf90781cca643036903321cf5389ef4",
}
"""Fingerprints of everlog's own views before names and comments in them were revised. The states are the same, so the
views of an existing log are neither rebuilt nor reported."""


def catalog_fingerprint(catalog: Catalog, view: View) -> str:
    """Return the fingerprint of how the events that a view applies are read."""
    readings = catalog.readings(view.types)
    return _hash(
        [
            [event_type, latest, [[version, source_of(function)] for version, function in upcasters]]
            for event_type, latest, upcasters in readings
        ]
    )


def _hash(parts: Any) -> str:
    return hashlib.sha256(canonical(parts)).hexdigest()[:32]


_sources: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
# Finding the source of a class parses its module. Python 3.11 fails with a SystemError when two threads do that at
# once ("AST constructor recursion depth mismatch"): https://github.com/python/cpython/issues/106905
_one_at_a_time = threading.Lock()


def source_of(code: Any) -> str:
    """Return the source, or what was compiled from it if there is none.

    It is read once: a file that is edited later is not the code that runs in this process.
    """
    try:
        found = _sources.get(code)
    except TypeError:  # it cannot be a key of a dictionary
        with _one_at_a_time:
            return _read_source(code)
    if found is None:
        with _one_at_a_time:
            found = _sources[code] = _read_source(code)
    return found


def _read_source(code: Any) -> str:
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return " ".join(_compiled(code))


def _compiled(code: Any) -> list[str]:
    if inspect.isclass(code):
        functions = [value for _, value in sorted(vars(code).items()) if inspect.isfunction(value)]
        return [text for function in functions for text in _compiled(function)]
    found = getattr(code, "__code__", None)
    return _parts(found) if isinstance(found, CodeType) else [type(code).__qualname__]


def _parts(code: CodeType) -> list[str]:
    parts = [code.co_name, code.co_code.hex(), *code.co_names]
    for constant in code.co_consts:
        parts += _parts(constant) if isinstance(constant, CodeType) else [repr(constant)]
    return parts
