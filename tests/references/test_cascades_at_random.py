"""Random writes of three models whose foreign keys form a cycle have the results of a model made of dicts."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels import (
    AlreadyExistsError,
    Database,
    DoesNotExist,
    IntegrityError,
    KvModel,
    ProtectedError,
    ReferenceViolationError,
    UniqueViolationError,
)
from tests.references.families import FAMILIES, Deed, Person, Town

KEYS = (1, 2, 3)
EFFECTS: dict[tuple[type[KvModel], str], tuple[type[KvModel], str]] = {
    (Town, "region"): (Town, "cascade"),
    (Town, "charter"): (Deed, "protect"),
    (Person, "home"): (Town, "cascade"),
    (Person, "spouse"): (Person, "set_null"),
    (Deed, "owner"): (Person, "cascade"),
    (Deed, "witness"): (Person, "set_null"),
}

Key: TypeAlias = tuple[type[KvModel], int]
State: TypeAlias = dict[Key, dict[str, Any]]
Verb: TypeAlias = tuple[Any, ...]


def fields_of(model: type[KvModel]) -> list[str]:
    return [field for one, field in EFFECTS if one is model]


class Absent(Exception):
    """The model's answer for a record that is not there."""


class Present(Exception):
    """The model's answer for a record that is there already."""


def remove(state: State, first: set[Key]) -> None:
    """Remove records: removals to a fixpoint, then None for what remains."""
    removed = {key for key in first if key in state}
    while True:
        more = {
            (model, number)
            for (model, number), record in state.items()
            for field in fields_of(model)
            if EFFECTS[model, field][1] == "cascade" and (EFFECTS[model, field][0], record[field]) in removed
        }
        if more <= removed:
            break
        removed |= more
    for key in removed:
        del state[key]
    for (model, _), record in state.items():
        for field in fields_of(model):
            if EFFECTS[model, field][1] == "set_null" and (EFFECTS[model, field][0], record[field]) in removed:
                record[field] = None


def apply(state: State, verb: Verb) -> None:
    name, model, number, *rest = verb
    if name == "create":
        if (model, number) in state:
            raise Present
        state[model, number] = dict(rest[0])
    elif name == "patch":
        if (model, number) not in state:
            raise Absent
        state[model, number] |= rest[0]
    elif name == "delete":
        remove(state, {(model, one) for one in number})
    else:
        remove(state, {(model, number)})


def fault(state: State) -> str | None:
    """Return what is wrong with a final state."""
    for (model, _), record in state.items():
        for field in fields_of(model):
            if record[field] is not None and (EFFECTS[model, field][0], record[field]) not in state:
                return "dangling"
    spouses = [record["spouse"] for (model, _), record in state.items() if model is Person and record["spouse"]]
    return "duplicate" if len(spouses) != len(set(spouses)) else None


def carry_out(repositories: Any, verb: Verb) -> None:
    name, model, number, *rest = verb
    records = repositories[model]
    if name == "create":
        records.create(id=number, **rest[0])
    elif name == "patch":
        records.patch(number, **rest[0])
    elif name == "delete":
        records.filter(id__in=number).delete()
    elif name == "remove loaded":
        loaded = records.get_or_none(number)
        if loaded is not None:
            records.remove(loaded)
    else:
        records.remove(number)


def _values(model: type[KvModel]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field: st.sampled_from((None, *KEYS)) for field in fields_of(model)})


def _verbs(model: type[KvModel]) -> st.SearchStrategy[Verb]:
    number = st.sampled_from(KEYS)
    return st.one_of(
        st.tuples(st.just("create"), st.just(model), number, _values(model)),
        st.tuples(st.just("patch"), st.just(model), number, _values(model)),
        st.tuples(st.sampled_from(("remove", "remove loaded")), st.just(model), number),
        st.tuples(st.just("delete"), st.just(model), st.lists(number, min_size=1, unique=True)),
    )


ANY_VERB = st.sampled_from(FAMILIES).flatmap(_verbs)


def stored(repositories: Any) -> State:
    return {
        (model, one.id): {field: getattr(one, field) for field in fields_of(model)}
        for model in FAMILIES
        for one in repositories[model].all()
    }


@st.composite
def beginnings(draw: st.DrawFn) -> State:
    """A consistent state with most of the records."""
    state: State = {(model, number): draw(_values(model)) for model in FAMILIES for number in KEYS}
    for key in draw(st.lists(st.sampled_from(sorted(state, key=str)), max_size=2)):
        state.pop(key, None)
    spouses: set[int] = set()
    for (model, _), record in state.items():
        for field in fields_of(model):
            target = (EFFECTS[model, field][0], record[field])
            if target not in state or (field == "spouse" and record[field] in spouses):
                record[field] = None
        if model is Person and record["spouse"]:
            spouses.add(record["spouse"])
    return state


def fill(db: Database, state: State) -> None:
    with db.transaction() as tx:
        for (model, number), record in state.items():
            tx[model].create(id=number, **record)


def copied(state: State) -> State:
    return {key: dict(record) for key, record in state.items()}


@given(beginnings(), st.lists(ANY_VERB, min_size=1, max_size=6))
def test_single_writes(state: State, verbs: list[Verb]):
    with Database("memory://", models=FAMILIES) as db:
        fill(db, state)
        for verb in verbs:
            after = copied(state)
            wanted: type[Exception] | tuple[type[Exception], ...] | None
            try:
                apply(after, verb)
            except Present:
                wanted = AlreadyExistsError
            except Absent:
                wanted = DoesNotExist
            else:
                removal = verb[0] not in ("create", "patch")
                refusal = ProtectedError if removal else (ReferenceViolationError, UniqueViolationError)
                wanted = refusal if fault(after) else None
            raised = _outcome(db, [verb])
            assert (raised is None) if wanted is None else isinstance(raised, wanted), (verb, raised)
            state = state if wanted else after
            assert stored(db) == state
        report = db.check()
        assert report.ok, report
        assert not report.dangling_references
        assert not report.stray_guards


def _outcome(db: Database, verbs: list[Verb]) -> Exception | None:
    try:
        for verb in verbs:
            carry_out(db, verb)
    except (IntegrityError, AlreadyExistsError, DoesNotExist) as error:
        return error
    return None


@pytest.mark.servers
@given(beginnings(), st.lists(ANY_VERB, min_size=1, max_size=5))
def test_transactions(state: State, verbs: list[Verb]):
    with Database("memory://", models=FAMILIES) as db:
        fill(db, state)
        after = copied(state)
        wanted: type[Exception] | None = None
        try:
            for verb in verbs:
                apply(after, verb)
        except Present:
            wanted = AlreadyExistsError
        except Absent:
            wanted = DoesNotExist
        else:
            wanted = IntegrityError if fault(after) else None
        raised: Exception | None = None
        try:
            with db.transaction() as tx:
                for verb in verbs:
                    carry_out(tx, verb)
                if wanted is None:
                    assert stored(tx) == after
        except (IntegrityError, AlreadyExistsError, DoesNotExist) as error:
            raised = error
        assert (raised is None) if wanted is None else isinstance(raised, wanted), raised
        assert stored(db) == (state if wanted else after)
        report = db.check()
        assert report.ok, report
        assert not report.dangling_references
        assert not report.stray_guards
