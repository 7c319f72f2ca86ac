"""A repository driven at random beside a dict, over expiry, a later release with more indexes, builds and drops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kvmodels import (
    AlreadyExistsError,
    Circle,
    DoesNotExist,
    F,
    GeoPoint,
    IndexNotReadyError,
    IntegrityError,
    SchemaMismatchError,
    StaleObjectError,
    UniqueViolationError,
    Vector,
)
from kvmodels.flows.writing.changes import KEEP
from tests.oracle import audit, read_engine, spec_of
from tests.oracle_intervals import is_found
from tests.stateful.faces import START_MS, Clock, Face, World
from tests.stateful.model import FIELDS, Held, Things
from tests.stateful.models import EarlyThing, LateThing

E = TypeVar("E", bound=Exception)

SPEC = spec_of(LateThing)
KEYS = st.integers(0, 5)
CODES = st.sampled_from([None, "a", "b", "ab"])
SERIALS = st.sampled_from([None, "s1", "s1", "s2"])
LUCK = st.integers(0, 3)
"""For rules without arguments, which are drawn too often: only 0 lets them run."""
SLOTS = st.integers(0, 2)
HERE = GeoPoint(lat=0, lon=180)
SPOTS = st.sampled_from([None, HERE, GeoPoint(lat=0, lon=-179.999), GeoPoint(lat=0.002, lon=180)])
"""At 0, 111 and 222 metres, on both sides of the antimeridian."""
STARTS = st.sampled_from([None, 1, 2])
ENDS = st.sampled_from([None, 3, 5])
"""Of a half-open interval: every end is after every start."""
LOOKS = (Vector([1, 0]), Vector([2, 0]), Vector([0, 1]), Vector([1, 1]))
"""Two of them have one direction, and two are as far from the last one."""
LIFETIMES = st.sampled_from([None, 4, 4, 9.5])
DEADLINES = st.sampled_from([KEEP, KEEP, None, 4, 9.5])
LATE = ("serial", "shelf", "days", "everywhere", "whenever", "anything", "any_words", "nearby")
"""The indexes that only the later release has."""
RECORDS = st.fixed_dictionaries(
    {
        "id": KEYS,
        "code": CODES,
        "group": st.sampled_from(["x", "y"]),
        "rank": st.integers(0, 3),
        "note": st.sampled_from([None, "no1", "no2"]),
        "spot": SPOTS,
        "since": STARTS,
        "until": ENDS,
        "look": st.sampled_from([None, *LOOKS]),
        "serial": SERIALS,
        "shelf": st.sampled_from(["s", "t"]),
    }
)
CHANGES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"code": CODES}),
    st.fixed_dictionaries({"group": st.sampled_from(["x", "y"]), "rank": st.integers(0, 3)}),
    st.fixed_dictionaries({"note": st.sampled_from([None, "no1", "no2"]), "shelf": st.sampled_from(["s", "t"])}),
    st.fixed_dictionaries({"serial": SERIALS}),
    st.fixed_dictionaries({"spot": SPOTS, "since": STARTS}),
    st.fixed_dictionaries({"until": ENDS, "look": st.sampled_from([None, *LOOKS])}),
    st.just({}),
)


Condition = tuple[dict[str, Any], Callable[[dict[str, Any]], bool]]
"""Lookups, and whether a record is one of those that they find."""


def is_near(one: dict[str, Any]) -> bool:
    """Whether a record is within 150 metres."""
    return one["spot"] is not None and one["spot"].lat == 0


ASKED: dict[str, Condition] = {
    "serial": ({"serial": "s1"}, lambda one: one["serial"] == "s1"),
    "shelf": ({"shelf": "s"}, lambda one: one["shelf"] == "s"),
    "days": ({"rank__on": 1}, lambda one: one["rank"] & 2 > 0),
    "everywhere": ({"spot__within": Circle(HERE, 150)}, is_near),
    "anything": ({"note__icontains": "NO1"}, lambda one: one["note"] == "no1"),
    "any_words": ({"any_words__search": "shelf:s -no1"}, lambda one: one["shelf"] == "s" and one["note"] != "no1"),
    "whenever": ({"whenever__overlaps": (4, 9)}, lambda one: is_found(one["since"], one["until"], 4, 9)),
    "nearby": ({}, lambda one: one["look"] is not None),
}
"""Of each index of the later release one query; without lookups it is that of the most similar records."""


class Abort(Exception):
    """Raised by a function of the caller, to end a mutation."""


def outcome(call: Callable[[], Any], expected: type[E]) -> tuple[Any, E | None]:
    """Return the result of a call, or the expected error that it raised."""
    try:
        return call(), None
    except expected as error:
        return None, error


def fields_of(thing: Any) -> dict[str, Any]:
    """The values of an object."""
    return {name: getattr(thing, name) for name in FIELDS}


class Writes(RuleBasedStateMachine):
    """The verbs that write, and what changes the store beneath them."""

    world: ClassVar[World]
    ran: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.url = self.world.new_url()
        self.db: Face = self.world.open(self.url, EarlyThing, self.clock)
        self.model: Any = EarlyThing
        self.things = Things(START_MS)
        self.states: dict[str, str] = dict.fromkeys(LATE, "disabled")
        self.objects: dict[int, tuple[Any, int]] = {}

    @property
    def repository(self) -> Face:
        return Face(self.world, self.db.target[self.model])

    def did(self, verb: str) -> None:
        self.ran[verb] += 1

    # --- judging a write --------------------------------------------------------------------------------------

    def stored(self, call: Callable[[], Any], fields: dict[str, Any], deadline: int | None) -> Held | None:
        """Carry out a write of these fields; None when a unique index refused it, as it should."""
        conflicts = self.things.conflicts(fields)
        held = self.things.live(fields["id"])
        unsure = set()
        if self.states["serial"] == "pending" and (held is None or held.fields["serial"] != fields["serial"]):
            # Among duplicates that a build found, only the index knows which of them holds the value.
            unsure = {"serial"} if self.things.owner("serial", fields["serial"], fields["id"]) is not None else set()
        taken_over = any(
            other.fields["code"] == fields["code"] is not None and self.things.live(key) is None
            for key, other in self.things.records.items()
        )
        result, error = outcome(call, UniqueViolationError)
        if error is not None:
            assert error.index in conflicts | unsure, "refused without a reason"
            if error.index not in unsure:
                assert error.existing_key == self.things.owner(error.index, fields[error.index], fields["id"])
            self.did("refused by a unique index")
            return None
        assert not conflicts, "a unique value was given twice"
        if taken_over:
            self.did("slot of an expired record taken over")
        assert fields_of(result) == fields
        assert result.is_persisted
        return self.things.put(fields, deadline)

    def inserted(self, call: Callable[[], Any], fields: dict[str, Any], lifetime: float | None) -> Held | None:
        """The same for a write that must meet no record of its key."""
        if self.things.live(fields["id"]) is None:
            return self.stored(call, fields, self.things.deadline(lifetime))
        _, error = outcome(call, AlreadyExistsError)
        assert error is not None, "a record was inserted twice"
        assert error.key == fields["id"]
        self.did("refused because the key exists")
        return None

    def deadline(self, lifetime: Any, held: Held | None) -> int | None:
        """Return the deadline after a write: a new one, none, or the one before."""
        if lifetime is not KEEP:
            self.did("deadline cleared" if lifetime is None else "deadline changed")
            return self.things.deadline(lifetime)
        if held is not None and held.deadline is not None:
            self.did("deadline carried")
        return None if held is None else held.deadline

    @initialize(items=st.lists(RECORDS, max_size=5), lifetime=LIFETIMES)
    def begin(self, items: list[dict[str, Any]], lifetime: float | None) -> None:
        """Most examples begin with some records, so that verbs meet something."""
        self.bulk_create_ignoring(items, None, lifetime)

    # --- one record -------------------------------------------------------------------------------------------

    @rule(fields=RECORDS, lifetime=LIFETIMES, slot=SLOTS)
    def create(self, fields: dict[str, Any], lifetime: float | None, slot: int) -> None:
        self.did("create")
        made: list[Any] = []

        def call() -> Any:
            made.append(self.repository.create(expire_in=lifetime, **fields))
            return made[0]

        held = self.inserted(call, fields, lifetime)
        if held is not None:
            self.objects[slot] = (made[0], held.version)

    @rule(fields=RECORDS, lifetime=LIFETIMES)
    def insert(self, fields: dict[str, Any], lifetime: float | None) -> None:
        self.did("insert")
        thing = self.model(**fields)
        if self.inserted(lambda: self.repository.insert(thing, expire_in=lifetime), fields, lifetime) is None:
            assert not thing.is_persisted, "an object stays new when it was refused"

    @rule(fields=RECORDS)
    def save_new(self, fields: dict[str, Any]) -> None:
        self.did("save a new object")
        self.inserted(lambda: self.repository.save(self.model(**fields)), fields, None)

    @rule(fields=RECORDS)
    def take_over(self, fields: dict[str, Any]) -> None:
        """A new record gets the unique value of one that has expired, which drawn values seldom are."""
        codes = [held.fields["code"] for key, held in self.things.records.items() if self.things.live(key) is None]
        taken = next((code for code in codes if code is not None), None)
        if taken is not None:
            fields = {**fields, "code": taken}
            self.inserted(lambda: self.repository.create(**fields), fields, None)

    def _hold(self, slot: int, overtaken: bool) -> bool:
        """Have an object in a slot, read now if there is none; overtaken: somebody changes its record since."""
        if slot not in self.objects:
            keys = list(self.things.all())
            if not keys:
                return False
            key = keys[slot % len(keys)]
            self.objects[slot] = (self.repository.get(key), self.things.records[key].version)
        key = self.objects[slot][0].id
        held = self.things.live(key)
        if overtaken and held is not None:
            self.repository.patch(key, rank=held.fields["rank"])
            self.things.put(held.fields, held.deadline)
        return True

    @rule(slot=SLOTS, changes=CHANGES, lifetime=DEADLINES, overtaken=st.booleans())
    def save_loaded(self, slot: int, changes: dict[str, Any], lifetime: Any, overtaken: bool) -> None:
        if not self._hold(slot, overtaken):
            return
        thing, version = self.objects[slot]
        for name, value in changes.items():
            setattr(thing, name, value)
        held = self.things.live(thing.id)
        if held is None or held.version != version:
            self.did("save a stale object")
            _, error = outcome(lambda: self.repository.save(thing, expire_in=lifetime), StaleObjectError)
            assert error is not None, "a stale object was saved"
            assert (error.key, error.actual is None) == (thing.id, held is None)
            return
        self.did("save a loaded object")
        deadline = self.deadline(lifetime, held)
        kept = self.stored(lambda: self.repository.save(thing, expire_in=lifetime), fields_of(thing), deadline)
        self.objects.pop(slot) if kept is None else self.objects.update({slot: (thing, kept.version)})

    @rule(slot=SLOTS, fields=RECORDS, lifetime=DEADLINES)
    def save_by_force(self, slot: int, fields: dict[str, Any], lifetime: Any) -> None:
        self.did("save by force")
        thing, _ = self.objects.pop(slot, (self.model(**fields), 0))
        deadline = self.deadline(lifetime, self.things.live(thing.id))
        call = lambda: self.repository.save(thing, force=True, expire_in=lifetime)  # noqa: E731 - one of a kind
        kept = self.stored(call, fields_of(thing), deadline)
        if kept is not None:
            self.objects[slot] = (thing, kept.version)

    @rule(key=KEYS, changes=CHANGES, lifetime=DEADLINES)
    def patch(self, key: int, changes: dict[str, Any], lifetime: Any) -> None:
        self.did("patch")
        self._update(key, lambda: self.repository.patch(key, expire_in=lifetime, **changes), changes, lifetime)

    @rule(key=KEYS, changes=CHANGES, lifetime=DEADLINES, returned=st.booleans())
    def mutate(self, key: int, changes: dict[str, Any], lifetime: Any, returned: bool) -> None:
        self.did("mutate")

        def change(thing: Any) -> Any:
            if returned:
                return thing.model_copy(update=changes)
            for name, value in changes.items():
                setattr(thing, name, value)
            return None

        self._update(key, lambda: self.repository.mutate(key, change, expire_in=lifetime), changes, lifetime)

    def _update(self, key: int, call: Callable[[], Any], changes: dict[str, Any], lifetime: Any) -> None:
        held = self.things.live(key)
        if held is not None:
            self.stored(call, {**held.fields, **changes}, self.deadline(lifetime, held))
            return
        _, error = outcome(call, DoesNotExist)
        assert isinstance(error, self.model.DoesNotExist), "an absent record was changed"

    @rule(key=KEYS)
    def mutate_and_abort(self, key: int) -> None:
        self.did("abort a mutation")

        def abort(thing: Any) -> None:
            thing.rank += 100
            raise Abort

        _, error = outcome(lambda: self.repository.mutate(key, abort), Exception)
        assert type(error) is (self.model.DoesNotExist if self.things.live(key) is None else Abort)

    @rule(key=KEYS)
    def remove_key(self, key: int) -> None:
        self.did("remove by key")
        assert self.repository.remove(key) is (self.things.live(key) is not None)
        self.things.records.pop(key, None)

    @rule(slot=SLOTS, overtaken=st.booleans())
    def remove_object(self, slot: int, overtaken: bool) -> None:
        if not self._hold(slot, overtaken):
            return
        self.did("remove an object")
        thing, version = self.objects.pop(slot)
        held = self.things.live(thing.id)
        removed, error = outcome(lambda: self.repository.remove(thing), StaleObjectError)
        if error is not None:
            assert held is None or held.version != version
            return
        assert removed is True
        assert held is not None
        assert held.version == version
        assert not thing.is_persisted
        self.things.records.pop(thing.id)

    # --- several records --------------------------------------------------------------------------------------

    @rule(fields=RECORDS, by_key=st.booleans())
    def get_or_create(self, fields: dict[str, Any], by_key: bool) -> None:
        fields = {**fields, "code": fields["code"] or "ab", "serial": None}
        unique = "id" if by_key else "code"
        self.did("get_or_create")
        found = self.things.live(fields["id"]) if by_key else None
        if not by_key:
            owner = self.things.owner("code", fields["code"], -1)
            found = None if owner is None else self.things.live(owner)
        defaults = {name: value for name, value in fields.items() if name != unique}
        call = lambda: self.repository.get_or_create(defaults=defaults, **{unique: fields[unique]})  # noqa: E731
        if found is None:
            self.inserted(lambda: self._new(call()), fields, None)
            return
        thing, created = call()
        assert (fields_of(thing), created) == (found.fields, False)

    @rule(fields=RECORDS, by_key=st.booleans(), changes=CHANGES)
    def update_or_create(self, fields: dict[str, Any], by_key: bool, changes: dict[str, Any]) -> None:
        fields = {**fields, "code": fields["code"] or "ab", "serial": None}
        unique = "id" if by_key else "code"
        self.did("update_or_create")
        owner = fields["id"] if by_key else self.things.owner("code", fields["code"], -1)
        found = None if owner is None else self.things.live(owner)
        values = {name: value for name, value in fields.items() if name != unique}

        def call() -> tuple[Any, bool]:
            key = {unique: fields[unique]}
            made: tuple[Any, bool] = self.repository.update_or_create(defaults=changes, create_defaults=values, **key)
            assert made[1] is (found is None)
            return made

        if found is None:
            self.inserted(lambda: call()[0], fields, None)
        else:
            self.stored(lambda: call()[0], {**found.fields, **changes}, found.deadline)

    @rule(group=st.sampled_from(["x", "y"]), size=st.sampled_from([None, 1, 2]), resumable=st.booleans())
    def update_group(self, group: str, size: int | None, resumable: bool) -> None:
        self.did("update a query")
        query = self.repository.filter(group=group).allow_scan()
        resume_id = f"update {self.ran['update a query']}" if resumable else None
        chosen = [held for held in self.things.all().values() if held.fields["group"] == group]
        result = query.update(rank=F("rank") + 1, batch_size=size, resume_id=resume_id)
        assert (result.matched, result.written) == (len(chosen), len(chosen))
        for held in chosen:
            self.things.put({**held.fields, "rank": held.fields["rank"] + 1}, held.deadline)

    @rule(group=st.sampled_from(["x", "y"]), most=st.integers(0, 2))
    def delete_some(self, group: str, most: int) -> None:
        self.did("delete a slice")
        chosen = [key for key, held in self.things.all().items() if held.fields["group"] == group][:most]
        query = self.repository.filter(group=group).order_by("pk").allow_scan()
        assert query[:most].delete().written == len(chosen)
        for key in chosen:
            self.things.records.pop(key)

    @staticmethod
    def _new(result: tuple[Any, bool]) -> Any:
        assert result[1] is True
        return result[0]

    @rule(items=st.lists(RECORDS, min_size=1, max_size=4), size=st.sampled_from([None, 1, 2]), lifetime=LIFETIMES)
    def bulk_create(self, items: list[dict[str, Any]], size: int | None, lifetime: float | None) -> None:
        self.did("bulk_create")
        items = self._without_unsure(items)
        start = 0
        create, objects = self.repository.bulk_create, [self.model(**item) for item in items]
        results, error = outcome(lambda: create(objects, batch_size=size, expire_in=lifetime), IntegrityError)
        assert error is not None or [result.created for result in results] == [True] * len(items)
        while start < len(items):
            batch = items[start : start + (size or len(items))]
            wrong = [place for place, item in enumerate(batch) if self._clashes(item, batch)]
            if wrong:
                assert error is not None
                assert error.position is not None
                assert (error.committed, error.position - start in wrong) == (start, True)
                self.did("bulk_create refused")
                return
            for item in batch:
                self.things.put(item, self.things.deadline(lifetime))
            start += len(batch)
        assert error is None

    def _clashes(self, item: dict[str, Any], batch: list[dict[str, Any]]) -> bool:
        """Whether an item cannot be inserted together with the others of its batch."""
        if self.things.live(item["id"]) is not None or self.things.conflicts(item):
            return True
        others = [other for other in batch if other is not item]
        unique = ["id", "code", *(["serial"] if self.things.serial_is_unique else [])]
        return any(item[name] is not None and item[name] == other[name] for name in unique for other in others)

    @rule(items=st.lists(RECORDS, min_size=1, max_size=4), size=st.sampled_from([None, 2]), lifetime=LIFETIMES)
    def bulk_create_ignoring(self, items: list[dict[str, Any]], size: int | None, lifetime: float | None) -> None:
        self.did("bulk_create ignoring conflicts")
        items = self._without_unsure(items)
        objects = [self.model(**item) for item in items]
        call = self.repository.bulk_create
        results = call(objects, batch_size=size, on_conflict="ignore", expire_in=lifetime)
        assert [result.obj for result in results] == objects
        for item, result in zip(items, results, strict=True):
            fits = self.things.live(item["id"]) is None and not self.things.conflicts(item)
            assert (result.created, result.error is None, result.obj.is_persisted) == (fits, fits, fits)
            if fits:
                self.things.put(item, self.things.deadline(lifetime))

    def _without_unsure(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        pending = self.states["serial"] == "pending"
        return [{**item, "serial": None} for item in items] if pending else items

    # --- time, releases, indexes ------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([3, 5]))
    def advance(self, seconds: int) -> None:
        self.did("clock moved on")
        self.clock.ms += seconds * 1000
        self.things.now = self.clock.ms

    @precondition(lambda self: self.model is EarlyThing)
    @rule()
    def deploy(self) -> None:
        """The later release opens the store before the earlier one has closed it."""
        self.did("later release deployed")
        later = self.world.open(self.url, LateThing, self.clock)
        self.db.close()
        self.db, self.model, self.objects = later, LateThing, {}
        if not self.things.all():  # the new indexes of an empty collection are built at once
            self._became(dict.fromkeys(self.states, "readable"))

    def _became(self, states: dict[str, str]) -> None:
        self.states.update(states)
        self.things.serial_is_unique = self.states["serial"] == "readable"

    @precondition(lambda self: self.model is LateThing)
    @rule(luck=LUCK)
    def build(self, luck: int) -> None:
        if not luck:
            self._build()

    def _build(self) -> None:
        self.did("build_indexes")
        wanted = "pending" if self.things.duplicates("serial") else "readable"
        reports = {report.index: report for report in self.db.build_indexes()}
        assert set(reports) == {name for name, state in self.states.items() if state != "readable"}
        if "serial" in reports:
            assert reports["serial"].state.value == wanted
            assert bool(reports["serial"].violations) is (wanted == "pending")
            self.did(f"built and {wanted}")
        # The entries of one are copies, which carry the versionstamp of their record; records store their words.
        if "shelf" in reports or "any_words" in reports:
            for held in self.things.all().values():
                self.things.put(held.fields, held.deadline)
        self._became({name: report.state.value for name, report in reports.items()})

    @precondition(lambda self: self.states["serial"] == "disabled")
    @rule(serial=st.sampled_from(["s1", "s2"]), count=st.integers(0, 3))
    def build_over_duplicates(self, serial: str, count: int) -> None:
        """Give several records one value of the index that is built then, once the later release declares it.

        With an even number of records it is built over values of None, which it can hold.
        """
        keys = list(self.things.all())
        fits = self.model is LateThing and len(keys) % 2 == 0
        for key in keys if fits else keys[:count]:
            self.did("no value before a build" if fits else "duplicates before a build")
            held, value = self.things.all()[key], None if fits else serial
            self.stored(
                partial(self.repository.patch, key, serial=value), {**held.fields, "serial": value}, held.deadline
            )
        if self.model is LateThing:
            self._build()

    @precondition(lambda self: self.model is LateThing)
    @rule(name=st.sampled_from(LATE))
    def drop(self, name: str) -> None:
        self.did("drop_index")
        assert self.db.drop_index(LateThing, name) is (self.states[name] != "disabled")
        self._became({name: "disabled"})

    @precondition(lambda self: self.model is LateThing)
    @rule(fields=RECORDS)
    def old_release(self, fields: dict[str, Any]) -> None:
        """The earlier release reads on, and writes only while it knows every index that is kept."""
        self.did("earlier release beside the later one")
        old = self.world.open(self.url, EarlyThing, self.clock)
        repository = Face(self.world, old.target[EarlyThing])
        assert {thing.id for thing in repository.to_list()} == set(self.things.all())
        if any(state != "disabled" for state in self.states.values()):
            _, error = outcome(lambda: repository.save(EarlyThing(**fields), force=True), SchemaMismatchError)
            assert error is not None, "a process wrote without keeping every index"
        old.close()

    @rule(name=st.sampled_from(LATE))
    def ask_a_late_index(self, name: str) -> None:
        if self.model is EarlyThing:
            return
        self.did("query by a late index")
        lookups, holds = ASKED[name]
        query = self.repository.filter(**lookups) if lookups else self.repository.similar(name, LOOKS[0])[:10]
        wanted = {key for key, held in self.things.all().items() if holds(held.fields)}
        if self.states[name] == "readable":
            found = query.to_list()
            assert {thing.id if lookups else thing.record.id for thing in found} == wanted
            return
        _, error = outcome(query.to_list, IndexNotReadyError)
        assert error is not None, "a query was answered by an index that is not complete"
        assert error.index == name
        assert error.hint is not None

    @rule(luck=LUCK)
    def check(self, luck: int) -> None:
        if luck:
            return
        self.did("check")
        assert self.db.check().findings == ()
        assert audit(read_engine(self.db.engine), [SPEC]) == []

    def teardown(self) -> None:
        """After every example: the same records, exact entries, also among rows that have expired."""
        self.did("all")
        found = {thing.id: fields_of(thing) for thing in self.repository.all().to_list()}
        assert found == {key: held.fields for key, held in self.things.all().items()}
        rows = read_engine(self.db.engine)
        deadlines = {row.key[1]: row.expires_at for row in rows if row.key[0] == "things"}
        assert deadlines == {key: held.deadline for key, held in self.things.all().items()}
        assert audit(rows, [SPEC]) == []
        assert self.db.check().findings == ()
        if self.model is EarlyThing:  # a build passes over records that have expired
            assert audit(read_engine(self.db.engine, include_expired=True), [SPEC]) == []
        self.db.close()
