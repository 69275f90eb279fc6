"""Chains that forked, for people: where, up to where each counts, and whether somebody named a branch."""

from __future__ import annotations

from everlog.log.log import Log


def forked_chains(log: Log) -> list[str]:
    """Return a line for each chain of which this log has the proof of a fork."""
    limits, lines = log.verdicts().limits, []
    for fork in log.forks():
        limit = limits.get(fork.origin)
        chain = log.stored.chains().get(fork.origin)
        upto = limit.upto if limit is not None else 0 if chain is None else chain.greatest.origin_seq
        named = ", on the branch that was named" if upto >= fork.origin_seq else ""
        lines.append(f"{fork.origin} at {fork.origin_seq}: counts up to {upto}{named}")
    return lines
