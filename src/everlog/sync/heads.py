"""What follows from the heads of two nodes: which numbers each lacks, and whether heads alone can tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from everlog.sync.holdings import Holdings
from everlog.sync.wire import RUNS_MAX, Heads, OriginHead, Span
from everlog.trust.forks import ForkProof

HEADS_ORIGINS_MAX = 1_000
"""Above this many chains, ranges are cheaper than heads."""

_NOTHING = OriginHead(0, b"")


class Plan(NamedTuple):
    """What to fetch and what to send. `unclear`: there may be more, which only ranges find."""

    wants: list[Span]
    gives: list[Span]
    unclear: bool

    @property
    def equal(self) -> bool:
        return not (self.wants or self.gives or self.unclear)


def proven_equal(ours: Heads, theirs: Heads) -> bool:
    """Return whether the same events count on two nodes: equal ends with equal hashes, and the same forks.

    Fingerprints alone prove nothing: somebody may have made events for which they are equal.
    """
    return (
        not _unlisted(ours)
        and ours.origins == theirs.origins
        and _forked(ours) == _forked(theirs)
        and (ours.count, ours.fingerprint) == (theirs.count, theirs.fingerprint)
    )


def _forked(heads: Heads) -> set[tuple[str, int]]:
    """Return where chains forked. Two proofs of one fork may show different branches."""
    return {(fork.origin, fork.origin_seq) for fork in heads.forks}


def forks_that_lack(heads: Heads, forks: Iterable[ForkProof]) -> list[ForkProof]:
    """Return the proofs that a node with these heads lacks: of chains that forked nowhere there, or only later."""
    listed = {fork.origin: fork.origin_seq for fork in heads.forks}
    return [fork for fork in forks if fork.origin_seq < listed.get(fork.origin, fork.origin_seq + 1)]


def compare(holdings: Holdings, ours: Heads, theirs: Heads) -> Plan:
    """Return what each side lacks."""
    if ours.origins == theirs.origins and (ours.count, ours.fingerprint) == (theirs.count, theirs.fingerprint):
        return Plan([], [], False)
    if max(len(ours.origins), len(theirs.origins)) > HEADS_ORIGINS_MAX or _unlisted(ours) or _unlisted(theirs):
        return Plan([], [], True)
    wants: list[Span] = []
    gives: list[Span] = []
    unclear = False
    for origin in sorted({*ours.origins, *theirs.origins}):
        own, other = ours.origins.get(origin, _NOTHING), theirs.origins.get(origin, _NOTHING)
        if own == other:
            continue
        if RUNS_MAX in (len(own.beyond), len(other.beyond)) or _differs(holdings, origin, own, other):
            unclear = True
        wants += [Span(origin, first, last) for first, last in _without(other.runs, own.runs)]
        gives += [Span(origin, first, last) for first, last in _without(own.runs, other.runs)]
    # Equal numbers with other hashes, of which heads show only the last ones.
    return Plan(wants, gives, unclear or not (wants or gives))


def _unlisted(heads: Heads) -> bool:
    return not heads.origins and heads.count > 0


def _differs(holdings: Holdings, origin: str, own: OriginHead, other: OriginHead) -> bool:
    """Return whether the other side has an event here under another hash, as far as heads show it."""
    ends = [(other.end, other.hash), *((run.last, run.hash) for run in other.beyond)]
    here = own.runs
    return any(
        holdings.hash_at(origin, number) != digest
        for number, digest in ends
        if any(first <= number <= last for first, last in here)
    )


def without(spans: Iterable[Span], came: Iterable[tuple[str, int]]) -> list[Span]:
    """Return spans without the numbers that came."""
    numbers: dict[str, list[tuple[int, int]]] = {}
    for origin, number in sorted(came):
        runs = numbers.setdefault(origin, [])
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return [
        Span(span.origin, first, last)
        for span in spans
        for first, last in _without([(span.first, span.last)], numbers.get(span.origin, ()))
    ]


def _without(runs: Sequence[tuple[int, int]], known: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what is in one list of runs and not in the other. Both are in order."""
    found = []
    for first, last in runs:
        start = first
        for lower, upper in known:
            if upper < start or lower > last:
                continue
            if lower > start:
                found.append((start, lower - 1))
            start = max(start, upper + 1)
        if start <= last:
            found.append((start, last))
    return found
