"""`everlog keys`: the keys that a signed log signs with."""

from __future__ import annotations

from pathlib import Path

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, actor_option, common_options, pass_session

_passphrase_option = click.option(
    "--passphrase", is_flag=True, help="Protect the key with a passphrase: typed, or of the setting passphrase_file."
)


@click.group("keys")
@common_options
def keys_command() -> None:
    """Keys of a signed log: new, list, show, rotate, export, import.

    A private key is a file that only its owner can read, in .everlog/keys or beside the log. It is never printed.

    \b
    Examples:
      everlog keys list
      everlog keys rotate
    """


@keys_command.command("new")
@_passphrase_option
@common_options
@pass_session
def new_command(session: Session, passphrase: bool) -> None:
    """Make a key. Nothing uses it before: everlog keys rotate --to KEY.

    \b
    Example:
      everlog keys new --passphrase
    """
    from everlog.application.trust.keys import keys_of, new_key

    made = new_key(keys_of(session.location), passphrase=passphrase)
    session.out.answer(Answer.of_row(made, {"key": made}, lines=[f"made the key {made}"]))
    session.out.hint(f"next: everlog keys rotate --to {made}")


@keys_command.command("list")
@common_options
@pass_session
def list_command(session: Session) -> None:
    """List the private keys that are here, and what each is to the log.

    The key that signs new events is marked signs, one that signed before is former, and any other is spare.

    Columns when piped: key, use, signed (the last number that it signed in this log), passphrase.

    \b
    Example:
      everlog keys list
    """
    from everlog.application.trust.keys import keys_of, list_keys

    identity = session.log().identity
    found = list_keys(keys_of(session.location), identity)
    columns = ("key", "use", "signed", "passphrase")
    cells = {"passphrase": lambda one: "yes" if one.passphrase else "no"}
    session.out.answer(Answer.of_many(found, columns, cells=cells))
    if not any(one.use == "signs" for one in found):
        session.out.hint("none of them signs for this log; everlog keys show prints the key that does, if it has one")


@keys_command.command("show")
@click.argument("key", required=False, default="")
@common_options
@pass_session
def show_command(session: Session, key: str) -> None:
    """Show a public key in all of its forms: as did:key, for OpenSSH, and as a verifier key of signed notes.

    Without KEY it is that of this log. KEY may be z6Mk…, did:key:z6Mk… or ssh-ed25519 …

    \b
    Examples:
      everlog keys show
      everlog keys show "$(cat ~/.ssh/id_ed25519.pub)"
    """
    import msgspec

    from everlog.application.trust.keys import forms_of

    facts = msgspec.to_builtins(forms_of(session.log().identity, key))
    lines = [f"{name:<9} {safe(value)}" for name, value in facts.items()]
    session.out.answer(Answer.of_one(facts["key"], facts, lines=lines))


@keys_command.command("rotate")
@click.option("--to", metavar="KEY", default="", help="Continue under this key, which is here already.")
@actor_option
@common_options
@pass_session
def rotate_command(session: Session, to: str) -> None:
    """Continue under a new key. The old one ends its chain with origin.succeeded, which both keys sign.

    The standing of the old key passes to the new one. In a community, the new key is announced as a node of those who
    act from here. Keep the old key file until everybody has the last event of its chain.

    \b
    Examples:
      everlog keys rotate
      everlog keys rotate --to z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK
    """
    from everlog.application.trust.keys import keys_of, rotate_key

    last = rotate_key(session.log(), keys_of(session.location), to)
    new = last.event.payload["successor"]
    facts = {"key": new, "before": last.event.origin, "position": last.position}
    lines = [f"this log signs with {new}", f"{last.event.origin} ended its chain at #{last.position}"]
    session.out.answer(Answer.of_row(new, facts, lines=lines))
    session.out.hint("others who pin your key follow by themselves; checkpoints have the new key from now on")


@keys_command.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("key", required=False, default="")
@common_options
@pass_session
def export_command(session: Session, file: Path, key: str) -> None:
    """Write a private key to a new FILE of mode 0600. Anyone who reads it can sign as this log.

    Without KEY it is the one that signs for this log.
    A key with a passphrase stays protected by it. Nothing is overwritten, and nothing of the key is printed.

    \b
    Example:
      everlog keys export /media/usb/shop.key
    """
    from everlog.application.trust.keys import export_key, keys_of

    exported = export_key(keys_of(session.location), session.log().identity, session.directory / file, key)
    facts = {"key": exported.origin, "file": str(file)}
    line = safe(f"wrote the private key of {exported.origin} to {file}")
    session.out.answer(Answer.of_row(exported.origin, facts, lines=[line]))


@keys_command.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@_passphrase_option
@common_options
@pass_session
def import_command(session: Session, file: Path, passphrase: bool) -> None:
    """Keep the private key of FILE: one of everlog keys export, or an Ed25519 key of OpenSSH.

    The file must be readable by you alone (chmod 600). A log whose key it is can be written to again. Any other key
    is used after: everlog keys rotate --to KEY.

    \b
    Examples:
      everlog keys import /media/usb/shop.key
      everlog keys import ~/.ssh/id_ed25519 --passphrase
    """
    from everlog.application.trust.keys import import_key, keys_of

    taken = import_key(keys_of(session.location), session.directory / file, passphrase=passphrase)
    session.out.answer(Answer.of_row(taken, {"key": taken}, lines=[f"keeps the key {taken}"]))
