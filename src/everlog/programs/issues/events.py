"""What happens to an issue. Its stream is `issue/UID`; what a purge leaves is on `issue-tombstone/UID`.

The names are those of the tracker that seed 004 describes, so that its exports, once imported, are issues here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from everlog.catalog.catalog import Catalog
from everlog.programs import leases

CATALOG = Catalog()
KIND = "issue"
TOMBSTONE = "issue-tombstone"

Uid = Annotated[str, Meta(pattern=r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$")]
ShortId = Annotated[str, Meta(pattern=r"^[0-9a-hjkmnp-tv-z]{4,26}$")]
Title = Annotated[str, Meta(min_length=1, max_length=300)]
Body = Annotated[str, Meta(max_length=50_000)]
Owner = Annotated[str, Meta(max_length=200)]
Label = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9:._/+-]{0,63}$",
        description="a label: one word of a-z, 0-9 and :._/+-, at most 64 characters",
    ),
]
Reason = Annotated[str, Meta(max_length=2_000)]
Field = Literal["title", "body", "owner"]
LinkKind = Literal["blocks", "duplicates", "relates"]


@CATALOG.event("issue.created", version=1)
class CreatedV1(msgspec.Struct, frozen=True, kw_only=True):
    """An issue was opened, which was known by a number."""

    number: int
    title: Title
    body: Body = ""
    owner: Owner | None = None
    labels: list[Label] = []


@CATALOG.event("issue.created", version=2)
class Created(msgspec.Struct, frozen=True, kw_only=True):
    """An issue was opened."""

    short_id: Annotated[str, Meta(pattern=r"^([0-9a-hjkmnp-tv-z]{4,26})?$")]  # empty: older than short ids
    title: Title
    body: Body = ""
    owner: Owner = ""
    labels: list[Label] = []


@CATALOG.upcaster("issue.created", from_version=1)
def leave_the_number_behind(old: dict[str, Any]) -> dict[str, Any]:
    """Numbers do not name issues any more. An export of that tracker may have a short id already, and lack a lot."""
    short_id = old.get("short_id")
    labels = old.get("labels")
    return {
        "short_id": short_id if isinstance(short_id, str) else "",
        "title": str(old.get("title") or "(no title)"),
        "body": str(old.get("body") or ""),
        "owner": str(old.get("owner") or ""),
        "labels": sorted(str(label) for label in labels) if isinstance(labels, list) else [],
    }


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a field was, and what it became."""

    before: str = msgspec.field(name="from")
    to: str


@CATALOG.event("issue.edited")
class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of an issue were changed, each from one value to another."""

    changes: Annotated[dict[Field, Change], Meta(min_length=1)]


@CATALOG.event("issue.commented", merge="keep-both")
class Commented(msgspec.Struct, frozen=True, kw_only=True):
    """An issue got a comment. A comment is neither edited nor deleted."""

    body: Annotated[str, Meta(min_length=1, max_length=50_000)]


@CATALOG.event("issue.labeled")
class Labeled(msgspec.Struct, frozen=True, kw_only=True):
    """An issue got a label."""

    label: Label


@CATALOG.event("issue.unlabeled")
class Unlabeled(msgspec.Struct, frozen=True, kw_only=True):
    """An issue lost a label."""

    label: Label


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An end of a link, by both of its identities. One whose two identities differ is refused wherever it comes
    from, as a payload that does not fit."""

    uid: Uid
    short_id: ShortId

    def __post_init__(self) -> None:
        if not self.uid.lower().endswith(self.short_id):
            raise ValueError(f"{self.short_id} is not the end of {self.uid}")


@CATALOG.event("issue.linked")
class Linked(msgspec.Struct, frozen=True, kw_only=True):
    """An issue points to another one."""

    kind: LinkKind
    source: Endpoint
    target: Endpoint


@CATALOG.event("issue.unlinked")
class Unlinked(msgspec.Struct, frozen=True, kw_only=True):
    """An issue points to another one no more."""

    kind: LinkKind
    source: Endpoint
    target: Endpoint


@CATALOG.event("issue.closed")
class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """An issue is settled. It stays visible."""

    reason: Reason = ""


@CATALOG.event("issue.reopened")
class Reopened(msgspec.Struct, frozen=True, kw_only=True):
    """An issue is not settled after all."""

    reason: Reason = ""


@CATALOG.event("issue.soft_deleted")
class SoftDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """An issue is hidden, and can be brought back."""

    reason: Reason = ""


@CATALOG.event("issue.restored")
class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """A deleted issue is back."""


@CATALOG.event("issue.purged")
class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """What stays of an issue that was purged: who it was, so that its short id is never given again."""

    uid: Uid
    short_id: ShortId
    reason: Annotated[str, Meta(max_length=256)] = ""
    events: Annotated[int, Meta(ge=0)] = 0  # how many were removed


@CATALOG.event("issue.claimed")
class Claimed(leases.Claimed, frozen=True, kw_only=True):
    """Its actor works on an issue until this moment. A later claim of the same actor extends it."""


@CATALOG.event("issue.released")
class Released(leases.Released, frozen=True, kw_only=True):
    """A claim of an issue ended: its holder gave it up, or its time had passed and somebody else took the work."""


CLAIMS = leases.Claims(
    claimed="issue.claimed",
    released="issue.released",
    made=Claimed,
    ended=Released,
    group="issue",
    free="ready",
    shows="show",
)
TYPES = tuple(info.type for info in CATALOG.types())
