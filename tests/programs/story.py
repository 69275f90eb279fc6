"""Every command that takes a key, as one story on one log.

{name} stands for what an earlier line answered: `name = command` keeps the first fact of its answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

STORY = """
wp spec 025-log The-log
wp create WP01 First --subtask one --gate ci
wp create WP02 Second --depends-on WP01 --depends-on WP09
wp depend WP02 --on WP01
wp claim WP01 --minutes 5
wp renew WP01 --minutes 50
wp release WP01
wp move WP01 doing
wp subtask WP01 1
wp gate WP01 lint
wp gate WP01 ci --result passed
wp workspace WP01 ../trees/WP01
door = issue create The-door-squeaks
lamp = issue create A-lamp-is-broken --link relates:{door} --label p1
issue edit {door} --title The-gate-squeaks
issue comment {door} Oil-helps
issue label {door} bug
issue unlabel {door} bug
issue link {door} blocks {lamp}
issue unlink {door} blocks {lamp}
issue claim {lamp} --minutes 5
issue renew {lamp} --minutes 50
issue release {lamp}
issue close {door} --reason oiled
issue reopen {door}
issue delete {door} --force --confirm delete_{door}
issue restore {door}
issue purge {door} --force --confirm purge_{door} --reason erasure
one = agent propose pytest --agent-id builder
agent validate {one}
agent approve {one} --actor user:bob
agent execute {one}
two = agent propose make --agent-id builder
agent reject {two} --reason no --actor user:bob
three = agent propose ruff --agent-id builder --id ruff-1
agent approve {three} --actor user:bob
agent fail {three} --error broken
community create hearth
community policy --who-posts member --post-days 20
community invite user:bob
community join --actor user:bob
community node --name attic
community promote user:bob --to moderator
community demote user:bob --to member
community post lamp A-lamp --days 10
community update lamp --price 5 --days 5
community expire lamp
community post old An-old-one --days 1 --at 2020-01-01T00:00Z
community expire --due
community say general hello
community deliver general --actor user:bob
community read general --actor user:bob
community advertise bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi
community unpin bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi
community ingest manual The-manual
community revoke user:bob
control org create acme
control app create acme/shop
control environment create acme/shop/prod
d = control deploy request acme/shop/prod shop:1
control deploy start {d} --actor service:deployer
control deploy succeed {d} --actor service:deployer
control deploy rollback {d} --reason slow
control deploy request acme/shop/prod shop:2 --id d2
control deploy fail d2 --error broken
control route set shop.example.org acme/shop/prod
control route remove shop.example.org
control secret set acme/shop/prod DATABASE_URL --version 3
control secret remove acme/shop/prod DATABASE_URL
control volume attach acme/shop/prod data --mount /data --size-gb 10
control volume detach acme/shop/prod data
control scale acme/shop/prod web 3
control environment close acme/shop/prod --reason over
control app close acme/shop --reason over
control org close acme --reason over
"""


def lines() -> Iterator[tuple[str, list[str]]]:
    """The lines of the story: what their answer is kept as, and the words of the command."""
    for line in STORY.strip().splitlines():
        name, separator, command = line.partition(" = ")
        yield (name if separator else ""), (command if separator else line).split()


def typed(words: list[str], kept: Mapping[str, str]) -> list[str]:
    """Return the words of a line with what earlier lines answered. `_` is a blank in a confirmation."""
    found = [word.format(**kept) for word in words]
    if "--confirm" in found:
        at = found.index("--confirm") + 1
        found[at] = found[at].replace("_", " ")
    return found
