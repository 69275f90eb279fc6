"""The columns of a view: fields of its state with their types.

They are how the table of the view in a lake shows a state, and no more: the state is what the fold made.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from everlog.errors import InvalidField

if TYPE_CHECKING:
    from everlog.views.view import View

KEY = "key"
"""The first column of every view's table; names that begin with `_` are those of everlog's own columns."""

_MOMENT = Annotated[datetime, msgspec.Meta(tz=True)]
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*").fullmatch


def model_of(view: View) -> type[msgspec.Struct]:
    """Return a struct with the columns that a view declares, each of them or null."""
    kind: Any = type(view)
    return _model_of(kind)


@lru_cache(maxsize=1024)
def _model_of(kind: type[View]) -> type[msgspec.Struct]:
    names = [name.lower() for name in kind.columns]
    for name in kind.columns:
        if _NAME(name) is None or name == KEY or names.count(name.lower()) > 1:
            raise InvalidField(
                f"{kind.name} has the column {name!r}",
                why="names are letters, digits and _, begin with a letter, differ in more than case, and are not key",
                hint="give this field of the state another name",
                field="view",
            )
    try:
        fields = [
            (name, (_MOMENT if type_ is datetime else type_) | None, None) for name, type_ in kind.columns.items()
        ]
        model = msgspec.defstruct("Columns", fields)
        msgspec.json.schema(model)
    except TypeError as error:
        raise InvalidField(
            f"{kind.name} has a column of a type that JSON does not have",
            why=str(error),
            hint="use str, int, float, bool, datetime, date, list[...], dict[str, ...] or a msgspec.Struct",
            field="view",
        ) from error
    return model
