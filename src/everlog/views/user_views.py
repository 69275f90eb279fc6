"""The user's views, as a setting names them: those that can be used, and what is wrong with the others.

This is the user's code and may do anything. An error in one view must not keep another from answering, nor a purge
from reaching what the view stored, which needs no code.
"""

from __future__ import annotations

from collections.abc import Callable
from reprlib import repr as short  # never fails

from everlog.errors import EverlogError, InvalidSettings
from everlog.views.builtin import Fields
from everlog.views.view import View, view_of


def usable_views(
    given: object, source: str, taken: Callable[[str], View | type[View] | None]
) -> tuple[list[View], list[InvalidSettings]]:
    """Return the usable views among those that `source` names, and the errors of the others. `taken` returns the view
    that has a name already."""
    usable: dict[str, View] = {}
    wrong: list[InvalidSettings] = []
    for one in given if isinstance(given, (list, tuple)) else (given,):
        try:
            view = _made(one)
            other = usable.get(view.name) or taken(view.name) or (Fields if view.name == Fields.name else None)
            if (why := _clash(view, other)) == "":
                usable[view.name] = view
                continue
            cause = None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            why, cause = describe(error), error
        found = InvalidSettings(
            f"the view {short(one)} of {source!r} cannot be used",
            why=why,
            hint="correct its code, or everlog config set views ''",
        )
        found.__cause__ = cause
        wrong.append(found)
    return list(usable.values()), wrong


def describe(error: BaseException) -> str:
    """Return the message of an error of the user's code, also if its `__str__` fails."""
    try:
        text = str(error)
    except Exception:
        return type(error).__name__
    known = isinstance(error, EverlogError | ImportError | AttributeError)
    return text if known else f"{type(error).__name__}: {text}"


def _made(given: object) -> View:
    if isinstance(given, View) or (isinstance(given, type) and issubclass(given, View)):
        return view_of(given)
    raise InvalidSettings("it must be an everlog.View, or a list of them")


def _clash(view: View, other: View | type[View] | None) -> str:
    """Return why a view cannot have its name; the same view twice does no harm."""
    kind = other if isinstance(other, type) else type(other)
    if other is None or (kind is type(view) and other.version == view.version):
        return ""
    return f"{kind.__module__}.{kind.__qualname__} has the name {view.name} already; give one of them another name"
