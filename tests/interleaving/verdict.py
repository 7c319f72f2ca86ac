"""The judge of a run: the store by the oracle, and the history by rules of its own.

What was acknowledged was applied exactly once, what was reported as failed never was, nothing that was created
replaced a record, nothing that was saved replaced a version that its writer had not loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Committed, Set
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import KvModelsError, RetriesExhaustedError, UniqueViolationError
from kvmodels.testing.schedules import Landing, StepHistory
from tests.interleaving.models import Numbered, OldPerson, Person
from tests.oracle import audit, read_engine, spec_of

SPEC = spec_of(Person)
OLD_SPEC = spec_of(OldPerson)
NUMBERED_SPEC = spec_of(Numbered)
CODEC = MsgpackCodec()


@dataclass
class Deed:
    """One operation of a client, as the client saw it.

    Attributes:
        state: "done", "failed", or "open" while the client does not know: it was stopped, or its answer never came.
        writes: what it returned says that it wrote something.
        acknowledged: how many commits of it are known to be applied.
        wrote: (versionstamp, primary key) of each object that it stored, with the version that it had loaded; None
            where no record may have been.
        hits: by how much it raised the counter of a record.
        exchanged: the records of a swap.
    """

    client: str
    verb: str
    tokens: list[str] = field(default_factory=list)
    state: str = "open"
    writes: bool = True
    acknowledged: int = 0
    wrote: dict[tuple[str, str], str | None] = field(default_factory=dict)
    hits: tuple[str, int] | None = None
    exchanged: tuple[str, ...] = ()
    error: KvModelsError | None = None


def store_faults(engine: MemoryEngine, spec: Any = SPEC) -> list[str]:
    """Return the findings of the oracle, as text."""
    return [str(fault) for fault in audit(read_engine(engine), [spec])]


def records_of(engine: MemoryEngine) -> dict[str, dict[str, Any]]:
    """The visible records by primary key."""
    return {entry.key[1]: entry.value for entry in read_engine(engine) if entry.key[0] == "people"}


def history_faults(history: StepHistory, deeds: list[Deed], *, tokens: bool) -> list[str]:
    """Return the contradictions of the history."""
    applied = _applied(history.landings)
    found = [fault for deed in deeds for fault in _deed_faults(deed, applied if tokens else None)]
    found += _replaced(history.landings, deeds)
    return found


def _applied(landings: tuple[Landing, ...]) -> dict[str, int]:
    """How often each token was set to the number of an attempt by an operation that was applied."""
    counts: dict[str, int] = {}
    for landing in committed(landings):
        for mutation in landing.write.mutations:
            key = decode_key(mutation.key)
            if key[:2] != ("__kvmodels__", "token") or not isinstance(mutation, Set):
                continue
            if isinstance(CODEC.decode(mutation.value, mutation.encoding), int):
                counts[str(key[2])] = counts.get(str(key[2]), 0) + 1
    return counts


def committed(landings: tuple[Landing, ...]) -> Iterator[Landing]:
    """The commits that were applied."""
    return (landing for landing in landings if isinstance(landing.outcome, Committed))


def _deed_faults(deed: Deed, applied: Mapping[str, int] | None) -> Iterator[str]:
    if isinstance(deed.error, RetriesExhaustedError):
        yield f"livelock: {deed.verb} of {deed.client} raised {deed.error}"
    # A third record may have the value, as long as the index is built anew: then it was a duplicate before.
    if isinstance(deed.error, UniqueViolationError) and deed.error.existing_key in deed.exchanged:
        yield f"swap of {deed.client} was refused, although it releases what it claims"
    if applied is None:
        return
    counts = [applied.get(token, 0) for token in deed.tokens]
    most = deed.acknowledged + (deed.state == "open")
    if sum(counts) > most or max(counts, default=0) > 1:
        yield f"{deed.verb} of {deed.client} ended as {deed.state!r} ({deed.error!r}) and was applied {counts} times"
    if sum(counts) < deed.acknowledged:
        yield f"{deed.verb} of {deed.client} was acknowledged and not applied"


def outcome_faults(history: StepHistory, answers: Mapping[str, bool]) -> Iterator[str]:
    """Compare ``outcome`` for operations of stopped clients with the writes that were applied in the end."""
    applied = _applied(history.landings)
    for token, answer in answers.items():
        if (applied.get(token, 0) > 0) != answer:
            yield f"outcome({token!r}) was {answer}, and it was applied {applied.get(token, 0)} times"


def _replaced(landings: tuple[Landing, ...], deeds: list[Deed]) -> Iterator[str]:
    """Creations that replaced a record, and saves that replaced another version than the loaded one."""
    versions: dict[str, tuple[str, int | None]] = {}
    by_writing = {writing: deed for deed in deeds for writing in deed.wrote}
    for landing in committed(landings):
        assert isinstance(landing.outcome, Committed)
        stamp = landing.outcome.versionstamp.hex()
        for mutation in landing.write.mutations:
            key = decode_key(mutation.key)
            if key[0] != "people":
                continue
            name = str(key[1])
            before = versions.pop(name, None)
            if isinstance(mutation, Set):
                versions[name] = stamp, mutation.expire_at
            deed = by_writing.get((stamp, name))
            if deed is None or before is None or (before[1] is not None and before[1] <= landing.now_ms):
                continue
            if deed.wrote[stamp, name] != before[0]:
                yield f"{deed.verb} of {deed.client} replaced a version of {name!r} that it had not seen"


def counter_faults(
    history: StepHistory, deeds: list[Deed], before: Mapping[str, int], after: Mapping[str, int], *, tokens: bool
) -> Iterator[str]:
    """Counters that are not the sum of the increments that were applied; open ones count as far as their tokens say."""
    applied = _applied(history.landings)
    for name, start in before.items():
        raised = [deed for deed in deeds if deed.hits is not None and deed.hits[0] == name]
        least = start + sum(deed.hits[1] for deed in raised if deed.hits and deed.state == "done")
        most = least
        for deed in raised:
            if deed.hits and deed.state != "done":
                known = any(applied.get(token) for token in deed.tokens)
                least += deed.hits[1] if tokens and known else 0
                most += deed.hits[1] if known or (deed.state == "open" and not tokens) else 0
        if not least <= after.get(name, 0) <= most:
            yield f"the counter of {name!r} is {after.get(name)}; its increments make {least} to {most}"
