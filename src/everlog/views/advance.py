"""How a build continues: the result of every operation that advances or changes one.

    match build.advance():
        case Advance.MORE | Advance.OVERTAKEN:   call it again
        case Advance.AT_HEAD | Advance.STOPPED:  done
        case Advance.REBUILD:                    only a new build can follow the log
        case Advance.GONE:                       open the build that replaced this one

The methods are those of `OpenBuild`; `LiveView.caught_up` is the loop that acts on the result.
"""

from __future__ import annotations

from enum import Enum


class Advance(Enum):
    """The result of an operation on an open build."""

    MORE = "more"  # it is kept, and there may be more to take
    AT_HEAD = "at head"  # the build has every event of the log
    STOPPED = "stopped"  # at an event whose key cannot be determined
    OVERTAKEN = "overtaken"  # another process changed the build; it is reloaded, and nothing was kept
    PAGE_BY_PAGE = "page by page"  # several pages cannot be kept together; they are taken again one by one
    REBUILD = "rebuild"  # history changed, or rows are damaged, in a way that only a new build can follow
    GONE = "gone"  # the build was removed: there is a newer one


ENDS = (Advance.REBUILD, Advance.GONE)
"""After these a build cannot be advanced any further."""
