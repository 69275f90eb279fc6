"""The views of one's own, as a setting names them: those that can be used, and what is wrong with each other one.

It is somebody else's code, and may be anything. What is wrong with one view must keep no other from answering, and no
purge from reaching what the view kept: that needs no code.
"""

from __future__ import annotations

from collections.abc import Callable
from reprlib import repr as short  # one that cannot fail, whatever is shown

from everlog.errors import EverlogError, InvalidSettings
from everlog.views.fields import Fields
from everlog.views.view import View, view_of


def usable_views(
    given: object, source: str, taken: Callable[[str], View | type[View] | None]
) -> tuple[list[View], list[InvalidSettings]]:
    """The views among what `source` names, and what is wrong with the rest. `taken`: who else has a name."""
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
            why, cause = told(error), error
        found = InvalidSettings(
            f"the view {short(one)} of {source!r} cannot be used",
            why=why,
            hint="correct its code, or everlog config set views ''",
        )
        found.__cause__ = cause
        wrong.append(found)
    return list(usable.values()), wrong


def told(error: BaseException) -> str:
    """What an error of somebody else's code says, even one that cannot say it."""
    try:
        said = str(error)
    except Exception:
        return type(error).__name__
    return (
        said if isinstance(error, EverlogError | ImportError | AttributeError) else f"{type(error).__name__}: {said}"
    )


def _made(given: object) -> View:
    if isinstance(given, View) or (isinstance(given, type) and issubclass(given, View)):
        return view_of(given)
    raise InvalidSettings("it must be an everlog.View, or a list of them")


def _clash(view: View, other: View | type[View] | None) -> str:
    """Why a view cannot have its name beside another one; the same view twice does no harm."""
    kind = other if isinstance(other, type) else type(other)
    if other is None or (kind is type(view) and other.version == view.version):
        return ""
    return f"{kind.__module__}.{kind.__qualname__} has the name {view.name} already; give one of them another name"
