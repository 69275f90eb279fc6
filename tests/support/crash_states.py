"""Every disk that a crash can leave behind. Whether a store recovers from each of them: `tests.support.recovery`.

A trace (of `RecordingFiles`) is played up to each point where a crash matters: before every flush, after every
mark, at the end. What is pending there may or may not have reached the disk:

    model       data of a file, since its last flush             names, since the directory's last flush
    strict      each 512-byte sector by itself: absent,           any subset
                written, or the size grew and it reads as zeros
    ext4-like   each sector by itself: absent or written          in order; fsync of a file brings its own along

plus the last write torn at a byte. Truncations are pending like data. Zeros appear only past what was safe: a sector
that is overwritten in place is the old or the new one. States that are equal are one state, which keeps the
largest number of acknowledgements it is reachable with. Above `exhaustive_max` combinations a point is sampled: none,
all, prefixes, all but one, only one, one zeroed, and seeded random ones.

Besides the power cut there is the kill: the process dies, the kernel lives, and the next process sees what was never
flushed. If it serves that without a flush, a power cut takes it back (`killed`).

Not modelled: mmap, hard links, a disk that lies about a flush.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.support.faults import RecordingFiles
from tests.support.steps import (
    Acked,
    Create,
    DataStep,
    Dropped,
    MakeDir,
    NameStep,
    Rename,
    RenameDir,
    Step,
    Sync,
    SyncDir,
    Tried,
    Truncate,
    Unlink,
    Write,
    change_content,
    change_names,
    moved,
    moved_path,
    write_into,
)

SECTOR_BYTES = 512
ABSENT, WRITTEN, ZEROED = 0, 1, 2


class Model(StrEnum):
    STRICT = "strict"
    EXT4 = "ext4-like"


@dataclass(frozen=True, slots=True)
class CrashState:
    """A disk after a crash, and what had been promised by then."""

    contents: dict[Path, bytes]
    dirs: frozenset[Path]
    acked: tuple[int, ...]
    tried: tuple[int, ...]
    label: str
    killed: RecordingFiles | None = None  # not a power cut: what the kernel still shows, with its pending steps

    def files(self) -> RecordingFiles:
        if self.killed is not None:
            return self.killed.after_kill()
        return RecordingFiles(self.contents, dirs=self.dirs)

    @property
    def key(self) -> tuple[frozenset[tuple[Path, bytes]], frozenset[Path]]:
        return frozenset(self.contents.items()), self.dirs


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of the space of states is walked."""

    exhaustive_max: int = 4096
    samples: int = 400
    tears_max: int = 48
    seed: int = 0
    one_of: int = 1
    """Of so many disks that a power cut can leave, one is taken, by chance."""


