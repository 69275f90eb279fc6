"""`everlog serve`: a log, or several, as a service over HTTP."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import json_text
from everlog.cli.session import Session, common_options, pass_session

if TYPE_CHECKING:
    from everlog.application.folder.open import Location


@click.command("serve")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", metavar="PORT", type=click.IntRange(0, 65535), default=7373, show_default=True, help="0: any free one."
)
@click.option("--host-name", "host_names", metavar="NAME", multiple=True, help="A name under which it answers, too.")
@click.option("--tls-cert", metavar="FILE", type=click.Path(path_type=Path), help="The certificate, in PEM.")
@click.option("--tls-key", metavar="FILE", type=click.Path(path_type=Path), help="The key of the certificate.")
@click.option("--behind-proxy", is_flag=True, help="A proxy does TLS, and says who calls (X-Forwarded-For).")
@click.option("--also", metavar="NAME=URL", multiple=True, help="Serve another log, too, at /v1/logs/NAME.")
@click.option("--log-requests", is_flag=True, help="Write a line for every request to standard error.")
@common_options
@pass_session
def serve_command(
    session: Session, host_names: tuple[str, ...], also: tuple[str, ...], log_requests: bool, **listen: Any
) -> None:
    """Serve the log over HTTP, until Ctrl-C or SIGTERM.

    Callers need a token: see everlog tokens. If only this machine can reach it, the server makes one for itself and
    prints it; that one ends with the server. Any other address needs TLS, or a proxy that does it. It also sends
    events to webhooks: see everlog hooks.

    \b
    Examples:
      everlog serve
      everlog serve --port 0 --json
      everlog serve --also archive=sqlite:/srv/archive.db
      everlog serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --host-name log.example
    """
    from everlog.server.hooks.delivery import Deliveries
    from everlog.server.listen.front import Front
    from everlog.server.listen.holder import sole_server
    from everlog.server.observe.json_logs import logging_as_json
    from everlog.server.serve import Listen, app_of, limits_of, named_logs, serve

    where = Listen(**listen)
    where.check()
    settings = session.settings().settings
    names = (*host_names, *settings.host_names.split(","), where.host)
    front = Front(limits_of(settings), host_names=names, behind_proxy=where.behind_proxy, log_requests=log_requests)
    with ExitStack() as stack:
        logs = {"log": session.log()}
        locations = {"log": session.location, **named_logs(also, work_in=session.work_in)}
        for name in list(locations)[1:]:
            logs[name] = stack.enter_context(locations[name].open())
        holders = [stack.enter_context(sole_server(log)) for log in logs.values()]
        stack.enter_context(logging_as_json(requests=log_requests))
        app = app_of(logs, locations, settings, front)
        stack.callback(app.close)
        secret = app.new_secret(actor=logs["log"].actor) if where.is_private else ""
        for name, log in logs.items():
            if (place := _place_of_keys(locations[name])) is not None:
                stack.callback(Deliveries(log, place).close)

        def ready(url: str) -> None:
            for holder in holders:
                holder.answers_at(url)
            lines = [f"serving at {url}", *([f"token {secret}"] if secret else [])]
            text = json_text({"url": url, "token": secret}) if session.json else "\n".join(lines)
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

        serve(app, where, ready=ready)


def _place_of_keys(location: Location) -> Path | None:
    """Return the folder of the keys of a log. One that is opened by the URL of a database has none, and no hooks."""
    from everlog.application.trust.keys import keys_of
    from everlog.errors import NoKey

    try:
        return keys_of(location).path
    except NoKey:
        return None
