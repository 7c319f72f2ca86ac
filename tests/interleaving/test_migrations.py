"""Migrations interleaved with writers and readers of both releases: each rule has a schedule that convicts its mutant.

The schedules are written out step by step; beside them a crowd of both releases is drawn from seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import pytest

from kvmodels import (
    CommitUnknownError,
    DecodeError,
    Field,
    Index,
    Indexed,
    IndexNotReadyError,
    KvModel,
    KvModelsError,
    PrimaryKey,
    RetryPolicy,
    SchemaMismatchError,
    Unique,
    upgrade,
)
from kvmodels.catalog import collection as live
from kvmodels.flows import context
from kvmodels.flows.evolution import migrate as migrations
from kvmodels.flows.evolution.migrate import migrate
from kvmodels.flows.evolution.throttle import Pace
from kvmodels.indexing import rules
from kvmodels.indexing.entries import RecordChange
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates, StepHistory
from tests.interleaving.mutants import BY_NAME
from tests.interleaving.verdict import store_faults
from tests.oracle import read_engine, spec_of

PATIENT = RetryPolicy(attempts=500, deadline_s=1e6)
CALM = FaultRates()
STORM = FaultRates(lose_answer=0.08, lose_request=0.05, repeat=0.1, echo=0.12, hold=0.08)


class OldMember(KvModel, collection="members"):
    """The release that is running."""

    id: PrimaryKey[str]
    nick: Unique[str]
    team: Indexed[str] = Field(default="Red")
    hits: int = 0
    note: Indexed[str] = Field(default="")

    class Meta:
        indexes: ClassVar = (Index("team", store="record", name="copies"),)


class Member(KvModel, collection="members"):
    """The next one: names are folded, and every record gets a hundred hits."""

    id: PrimaryKey[str]
    nick: Unique[str]
    team: Indexed[str] = Field(default="Red")
    hits: int = 0
    note: Indexed[str] = Field(default="")

    class Meta:
        schema_version: ClassVar = 2
        indexes: ClassVar = (Index("team", store="record", name="copies"),)

    @upgrade(to=2, touches=("nick", "team", "hits"))
    @staticmethod
    def folded(document: dict[str, Any]) -> dict[str, Any]:
        changed = {"nick": document["nick"].lower(), "team": document["team"].lower(), "hits": document["hits"] + 100}
        return {**document, **changed}


SPEC = spec_of(Member)
Judge = Callable[[StepHistory], Iterator[str]]


def migrating(process: Process, size: int = 100) -> Any:
    """A migration in batches of a few records, with pauses of virtual time between them."""
    return process.run(migrate(process.context, process.schema(Member), pace=Pace(throttle=size)))


def records_of(test: Interleaving) -> dict[str, dict[str, Any]]:
    return {entry.key[1]: entry.value for entry in read_engine(test.engine) if entry.key[0] == "members"}


async def found(process: Process, model: Any, nick: str) -> str:
    """Return the outcome of a lookup by a unique value."""
    try:
        return str((await process[model].get(nick=nick)).id)
    except IndexNotReadyError:
        return "refused"
    except DecodeError:
        return "newer"
    except model.DoesNotExist:
        return "missing"


def prepared(test: Interleaving, *names: str) -> Process:
    old = test.process(OldMember)
    for name in names:
        test.at_once(old[OldMember].create(id=name, nick=f"Nick-{name}"))
    return old


# --- schedules --------------------------------------------------------------------------------------------------------


def an_old_writer_inserts_behind_the_scan(test: Interleaving) -> Judge:
    """The migration has seen every record when Ada, who runs the older release, inserts one more."""
    old, new, late = prepared(test, "a"), test.process(Member), test.process(Member)
    test.add("migrate", migrating(new))
    test.add("ada", old[OldMember].create(id="b", nick="Nick-b"))
    test.add("eve", found(late, Member, "nick-b"))

    def judge(history: StepHistory) -> Iterator[str]:
        if "b" in records_of(test) and history.outcomes["eve"].returned == "missing":
            yield "a record is not found by its name"

    return judge


def entries_move_with_the_record(test: Interleaving) -> Judge:
    """Entries of the stored form, which the upgrade does not give, are removed."""
    prepared(test, "a")
    test.add("migrate", migrating(test.process(Member)))
    return lambda history: iter(())


def a_reader_asks_before_the_record_is_rewritten(test: Interleaving) -> Judge:
    """The name that the new release knows has no entry yet."""
    prepared(test, "a")
    new = test.process(Member)
    test.add("eve", found(new, Member, "nick-a"))

    def judge(history: StepHistory) -> Iterator[str]:
        if history.outcomes["eve"].returned == "missing":
            yield "a record is not found by its name"

    return judge


def an_old_reader_asks_after_the_record_was_rewritten(test: Interleaving) -> Judge:
    """The name that the older release knows has no entry any more."""
    old = prepared(test, "a")
    test.add("migrate", migrating(test.process(Member)))
    test.add("eve", found(old, OldMember, "Nick-a"))

    def judge(history: StepHistory) -> Iterator[str]:
        if history.outcomes["eve"].returned == "missing":
            yield "an older release misses a record without knowing"

    return judge


def a_writer_comes_between(test: Interleaving) -> Judge:
    """Bob hits a record that the migration has read and not written yet."""
    old = test.process(OldMember)
    test.at_once(old[OldMember].create(id="a", nick="nick-a"))  # its slot stays, so that only the record tells
    new, bob = test.process(Member), test.process(Member)
    test.add("migrate", migrating(new))
    test.add("bob", bob[Member].patch("a", hits=7))

    def judge(history: StepHistory) -> Iterator[str]:
        if history.outcomes["bob"].error is None and records_of(test)["a"]["hits"] != 7:
            yield "the change of a writer is lost"

    return judge


def two_migrations_pass_the_same_records(test: Interleaving) -> Judge:
    """One has read a batch when the other has passed that one and the next. No record has to be rewritten any more."""
    prepared(test, "a", "b")
    one, other = test.process(Member), test.process(Member)
    test.at_once(one.build_indexes())  # raises the schema version
    for name in "ab":
        test.at_once(one[Member].patch(name, note="rewritten"))
    test.add("one", migrating(one, 1))
    test.add("other", migrating(other, 1))

    def judge(history: StepHistory) -> Iterator[str]:
        counts = [history.outcomes[name].returned.scanned for name in ("one", "other")]
        if sum(counts) != 2:
            yield f"two records were counted as {counts}"

    return judge


class Scene(NamedTuple):
    """A schedule, what it does without, and its clients."""

    mutant: str
    schedule: tuple[str, ...]
    play: Callable[[Interleaving], Judge]

    def faults(self) -> tuple[list[str], StepHistory]:
        test = Interleaving(schedule=self.schedule)
        judge = self.play(test)
        history = test.run()
        return [*store_faults(test.engine, SPEC), *judge(history)], history


BEGUN = ("migrate read", "migrate read", "migrate commit", "migrate read", "migrate read")
COMMITTED = ("migrate commit", "migrate now", "migrate sleep")
PASSED = ("migrate read", "migrate now", "migrate read", *COMMITTED, "migrate read")

SCENES = (
    Scene("version", (*BEGUN, *PASSED, "ada end", "migrate end", "eve end"), an_old_writer_inserts_behind_the_scan),
    Scene("held", ("migrate end",), entries_move_with_the_record),
    Scene("outdated", ("eve end",), a_reader_asks_before_the_record_is_rewritten),
    Scene("superseded", ("migrate end", "eve end"), an_old_reader_asks_after_the_record_was_rewritten),
    Scene("R2", (*BEGUN, "migrate read", "migrate now", "bob end", "migrate end"), a_writer_comes_between),
    Scene(
        "progress",
        (
            *("one read", "one read", "one commit", "one read", "one read", "one read", "one now"),
            *("other read", "other read", "other read", "other now", "other commit", "other now", "other sleep"),
            *("other read", "other now", "other commit", "other now", "other sleep"),
            "one commit",
            "other end",
            "one end",
        ),
        two_migrations_pass_the_same_records,
    ),
)


# --- mutants ----------------------------------------------------------------------------------------------------------


def _older_releases_write(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(live, "is_older", lambda schema, stored: False)


def _entries_of_the_upgraded_form(patch: pytest.MonkeyPatch) -> None:
    real = migrations.Migration.change

    def rewritten(self: Any, *args: Any, **options: Any) -> Any:
        change = real(self, *args, **options)
        return change._replace(old_document=change.new_document) if isinstance(change, RecordChange) else change

    patch.setattr(migrations.Migration, "change", rewritten)


def _readable_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(live, "changed_fields", lambda schema, encryption: {})


def _older_releases_ask_on(patch: pytest.MonkeyPatch) -> None:
    real = live._highest
    patch.setattr(
        live,
        "_highest",
        lambda schema, definition, touched: real(schema, definition, touched) if touched == schema.touched else 1,
    )


def _progress_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "progress_check", lambda key, versionstamp: None)


MUTANTS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "version": ("older releases write while records are migrated", _older_releases_write),
    "held": ("old entries are computed of what the upgrade gives", _entries_of_the_upgraded_form),
    "outdated": ("an index is asked although records wait for an upgrade of its fields", _readable_at_once),
    "superseded": ("an older release asks an index whose fields an upgrade has changed", _older_releases_ask_on),
    "progress": ("a batch is committed without a look at the progress", _progress_is_not_checked),
    "R2": ("a record that was read is not checked", BY_NAME["R2"].apply),
}


def test_every_mutant_has_a_schedule():
    assert {scene.mutant for scene in SCENES} == MUTANTS.keys()


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.mutant)
def test_the_schedule_is_harmless(scene: Scene):
    faults, history = scene.faults()
    assert not faults, f"{faults}\n{history}"


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.mutant)
def test_the_schedule_convicts_the_mutant(scene: Scene, monkeypatch):
    what, apply = MUTANTS[scene.mutant]
    # Collections are compiled once for each header that was decoded: the mutant compiles them again.
    monkeypatch.setattr(context, "_headers", {})
    apply(monkeypatch)
    faults, history = scene.faults()
    print(f"{scene.mutant} ({what}): {faults}")
    assert faults, str(history)


# --- a crowd ----------------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d", "e")


class Tally:
    """Hits that are known to be stored, and those of which nobody can say."""

    def __init__(self) -> None:
        self.known = self.open = self.stopped = 0
        self.faults: list[str] = []


async def hitting(process: Process, model: Any, tally: Tally, seed: int, times: int) -> None:
    """Hit records, move one between teams, and rename one, as one release does."""

    def hit(member: Any) -> None:
        member.hits += 1
        member.team = ("Red", "Blue")[seed % 2] if model is OldMember else ("red", "blue")[seed % 2]

    for n in range(times):
        try:
            await process[model].mutate(NAMES[(seed * 7 + n * 3) % len(NAMES)], hit)
            tally.known += 1
        except (SchemaMismatchError, DecodeError):
            tally.stopped += 1
            await process.sleep(0.3)
        except CommitUnknownError:
            tally.open += 1


async def asking(process: Process, model: Any, tally: Tally, times: int) -> None:
    """Nobody changes names, so whoever asks by one gets the record or a typed error."""
    for n in range(times):
        name = NAMES[n % len(NAMES)]
        nick = f"Nick-{name}" if model is OldMember else f"nick-{name}"
        answer = await found(process, model, nick)
        if answer not in (name, "refused", "newer"):
            tally.faults.append(f"{model.__name__} asked for {nick!r} and got {answer}")
        await process.sleep(0.2)


def crowd(seed: int, faults: FaultRates) -> tuple[list[str], StepHistory]:
    test = Interleaving(seed, faults=faults, retry=PATIENT)
    prepared(test, *NAMES)
    tally = Tally()
    for number in range(2):
        test.add(f"old{number}", hitting(test.process(OldMember), OldMember, tally, seed + number, 6))
        test.add(f"new{number}", hitting(test.process(Member), Member, tally, seed + number + 2, 6))
        test.add(f"migrate{number}", migrating(test.process(Member), 2 + number))
    test.add("asks-old", asking(test.process(OldMember), OldMember, tally, 6))
    test.add("asks-new", asking(test.process(Member), Member, tally, 6))
    history = test.run()
    last = test.process(Member)
    report = test.at_once(last.apply())
    found_faults = [*store_faults(test.engine, SPEC), *tally.faults]
    if not report.complete or not test.at_once(last.plan()).is_current:
        found_faults.append("the migration came to no end")
    hits = sum(record["hits"] for record in records_of(test).values())
    least = tally.known + 100 * len(NAMES)
    if not least <= hits <= least + tally.open:
        found_faults.append(f"{hits} hits, and {least} to {least + tally.open} were made")
    for name in NAMES:
        if test.at_once(found(last, Member, f"nick-{name}")) != name:
            found_faults.append(f"{name} is not found by its name")
    found_faults += [
        f"{name} ended with {outcome.error!r}"
        for name, outcome in history.outcomes.items()
        if isinstance(outcome.error, KvModelsError) and not isinstance(outcome.error, CommitUnknownError)
    ]
    return found_faults, history


@pytest.mark.servers
@pytest.mark.parametrize("faults", [CALM, STORM], ids=["calm", "storm"])
def test_a_crowd_of_both_releases_beside_two_migrations(faults):
    for seed in range(25):
        wrong, history = crowd(seed, faults)
        assert not wrong, f"seed {seed}: {wrong}\n{history}"


@pytest.mark.soak
@pytest.mark.parametrize("faults", [CALM, STORM], ids=["calm", "storm"])
def test_many_crowds_of_both_releases(faults):
    for seed in range(1_000, 2_000):
        wrong, history = crowd(seed, faults)
        assert not wrong, f"seed {seed}: {wrong}\n{history}"
