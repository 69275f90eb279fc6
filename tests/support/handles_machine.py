"""A Hypothesis machine that drives several handles on one log, and compares every answer with a log in memory.

Two handles are threads of this process and one is a process of its own. They take turns in any order, or run at once.
After a step, a handle that Hypothesis chooses looks at the whole log: not every handle looks, because a look itself
brings a handle up to date, and a handle that never looked is the one that may be wrong.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.support.handles import (
    CATALOG,
    Answer,
    Facts,
    Nursery,
    Operations,
    ProcessHandle,
    SteeredFiles,
    ThreadHandle,
    ask,
    without_epoch,
)

from everlog.core.event import BEGINNING
from everlog.core.query import Query
from everlog.log.log import Log
from everlog.stores.memory import MemoryStore
from everlog.views.registry import Views

STREAMS = ["note/1", "note/2", "issue/1"]
SCOPES = ["", "acme", "acme/shop"]
LET_GO_S = 10.0
WRITE_S_MAX = 20.0  # less than the 30 s after which a writer stops waiting for the rows of views
PROCESS = 2
"""The number of the handle that is a process; 0 and 1 are threads."""

BUSY = ("refused", "busy")
STOPPED = ("refused", "writer_stopped")

numbers = st.integers(0, PROCESS)
threads = st.integers(0, PROCESS - 1)
witnesses = st.none() | numbers
drafts = st.lists(st.tuples(st.sampled_from(STREAMS), st.sampled_from(SCOPES)), min_size=1, max_size=3)
queries = st.sampled_from(
    [Query(), Query(stream="note/1"), Query(kind="note"), Query(scope="acme"), Query(types=frozenset(["thing.said"]))]
)
views = st.sampled_from(["streams", "types"])  # one on demand, one kept within every append
races = st.sampled_from(["append", "append", "purge", "pages", "view", "verify", "maintain"])


def model_log(place: str, files: SteeredFiles) -> Log:
    return Log(MemoryStore(), CATALOG, make_views=Views)


class HandlesMachine(RuleBasedStateMachine):
    """Subclass it with `open_handle`, `new_place`, `copy_place` and `drop_place`, and with what its store allows."""

    nursery: ClassVar[Nursery]
    one_writer: ClassVar[bool] = False  # a second one is refused as busy
    maintenance: ClassVar[str] = ""  # `archive` or `rebuild_index`
    files_of_its_own: ClassVar[bool] = False  # the store does everything through `Files`
    commits_die_with_their_process: ClassVar[bool] = True  # and not in a server, a moment later
    _processes: ClassVar[list[ProcessHandle]] = []

    def open_handle(self, place: str, files: SteeredFiles) -> Log:
        """As the nursery's opener does it in a process."""
        raise NotImplementedError

    def new_place(self) -> str:
        """The URL of a log that is not there yet."""
        raise NotImplementedError

    def copy_place(self, number: int) -> str:
        """A URL that a copy can go to."""
        raise NotImplementedError

    def drop_place(self) -> None:
        """Remove everything."""

    @classmethod
    def end_processes(cls) -> None:
        while cls._processes:
            cls._processes.pop().end()

    @initialize(live=st.booleans(), events=st.sampled_from([0, 2, 5]), first=st.integers(0, PROCESS))
    def begin(self, live: bool, events: int, first: int) -> None:
        self.place = self.new_place()
        if not self._processes:
            self._processes.append(ProcessHandle(self.nursery))
        self.process = self._processes[0]
        self.threads = [ThreadHandle(self.open_handle), ThreadHandle(self.open_handle)]
        self.handles: list[ThreadHandle | ProcessHandle] = [*self.threads, self.process]
        self.live = live
        self.opened: set[int] = set()
        self.model = Operations(model_log)
        self.model.open("")
        self.known: dict[int, Facts] = {}  # every record of the log, with its hashes
        self.last_hash = BEGINNING.hash.hex()
        self.cursors = [("0", "0", 0)] * 3  # of the log and of the model, and the generation that it is of
        self.generation = 0
        self.said = 0
        self.asked: list[str] = []  # a failure that depends on timing cannot be replayed: its message has the steps
        self.ask(0, "head")
        for number in range(events):
            self.ask_writer(first, "append", drafts=self.made([(STREAMS[number % 3], "")]))
        if self.one_writer:
            self.close(first)  # whoever comes next may write

    # ---- asking

    def begin_asking(self, number: int, name: str, /, **asked: Any) -> None:
        if number not in self.opened:
            self.opened.add(number)
            require_no_defect(ask(self.handles[number], "open", place=self.place, live=self.live and number == 0))
        self.asked.append(f"{number} {name} {asked or ''}")
        self.handles[number].begin(name, **asked)

    def answer_of(self, number: int) -> Answer:
        return require_no_defect(self.handles[number].result())

    def ask(self, number: int, name: str, /, **asked: Any) -> Answer:
        self.begin_asking(number, name, **asked)
        return self.answer_of(number)

    def ask_writer(self, number: int, name: str, /, **asked: Any) -> bool:
        """A write, and the same on the model; False if another handle is the writer."""
        answer = self.ask_for_the_lock(number, name, **asked)
        if answer == BUSY:
            return False
        self.compare(answer, self.model.do(name, **asked))
        return True

    def ask_for_the_lock(self, number: int, name: str, /, **asked: Any) -> Answer:
        """The answer of a handle that needs the writer's lock. BUSY only if another handle is the writer.

        A handle that was refused keeps a place in the queue for the lock. When the writer lets go, a thread at that
        place has the lock until it runs and gives it back. Whoever asks meanwhile, with the little patience that
        handles have here, is refused though nobody writes: a moment later it must get the lock.
        """
        end = time.monotonic() + LET_GO_S
        while (answer := self.ask(number, name, **asked)) == BUSY and not self.others_write(number):
            assert time.monotonic() < end, "the lock is held, and no handle is the writer"
        return answer

    def others_write(self, number: int) -> bool:
        others = self.opened - {number}
        return self.one_writer and any(ask(self.handles[other], "writes")[1] for other in others)

    def close(self, number: int) -> None:
        if number in self.opened:
            self.opened.discard(number)
            require_no_defect(ask(self.handles[number], "close"))

    # ---- comparing

    def compare(self, answer: Answer, expected: Answer) -> None:
        """The answer to an append or a purge."""
        if answer[0] == "ok" == expected[0] and isinstance(answer[1][0], list):
            (found, replayed), (wanted, replayed_too) = answer[1], expected[1]
            self.require_same(found, wanted)
            assert replayed == replayed_too
            self.learn(found)
        else:
            assert answer == expected, (answer, expected)

    def require_same(self, found: Sequence[Facts], wanted: Sequence[Facts]) -> None:
        """Records are as in the model."""
        assert plain(found) == plain(wanted), self.difference(plain(found), plain(wanted))

    def difference(self, found: Sequence[Facts], wanted: Sequence[Facts]) -> str:
        """Both sides and every step so far, one per line, without the filling of long texts."""
        parts = {"found": map(str, found), "wanted": map(str, wanted), "asked": self.asked}
        lines = [line for title, part in parts.items() for line in [f"{title}:", *(f"  {one}" for one in part)]]
        return re.sub("x{9,}", "…", "\n".join(lines))

    def learn(self, found: Sequence[Facts]) -> None:
        """Every record is as it was when it was acknowledged, and a new one follows the last one."""
        for one in found:
            if one[0] in self.known:
                assert self.known[one[0]] == one
            else:
                assert one[-2] == self.last_hash, f"the chain is broken at position {one[0]}"
                self.known[one[0]], self.last_hash = one, one[-1]

    def compare_all(self, number: int) -> None:
        """A handle sees the whole log as it is."""
        answer = self.ask(number, "look")
        assert answer[0] == "ok", answer
        head, records, purges = answer[1]
        wanted_head, wanted, wanted_purges = self.model.look()
        self.require_same(records, wanted)
        assert (head, purges) == (wanted_head, wanted_purges), self.difference(purges, wanted_purges)
        self.learn(records)

    def compare_view(self, number: int, name: str) -> None:
        """Every write that returned before the question is in the answer."""
        assert self.ask(number, "view", name=name) == self.model.do("view", name=name)

    def witness(self, number: int | None) -> None:
        if number is not None:
            self.compare_all(number)

    def made(self, batch: list[tuple[str, str]]) -> list[tuple[str, str, str, str]]:
        found = []
        for stream, scope in batch:
            self.said += 1
            text = f"{self.said} " + "x" * (0, 300, 1000)[self.said % 3]  # a purge of a long one makes a file shorter
            found.append((stream, "thing.said" if self.said % 2 else "thing.heard", scope, text))
        return found

    # ---- writing

    @rule(
        number=numbers,
        batch=drafts,
        expect=st.sampled_from(["any", "any", "none", "exists", 0, 1, 2]),
        seen=witnesses,
    )
    def append(self, number: int, batch: list[tuple[str, str]], expect: str | int, seen: int | None) -> None:
        self.ask_writer(number, "append", drafts=self.made(batch), expect=expect)
        self.witness(seen)

    @rule(number=numbers, stream=st.sampled_from(STREAMS), seen=witnesses)
    def append_as_expected(self, number: int, stream: str, seen: int | None) -> None:
        sequence = max((one[1] for one in self.known.values() if one[2] == stream), default=0)
        self.ask_writer(number, "append", drafts=self.made([(stream, "")]), expect=sequence)
        self.witness(seen)

    @rule(number=numbers, key=st.sampled_from("ab"), text=st.sampled_from("xy"), seen=witnesses)
    def append_keyed(self, number: int, key: str, text: str, seen: int | None) -> None:
        self.ask_writer(number, "append", drafts=[("note/1", "thing.said", "", text)], key=key)
        self.witness(seen)

    @rule(number=numbers, stream=st.sampled_from(STREAMS), seen=witnesses)
    def purge(self, number: int, stream: str, seen: int | None) -> None:
        self.ask_writer(number, "purge", stream=stream)
        self.witness(seen)

    @precondition(lambda self: self.maintenance)
    @rule(number=numbers, seen=witnesses)
    def maintain(self, number: int, seen: int | None) -> None:
        answer = self.ask_for_the_lock(number, self.maintenance)
        if answer != BUSY:
            assert answer == ("ok", None), answer
            self.generation += self.maintenance == "rebuild_index"
        self.witness(seen)

    # ---- reading

    @rule(number=numbers)
    def head(self, number: int) -> None:
        assert self.ask(number, "head") == self.model.do("head")

    @rule(number=numbers)
    def look(self, number: int) -> None:
        self.compare_all(number)

    @rule(
        number=numbers,
        query=queries,
        after=st.integers(0, 12),
        upto=st.none() | st.integers(0, 20),
        limit=st.none() | st.integers(1, 4),
        newest_first=st.booleans(),
    )
    def read(self, number: int, query: Query, **bounds: Any) -> None:
        kind, found = self.ask(number, "read", query=query, **bounds)
        assert kind == "ok"
        self.require_same(found, self.model.read(query, **bounds))
        self.learn_known(found)

    def learn_known(self, found: Sequence[Facts]) -> None:
        assert all(self.known.get(one[0]) == one for one in found)

    @rule(number=numbers, query=queries, limit=st.integers(1, 6))
    def page(self, number: int, query: Query, limit: int) -> None:
        cursor, model_cursor, generation = self.cursors[number]
        kind, answer = self.ask(number, "page", cursor=cursor, query=query, limit=limit)
        assert kind == "ok"
        found, following, head, reset = answer
        if "@" in cursor and generation != self.generation:  # of an index that was made before
            wanted: list[Facts] = []
            wanted_head = self.model.head()
            wanted_following, wanted_reset = "0", "restored"
        else:
            wanted, wanted_following, wanted_head, wanted_reset = self.model.page(model_cursor, query, limit)
        self.require_same(found, wanted)
        assert (head, reset) == (wanted_head, wanted_reset)
        assert without_epoch(following) == without_epoch(wanted_following)
        self.learn_known(found)
        self.cursors[number] = (following, wanted_following, self.generation)

    @rule(number=numbers, name=views)
    def view(self, number: int, name: str) -> None:
        self.compare_view(number, name)

    @precondition(lambda self: self.live)
    @rule()
    def live_view(self) -> None:
        """What `wait_for` was asked to wait for is in the states when it returns."""
        assert self.ask(0, "live_view", name="actors") == ("ok", self.model.view("actors")[2])

    @rule(number=numbers)
    def verify(self, number: int) -> None:
        assert self.ask(number, "verify") == self.model.do("verify")

    @rule(number=numbers, items=st.integers(1, 5), seen=witnesses)
    def follow_and_close(self, number: int, items: int, seen: int | None) -> None:
        answer = self.ask(number, "follow_and_close", items=items)
        self.opened.discard(number)
        all_of_them = self.model.look()[1]
        if answer != ("ok", "log_closed"):
            self.require_same(answer[1], all_of_them)
        else:
            assert items <= len(all_of_them)  # after the last one, a purge may still be ahead
        self.witness(seen)

    # ---- the rest of a log's life

    @rule(number=numbers, seen=witnesses)
    def reopen(self, number: int, seen: int | None) -> None:
        self.close(number)
        self.witness(seen)

    @rule(number=numbers)
    def copy(self, number: int) -> None:
        self.said += 1
        answer = self.ask(number, "copy", place=self.copy_place(self.said))
        assert answer == ("ok", (self.ask(number, "look")[1][1], []))

    def kill_process(self) -> None:
        self.asked.append(f"{PROCESS} is killed")
        self.process.kill()
        self.opened.discard(PROCESS)

    @rule(seen=witnesses)
    def kill(self, seen: int | None) -> None:
        self.kill_process()
        self.witness(seen)

    @precondition(lambda self: self.commits_die_with_their_process)
    @rule(batch=drafts, after_us=st.integers(0, 3000), seen=threads)
    def kill_while_it_writes(self, batch: list[tuple[str, str]], after_us: int, seen: int) -> None:
        asked = {"drafts": self.made(batch)}
        self.begin_asking(PROCESS, "append", **asked)
        time.sleep(after_us / 1_000_000)
        self.kill_process()
        self.settle(seen, asked)

    def settle(self, number: int, asked: dict[str, Any]) -> None:
        """A write that was not acknowledged is there as a whole, or not at all."""
        kind, found = self.ask(number, "look")
        assert kind == "ok"
        if found[0] != self.model.head():
            self.model.append(**asked)
        self.compare_all(number)

    @precondition(lambda self: self.files_of_its_own)
    @rule(number=numbers, batch=drafts, seen=numbers)
    def fail_a_flush(self, number: int, batch: list[tuple[str, str]], seen: int) -> None:
        asked = {"drafts": self.made(batch)}
        self.ask(number, "fail_next_flush")
        answer = self.ask_for_the_lock(number, "append", **asked)
        self.ask(number, "fail_next_flush", fail=False)
        if answer == BUSY:
            self.close(number)  # it may have been a flush of what it read, and that stops it too
            return
        assert answer == STOPPED
        # G12: this handle never writes again.
        assert self.ask(number, "append", drafts=self.made(batch)) == STOPPED
        self.close(number)
        self.settle(seen, asked)

    # ---- at once

    @rule(
        what=st.lists(races, min_size=3, max_size=3), batches=st.lists(drafts, min_size=3, max_size=3), seen=witnesses
    )
    def race(self, what: list[str], batches: list[list[tuple[str, str]]], seen: int | None) -> None:
        """All handles at once; what they wrote is in the order of its positions."""
        asked: list[tuple[str, dict[str, Any]]] = []
        before = self.model.look()
        for number, name in enumerate(what):
            if name == "append":
                asked.append(("append", {"drafts": self.made(batches[number])}))
            elif name == "purge":
                asked.append(("purge", {"stream": batches[number][0][0]}))
            elif name == "pages":
                asked.append(("pages", {"cursor": "0"}))
            elif name == "view":
                asked.append(("view", {"name": "streams"}))
            else:
                asked.append((self.maintenance if name == "maintain" and self.maintenance else "verify", {}))
        for number, (name, how) in enumerate(asked):
            self.begin_asking(number, name, **how)
        answers = [self.answer_of(number) for number in range(3)]
        written = []
        for (name, how), answer in zip(asked, answers, strict=True):
            if name in ("append", "purge"):
                if answer[0] == "ok":
                    first = answer[1][0][0][0] if name == "append" else answer[1][0]
                    written.append((first, name, how, answer))
                else:
                    allowed = {"already_purged", "not_found"} if name == "purge" else set()
                    assert answer[1] in allowed | ({"busy"} if self.one_writer else set()), answer
            elif name == self.maintenance:
                assert answer == ("ok", None) or (answer == BUSY and self.one_writer)
                self.generation += name == "rebuild_index" and answer[0] == "ok"
        for _, name, how, answer in sorted(written, key=lambda one: one[0]):
            self.compare(answer, self.model.do(name, **how))
        for (name, _), answer in zip(asked, answers, strict=True):
            if name == "verify":
                assert answer[0] == "ok"
                assert answer[1][3] == []
            elif name == "view":
                assert answer[0] == "ok", answer
                assert answer[1][0] >= before[0], (answer, before[0])
            elif name == "pages":
                assert answer[0] == "ok"
                if not answer[1][2]:
                    self.require_between(before[1], answer[1][0], self.model.look()[1], whole=False)
        self.witness(seen)

    def require_between(
        self, before: list[Facts], found: list[Facts], after: list[Facts], *, whole: bool = True
    ) -> None:
        """What was read while something was written: all that was there all the time, in order, and nothing else."""
        places = [one[0] for one in found]
        first, last = {one[0] for one in before}, {one[0] for one in after}
        assert places == sorted(set(places))
        assert first & last <= set(places)
        assert not whole or set(places) <= first | last
        self.learn_known([one for one in found if one[0] in self.known])

    @precondition(lambda self: self.one_writer and self.files_of_its_own)
    @rule(
        reader=threads,
        reads=st.integers(1, 12),
        what=st.sampled_from(["append", "purge", "archive", "recover"]),
        batch=drafts,
        view=st.booleans(),
    )
    def write_while_it_reads(
        self, reader: int, reads: int, what: str, batch: list[tuple[str, str]], view: bool
    ) -> None:
        """Between two looks at a file, another handle writes; or the writer is killed and another one recovers."""
        writer = PROCESS - 1 - reader
        for number in range(3):
            self.close(number)
        self.ask_writer(PROCESS if what == "recover" else writer, "append", drafts=self.made([("note/1", "")]))
        self.ask(reader, "head")
        if what == "recover":
            self.ask_writer(PROCESS, "append", drafts=self.made(batch))
        before = self.model.look()
        wrong: list[BaseException] = []

        def meanwhile() -> None:
            begun = time.monotonic()
            try:
                if what == "recover":
                    self.kill_process()
                    self.ask_writer(writer, "append", drafts=self.made(batch))
                elif what == "archive":
                    assert self.ask_for_the_lock(writer, "archive") == ("ok", None)
                elif what == "purge":
                    self.ask_writer(writer, "purge", stream=batch[0][0])
                else:
                    self.ask_writer(writer, "append", drafts=self.made(batch))
                assert time.monotonic() - begun < WRITE_S_MAX, "the writer waited for the reader"
            except BaseException as error:
                wrong.append(error)

        handle = self.threads[reader]
        handle.operations.files.meanwhile(reads, meanwhile, reader=handle.ident)
        answer = self.ask(reader, "view" if view else "look", **({"name": "streams"} if view else {}))
        handle.operations.files.meanwhile(0, lambda: None, reader=handle.ident)
        for error in wrong:
            raise error
        assert answer[0] == "ok"
        if not view:
            self.require_between(before[1], answer[1][1], self.model.look()[1])
        self.compare_all(reader)
        self.compare_view(reader, "streams")

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        fine = sys.exc_info()[0] is None
        try:
            for number in range(3) if fine else ():
                self.compare_all(number)
                self.compare_view(number, ("streams", "types", "streams")[number])
            if fine:
                self.verify(self.said % 3)
        finally:
            for number in range(3):
                if fine:
                    self.close(number)
            for handle in self.threads:
                handle.end()
            if PROCESS in self.opened:
                self.process.kill()
            self.drop_place()


def require_no_defect(answer: Answer) -> Answer:
    assert answer[0] != "raised", answer[1]
    return answer


def plain(found: Sequence[Facts]) -> list[Facts]:
    """Without the hashes, which hold salts and ids and are another log's in the model."""
    return [one[:-2] for one in found]
