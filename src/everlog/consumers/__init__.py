"""Consumers that share a log: named groups, each key in order, each event at least once.

See docs/how-to/consumers.md.
"""

from __future__ import annotations

from everlog.consumers.delivery import Delivery as Delivery
from everlog.consumers.group import Group as Group
from everlog.consumers.group import Lag as Lag
from everlog.consumers.group import groups as groups
from everlog.consumers.member import Member as Member
from everlog.log.dead_letters import GroupLetter as GroupLetter
