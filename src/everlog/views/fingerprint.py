"""A fingerprint of the code that made a state: a state of other code is not taken for one of this code.

What is covered: the source of the view's class, of the classes it is made from and of what it names in `uses`, its
version, and for every event type that it takes the latest version and the source of its upcasters. What such code
calls elsewhere is not covered: give the view a new `version` when that changes what it says.
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
    """Of a view's own code."""
    classes = [kind for kind in type(view).__mro__ if kind not in (View, object)]
    code = map(source_of, [*classes, *view.uses])
    return _hash([view.name, view.version, str(view.order), sorted(view.types), *code])


def catalog_fingerprint(catalog: Catalog, view: View) -> str:
    """Of how the events that a view takes are read."""
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
    """The source, where there is one; else what was compiled from it.

    It is read once: a file that is edited later is not the code that runs in this process.
    """
    try:
        found = _sources.get(code)
    except TypeError:  # nothing that can be remembered
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
