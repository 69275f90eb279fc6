"""Send events to hooks: one thread per hook, each a member of its group of consumers.

A delivery is acknowledged by a status of 200 to 299. Anything else, a redirect included, is a failure: the event is
sent again after a delay that doubles, and becomes a dead letter after 12 attempts (about an hour).

A hook must not reach what only this machine can reach. So the name of the host is looked up here, every address is
checked, and the connection goes to the address that was checked: the name cannot mean another one a moment later.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from everlog.core.event import Recorded
from everlog.errors import EverlogError, Forbidden, LogClosed, PeerUnavailable
from everlog.log.log import Log
from everlog.os_errors import survive_closed_connections
from everlog.server.events.cloudevents import ONE, of_record
from everlog.server.hooks.hook import Hook, HookSecrets, hooks_of, signature_headers

TIMEOUT_S = 10.0
LOOK_AGAIN_S = 2.0
"""How soon a hook that another process adds or removes is noticed."""

_ANSWER_BYTES_MAX = 64 * 1024
_logger = logging.getLogger("everlog.server")

Resolve = Callable[[str, int], list[str]]


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def address_of(hook: Hook, look_up: Resolve = resolve) -> str:
    """Return the address to send to; refuse a host that has a private one."""
    parts = urlsplit(hook.url)
    host = str(parts.hostname)
    try:
        found = look_up(host, parts.port or (443 if parts.scheme == "https" else 80))
    except OSError as error:
        raise PeerUnavailable(f"{host} has no address", why=str(error), hint="check the name") from error
    for address in found:
        if not hook.private and not is_public(address):
            raise Forbidden(
                f"{host} is at {address}, which is not a public address",
                why="a hook could reach what only this machine can reach",
                hint="add the hook with --private if this is meant",
            )
    return found[0]


def is_public(address: str) -> bool:
    """Return whether an address can be reached from everywhere; an IPv6 address may have an IPv4 one inside."""
    found = ipaddress.ip_address(address.partition("%")[0])
    inner = None
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if found in _NAT64:
            inner = ipaddress.IPv4Address(found.packed[-4:])
    return (inner or found).is_global and not (inner or found).is_multicast


_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Delivery:
    """Sends events to one hook."""

    def __init__(self, log: Log, hook: Hook, secrets: HookSecrets, *, look_up: Resolve = resolve) -> None:
        self._log = log
        self._hook = hook
        self._secrets = secrets
        self._look_up = look_up
        # No proxy and no .netrc of the environment: the request goes to the address that was checked.
        self._client = httpx2.Client(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False)

    def __call__(self, recorded: Recorded) -> None:
        """Send one event. Raise if it was not taken."""
        parts = urlsplit(self._hook.url)
        address = address_of(self._hook, self._look_up)
        body = of_record(recorded, ONE)[0]
        signed = signature_headers(
            recorded.event.id, int(time.time()), body, self._secrets.of(self._hook), self._log.signing_key()
        )
        host = f"[{address}]" if ":" in address else address
        url = parts._replace(netloc=host if parts.port is None else f"{host}:{parts.port}").geturl()
        headers = {"content-type": ONE, "host": parts.netloc, "user-agent": "everlog", **signed}
        try:
            with self._client.stream(
                "POST", url, content=body, headers=headers, extensions={"sni_hostname": str(parts.hostname)}
            ) as answer:
                until, read = time.monotonic() + TIMEOUT_S, 0
                for piece in answer.iter_raw():
                    read += len(piece)
                    if read > _ANSWER_BYTES_MAX or time.monotonic() > until:
                        break
                status = answer.status_code
        except httpx2.HTTPError as error:
            raise PeerUnavailable(
                f"{parts.hostname} did not answer", why=f"{type(error).__name__}: {error}"
            ) from error
        if not 200 <= status < 300:
            raise PeerUnavailable(f"{parts.hostname} answered {status}", why="only 200 to 299 acknowledge an event")

    def close(self) -> None:
        self._client.close()


class Deliveries:
    """Sends events to all hooks of a log, until it is closed. Hooks come and go meanwhile."""

    def __init__(self, log: Log, keys: Path, *, look_up: Resolve = resolve) -> None:
        self._log = log
        self._secrets = HookSecrets(keys)
        self._look_up = look_up
        survive_closed_connections()
        self._stop = threading.Event()
        self._running: dict[str, tuple[Hook, threading.Event, threading.Thread]] = {}
        self._thread = threading.Thread(target=self._watch, name="everlog-hooks", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = TIMEOUT_S) -> None:
        """Stop, after the deliveries that are on their way."""
        self._stop.set()
        self._thread.join(timeout_s)

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self._compare({hook.name: hook for hook in hooks_of(self._log)})
            except LogClosed:
                break
            except EverlogError as error:
                _logger.warning("the hooks cannot be read now: %s", error)
            self._stop.wait(LOOK_AGAIN_S)
        for _, stop, _ in self._running.values():
            stop.set()
        for _, _, thread in self._running.values():
            thread.join(TIMEOUT_S)

    def _compare(self, wanted: dict[str, Hook]) -> None:
        for name, (hook, stop, thread) in list(self._running.items()):
            if wanted.get(name) != hook or not thread.is_alive():
                stop.set()
                if not thread.is_alive():
                    del self._running[name]
        for name, hook in wanted.items():
            if name not in self._running:
                stop = threading.Event()
                thread = threading.Thread(
                    target=self._run, args=(hook, stop), name=f"everlog-hook-{name}", daemon=True
                )
                self._running[name] = hook, stop, thread
                thread.start()

    def _run(self, hook: Hook, stop: threading.Event) -> None:
        delivery = Delivery(self._log, hook, self._secrets, look_up=self._look_up)
        try:
            with hook.group(self._log).member(f"serve-{socket.gethostname()}-{os.getpid()}") as member:
                for one in member.deliveries(stop=lambda: stop.is_set() or self._stop.is_set()):
                    try:
                        delivery(one.recorded)
                    except EverlogError as error:
                        one.nack(str(error))
                    else:
                        one.ack()
        except LogClosed:
            return
        except EverlogError as error:
            _logger.warning("hook %s: %s", hook.name, error)
        finally:
            delivery.close()
