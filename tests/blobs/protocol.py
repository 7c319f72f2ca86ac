"""A model of the protocol of blobs: a store, processes that stop anywhere, and commits that arrive late or twice.

``explore`` visits every interleaving of a scene. A process is a function from its variables and the rows of the store
to its next step; a step is one read or one commit. The model knows nothing of the library: it shows that the rules hold
and, with the mutants, that each of them is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

KEEP: Final = 2
"""How long an ended version is kept."""

DAY: Final = 1
"""How long a loose blob is left alone."""

PARTS: Final = 2
"""Chunks of each blob; a batch has one."""

NEVER: Final = 99

Row = tuple[int, Any]  # its version, and its value
Store = tuple[tuple[tuple[Any, ...], Row], ...]
Variables = tuple[tuple[str, Any], ...]


class Write(NamedTuple):
    """An atomic operation: the versions that it checks (None: absent), the rows that it sets, and those it deletes."""

    checks: tuple[tuple[tuple[Any, ...], int | None], ...]
    sets: tuple[tuple[tuple[Any, ...], Any], ...] = ()
    deletes: tuple[tuple[Any, ...], ...] = ()


class Step(NamedTuple):
    """The next step of a process: its write, and its places after success, a conflict, and a lost answer."""

    write: Write | None
    done: dict[str, Any]
    refused: dict[str, Any] | None = None
    unknown: dict[str, Any] | None = None


Process = Callable[[Mapping[str, Any], Mapping[tuple[Any, ...], Row], int, frozenset[str]], Step | None]


class State(NamedTuple):
    """The store, the variables of each process, the commits under way, the clock and the last version."""

    store: Store
    processes: tuple[Variables, ...]
    flying: tuple[Write, ...]
    now: int
    version: int


class Scene(NamedTuple):
    """Processes with their first variables, and the rows that they begin with.

    Attributes:
        ticks: how often the clock moves.
        late: the number of commits that may arrive late or twice.
    """

    processes: tuple[tuple[Process, dict[str, Any]], ...]
    rows: Mapping[tuple[Any, ...], Any]
    ticks: int = 4
    late: int = 1


# --- the processes --------------------------------------------------------------------------------------------


def upload(
    one: Mapping[str, Any], rows: Mapping[tuple[Any, ...], Row], now: int, mutants: frozenset[str]
) -> Step | None:
    """Return the next step of an upload of ``one["id"]``, or None when all chunks are stored."""
    n, id_, loose = one["n"], one["id"], ("loose", one["id"])
    if n == PARTS:
        return None
    if one.get("ask"):  # the last answer was lost: the row says what was written
        row = rows.get(loose)
        if row is None:
            return Step(None, {"ask": False} if n == 0 else {"at": "failed"})
        if row[1] == "dead" or row[1][1] not in (n, n + 1):
            return Step(None, {"at": "failed"})
        return Step(None, {"ask": False, "n": row[1][1], "seen": row[0]})
    chunk = ("chunk", id_, n)
    sets = ((loose, (now + DAY, n + 1)), (chunk, n))
    checks: tuple[Any, ...]
    if n == 0:
        checks = ((loose, None),) if "repeatable first batch" in mutants else ((loose, None), (chunk, None))
    else:
        checks = () if "chunks without the check of the loose row" in mutants else ((loose, one["seen"]),)
    return Step(Write(checks, sets), {"n": n + 1, "seen": "version"}, {"ask": True}, {"ask": True})


def writer(
    one: Mapping[str, Any], rows: Mapping[tuple[Any, ...], Row], now: int, mutants: frozenset[str]
) -> Step | None:
    """Store a new blob in a record: upload it, read the record and the loose row, and commit."""
    if one["at"] == "failed":
        return None
    step = upload(one, rows, now, mutants)
    return step if step is not None else attach(one, rows, now, mutants)


def attach(
    one: Mapping[str, Any], rows: Mapping[tuple[Any, ...], Row], now: int, mutants: frozenset[str]
) -> Step | None:
    """Give the blob ``one["id"]`` to a record (None: drop what it has), from what is read."""
    record = ("record", one["key"])
    if one["at"] in ("done", "failed"):
        return None
    if one["at"] != "read":
        looked = rows.get(record), rows.get(("loose", one["id"])), rows.get(("old", one["key"]))
        return Step(None, {"at": "read", "looked": looked})
    row, loose, old = one["looked"]
    before = None if row is None else row[1]
    new = old[1][0] if one.get("restores") and old is not None and now < old[1][1] else one["id"]
    if before == new or (one.get("restores") and (old is None or row is not None or now >= old[1][1])):
        return Step(None, {"at": "done"})
    checks: list[Any] = [(record, None if row is None else row[0])]
    sets: list[Any] = []
    deletes: list[Any] = []
    if new is not None:
        taken = "source" in one and "a copy that takes over the id" in mutants
        if "no check at the attachment" not in mutants and not taken:
            if loose is None or loose[1] == "dead":
                return Step(None, {"at": "failed"})
            if loose[1][1] != PARTS and "an incomplete upload is attached" not in mutants:
                return Step(None, {"at": "failed"})  # the first batch has arrived again, after a sweep
            checks.append((("loose", new), loose[0]))
        deletes.append(("loose", new))
        sets.append((record, new))
    else:
        deletes.append(record)
    if one.get("restores"):
        assert old is not None, "it restores an old version"
        checks.append((("old", one["key"]), old[0]))
    if before is not None:
        if one.get("history"):
            sets.append((("old", one["key"]), (before, now + KEEP)))
        kept = one.get("history") and "removal with history without its deadline" not in mutants
        if not (one.get("history") and "removal with history without a loose row" in mutants):
            sets.append((("loose", before), (now + DAY + (KEEP if kept else 0), PARTS)))
    write = Write(tuple(checks), tuple(sets), tuple(deletes))
    return Step(write, {"at": "done"}, {"at": "ready"}, {"at": "done"})


def copier(
    one: Mapping[str, Any], rows: Mapping[tuple[Any, ...], Row], now: int, mutants: frozenset[str]
) -> Step | None:
    """Write the blob of one record to a second one: read its chunks, and store them under a new id."""
    if one["at"] == "begin":
        row = rows.get(("record", one["source"]))
        if row is None:
            return Step(None, {"at": "failed"})
        if "a copy that takes over the id" in mutants:
            return Step(None, {"at": "ready", "id": row[1], "n": PARTS})
        return Step(None, {"at": "chunk", "from": row[1]})
    if one["at"] == "chunk":
        there = all(("chunk", one["from"], n) in rows for n in range(PARTS))
        return Step(None, {"at": "ready" if there else "failed"})
    return writer(one, rows, now, mutants)


def sweep(
    one: Mapping[str, Any], rows: Mapping[tuple[Any, ...], Row], now: int, mutants: frozenset[str]
) -> Step | None:
    """Remove loose blobs that are due: mark the row as dead, remove the chunks, then the row."""
    if one["at"] == "look":
        due = [(key, row) for key, row in sorted(rows.items()) if key[0] == "loose" and _is_due(row[1], now)]
        if not due:
            return None
        key, row = due[0]
        return Step(None, {"at": "chunks" if row[1] == "dead" else "kill", "id": key[1], "seen": row[0]})
    loose = ("loose", one["id"])
    again = {"at": "look"}
    if one["at"] == "kill":
        checks = () if "sweep without its check" in mutants else ((loose, one["seen"]),)
        return Step(Write(checks, ((loose, "dead"),)), {"at": "chunks", "seen": "version"}, again, again)
    checks = () if "chunks removed without a check" in mutants else ((loose, one["seen"]),)
    if one["at"] == "chunks":
        chunks = tuple(("chunk", one["id"], n) for n in range(PARTS))
        return Step(Write(checks, (), chunks), {"at": "row"}, again, again)
    return Step(Write(checks, (), (loose,)), again, again, again)


def _is_due(value: Any, now: int) -> bool:
    return value == "dead" or (value[0] is not None and value[0] <= now)


# --- exploration ----------------------------------------------------------------------------------------------


def explore(scene: Scene, mutants: frozenset[str] = frozenset()) -> tuple[str | None, int]:
    """Return the first broken rule, or None, and the number of states that were visited."""
    programs = [program for program, _ in scene.processes]
    store = tuple(sorted((key, (0, value)) for key, value in scene.rows.items()))
    first = State(store, tuple(tuple(sorted(one.items())) for _, one in scene.processes), (), 0, 0)
    seen, waiting = {first}, [first]
    while waiting:
        state = waiting.pop()
        broken = _broken(dict(state.store), state.now) or _left(state)
        if broken is not None:
            return broken, len(seen)
        for after in _successors(state, programs, scene, mutants):
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return None, len(seen)


def _successors(state: State, programs: list[Process], scene: Scene, mutants: frozenset[str]) -> Iterator[State]:
    rows = dict(state.store)
    if state.now < scene.ticks:
        yield state._replace(now=state.now + 1)
    for position, write in enumerate(state.flying):
        rest = (*state.flying[:position], *state.flying[position + 1 :])
        applied = _applied(rows, write, state.version + 1)
        yield (
            state._replace(flying=rest)
            if applied is None
            else state._replace(store=applied, flying=rest, version=state.version + 1)
        )
    may_fly = scene.late > sum(dict(one).get("late", 0) for one in state.processes)
    for position, variables in enumerate(state.processes):
        one = dict(variables)
        step = programs[position](one, rows, state.now, mutants)
        if step is None:
            continue

        def at(changes: dict[str, Any], position: int = position, one: dict[str, Any] = one) -> tuple[Variables, ...]:
            changed = tuple(sorted((one | changes).items()))
            return (*state.processes[:position], changed, *state.processes[position + 1 :])

        if step.write is None:
            yield state._replace(processes=at(step.done))
            continue
        applied = _applied(rows, step.write, state.version + 1)
        lost = {"late": one.get("late", 0) + 1}
        if applied is None:
            yield state._replace(processes=at(step.refused or {}))
        else:
            done = {name: state.version + 1 if value == "version" else value for name, value in step.done.items()}
            after = state._replace(store=applied, version=state.version + 1, processes=at(done))
            yield after
            if may_fly:
                yield after._replace(processes=at(done | lost), flying=(*state.flying, step.write))  # arrives twice
        if may_fly:  # arrives late, or never, and its answer is lost
            unknown = (step.unknown or {}) | lost
            yield state._replace(processes=at(unknown), flying=(*state.flying, step.write))


def _applied(rows: Mapping[tuple[Any, ...], Row], write: Write, version: int) -> Store | None:
    for key, expected in write.checks:
        row = rows.get(key)
        if (None if row is None else row[0]) != expected:
            return None
    after = {key: row for key, row in rows.items() if key not in write.deletes}
    after |= {key: (version, value) for key, value in write.sets}
    return tuple(sorted(after.items(), key=repr))


def _broken(rows: Mapping[tuple[Any, ...], Row], now: int) -> str | None:
    owned = [row[1] for key, row in rows.items() if key[0] == "record"]
    if len(owned) != len(set(owned)):
        return "an id is in two records"
    for id_ in owned:
        if ("loose", id_) in rows:
            return "a blob of a record is loose"
        if any(("chunk", id_, n) not in rows for n in range(PARTS)):
            return "a chunk of a record is missing"
    for key, row in rows.items():
        if key[0] == "old" and now < row[1][1]:
            id_ = row[1][0]
            if any(("chunk", id_, n) not in rows for n in range(PARTS)):
                return "a chunk of an old version is missing"
    return None


def _left(state: State) -> str | None:
    """Return what is left when all processes have stopped here, the clock is far on, and a sweep has run."""
    rows, flying = dict(state.store), state.flying
    for key in [key for key, row in rows.items() if key[0] == "loose" and _is_due(row[1], NEVER)]:
        del rows[key]
        for n in range(PARTS):
            rows.pop(("chunk", key[1], n), None)
    del flying
    owners = {row[1] for key, row in rows.items() if key[0] == "record"}
    owners |= {key[1] for key in rows if key[0] == "loose"}
    if any(key[0] == "chunk" and key[1] not in owners for key in rows):
        return "a chunk has no owner after a sweep"
    return None