def power_cuts(
    files: RecordingFiles,
    *,
    models: Sequence[Model] = (Model.STRICT, Model.EXT4),
    effort: Effort = Effort(),  # noqa: B008 - frozen
    since: int = 0,
    acked: tuple[int, ...] = (),
    tried: tuple[int, ...] = (),
) -> list[CrashState]:
    """The distinct disks that a power cut can leave, at any point after the first `since` steps of the trace."""
    found: dict[object, CrashState] = {}
    for model in models:
        disk = _Disk(files, model)
        chance = random.Random(f"{effort.seed} {model}")
        marks = _Marks(acked, tried)
        walked = None
        for index, step in enumerate([*files.trace, None]):
            is_mark = isinstance(step, Tried | Acked)
            if is_mark:
                marks.add(step)
            if index >= since and (is_mark or step is None or isinstance(step, Sync | SyncDir | Dropped)):
                # Without a new step or a new ack the same states would come out again.
                now = (disk.changes, marks.acked)
                if now != walked:
                    walked = now
                    for contents, dirs in disk.crashes(effort, chance):
                        state = CrashState(contents, dirs, marks.acked, marks.tried, f"{model}, step {index}")
                        known = found.get(state.key)
                        if known is None or len(known.acked) < len(state.acked):
                            found[state.key] = state
            if step is not None:
                disk.do(step)
    states = list(found.values())
    taken = random.Random(effort.seed).sample(range(len(states)), -(-len(states) // effort.one_of))
    return [states[index] for index in sorted(taken)]


def kills(files: RecordingFiles) -> list[CrashState]:
    """What a process finds that starts after a kill: one state for each step of the trace."""
    marks = _Marks((), ())
    found = []
    for index, step in enumerate(files.trace, 1):
        marks.add(step)
        left = files.after_kill(index)
        found.append(
            CrashState(left.visible(), frozenset(left.dirs), marks.acked, marks.tried, f"kill, step {index}", left)
        )
    return found


class _Marks:
    def __init__(self, acked: tuple[int, ...], tried: tuple[int, ...]) -> None:
        self.acked = acked
        self.tried = tried

    def add(self, step: Step | None) -> None:
        match step:
            case Tried(number) if number not in self.tried:
                self.tried = (*self.tried, number)
            case Acked(number) if number not in self.acked:
                self.acked = (*self.acked, number)
            case _:
                pass


class _Disk:
    """What is safe, and what is on its way."""

    def __init__(self, files: RecordingFiles, model: Model) -> None:
        self._model = model
        paths = sorted(files.base)
        self._safe = {number: files.base[path] for number, path in enumerate(paths)}
        self._names = {path: number for number, path in enumerate(paths)}
        self._dirs = set(files.base_dirs)
        self._data: list[DataStep] = []
        self._moves: list[tuple[NameStep, set[Path]]] = []  # with the directories that still have to be flushed
        self.changes = 0

    def do(self, step: Step) -> None:
        match step:
            case Tried() | Acked():
                return
            case Write() | Truncate():
                self._data.append(step)
            case Create(path, file):
                self._safe[file] = b""
                self._moves.append((step, {path.parent}))
            case Rename(source, target, _):
                self._moves.append((step, {source.parent, target.parent}))
            case RenameDir(source, target):
                # What waits for a flush of the directory waits for it under its new name.
                self._moves = [
                    (move, {moved_path(directory, source, target) for directory in waiting})
                    for move, waiting in self._moves
                ]
                self._moves.append((step, {source.parent, target.parent}))
            case Unlink(path, _) | MakeDir(path):
                self._moves.append((step, {path.parent}))
            case Sync(file, data_only):
                self._flush(file, data_only=data_only)
            case Dropped(file):
                self._data = [each for each in self._data if each.file != file or isinstance(each, Truncate)]
            case SyncDir(path):
                self._flush_dir(path)
        self.changes += 1

    def _flush(self, file: int, *, data_only: bool) -> None:
        content = bytearray(self._safe[file])
        for step in self._data:
            if step.file == file:
                change_content(content, step)
        self._safe[file] = bytes(content)
        self._data = [step for step in self._data if step.file != file]
        if self._model is Model.EXT4 and not data_only:
            mine = [i for i, (move, _) in enumerate(self._moves) if getattr(move, "file", None) == file]
            self._settle(mine[-1] + 1 if mine else 0)

    def _flush_dir(self, directory: Path) -> None:
        if self._model is Model.EXT4:
            here = [i for i, (_, waiting) in enumerate(self._moves) if directory in waiting]
            self._settle(here[-1] + 1 if here else 0)
            return
        rest: list[tuple[NameStep, set[Path]]] = []
        for move, waiting in self._moves:
            waiting.discard(directory)
            if waiting:
                rest.append((move, waiting))
                continue
            change_names(self._names, self._dirs, move)
            if isinstance(move, RenameDir):
                rest = [(moved(earlier, move), still) for earlier, still in rest]
        self._moves = rest

    def _settle(self, count: int) -> None:
        for move, _ in self._moves[:count]:
            change_names(self._names, self._dirs, move)
        del self._moves[:count]

    def crashes(self, effort: Effort, chance: random.Random) -> Iterator[tuple[dict[Path, bytes], frozenset[Path]]]:
        """Every disk that could be found now; some more than once."""
        moves = [move for move, _ in self._moves]
        reachable = {
            *self._names.values(),
            *(move.file for move in moves if not isinstance(move, MakeDir | RenameDir)),
        }
        data = [step for step in self._data if step.file in reachable]
        pieces = [piece for step in data for piece in self._split(step)]
        if self._model is Model.STRICT:
            name_options = [2] * len(moves)
        else:  # one unit: how many of them happened
            name_options = [len(moves) + 1]
        options = [*name_options, *(count for _, count in pieces)]
        for choice in _choices(options, len(name_options), effort, chance):
            took = choice[: len(name_options)]
            if self._model is Model.STRICT:
                happened = [move for move, yes in zip(moves, took, strict=True) if yes]
            else:
                happened = moves[: took[0]]
            fates = choice[len(name_options) :]
            landed = [(piece, fate) for (piece, _), fate in zip(pieces, fates, strict=True) if fate is not ABSENT]
            yield self._disk(happened, landed)
        yield from self._tears(moves, data, effort, chance)

    def _split(self, step: DataStep) -> Iterator[tuple[DataStep, int]]:
        """The parts that reach the disk by themselves, each with the number of its possible fates."""
        if isinstance(step, Truncate):
            yield step, 2
            return
        start, end = step.at, step.at + len(step.data)
        while start < end:
            stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            part = Write(step.file, start, step.data[start - step.at : stop - step.at])
            may_be_zeros = self._model is Model.STRICT and stop > len(self._safe[step.file])
            yield part, 3 if may_be_zeros else 2
            start = stop

    def _tears(
        self,
        moves: Sequence[NameStep],
        data: Sequence[DataStep],
        effort: Effort,
        chance: random.Random,
    ) -> Iterator[tuple[dict[Path, bytes], frozenset[Path]]]:
        if not data or not isinstance(data[-1], Write):
            return
        last = data[-1]
        before: list[tuple[DataStep, int]] = [(step, WRITTEN) for step in data[:-1]]
        cuts: Iterable[int] = range(1, len(last.data))
        if len(last.data) - 1 > effort.tears_max:
            cuts = sorted(chance.sample(range(1, len(last.data)), effort.tears_max))
        for cut in cuts:
            torn = Write(last.file, last.at, last.data[:cut])
            yield self._disk(moves, [*before, (torn, WRITTEN)])
            if self._model is Model.STRICT:
                rest = Write(last.file, last.at + cut, last.data[cut:])
                yield self._disk(moves, [*before, (torn, WRITTEN), (rest, ZEROED)])

    def _disk(
        self, moves: Iterable[NameStep], landed: Iterable[tuple[DataStep, int]]
    ) -> tuple[dict[Path, bytes], frozenset[Path]]:
        names, dirs = dict(self._names), set(self._dirs)
        for move in moves:
            change_names(names, dirs, move)
        changed: dict[int, bytearray] = {}
        for step, fate in landed:
            content = changed.get(step.file)
            if content is None:
                content = changed[step.file] = bytearray(self._safe[step.file])
            if isinstance(step, Write) and fate == ZEROED:
                # Only what lies past the safe part can read as zeros.
                start = max(step.at, min(len(self._safe[step.file]), step.at + len(step.data)))
                write_into(content, start, bytes(step.at + len(step.data) - start))
            else:
                change_content(content, step)
        contents = {
            path: bytes(changed[file]) if file in changed else self._safe[file]
            for path, file in names.items()
            if path.parent in dirs
        }
        return contents, frozenset(dirs)


def _choices(options: Sequence[int], names: int, effort: Effort, chance: random.Random) -> Iterable[tuple[int, ...]]:
    total = 1
    for count in options:
        total *= count
    if total <= effort.exhaustive_max:
        return itertools.product(*(range(count) for count in options))
    # The first `names` options count upwards (0 = nothing happened), the others are fates.
    full = [count - 1 if index < names else WRITTEN for index, count in enumerate(options)]
    none = [ABSENT] * len(options)
    chosen = {tuple(full), tuple(none)}
    for index in range(len(options)):
        chosen.add(tuple(full[:index] + none[index:]))
        for fate in range(options[index]):
            chosen.add((*full[:index], fate, *full[index + 1 :]))
            chosen.add((*none[:index], fate, *none[index + 1 :]))
    for _ in range(effort.samples):
        chosen.add(tuple(chance.randrange(count) for count in options))
    return sorted(chosen)
