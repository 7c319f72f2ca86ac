"""Ways in which an earlier draft of the design lost data, as named tests; the numbers are those of that review.

Items 3 and 16 are in ``tests/query``, 4, 5, 7, 13, 14 and 24 with the life cycle of indexes and opening, 9, 22, 23, 28
and 29 with the engines.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, SecretStr

from kvmodels import (
    CommitUnknownError,
    Database,
    Field,
    Index,
    Indexed,
    InvalidValueError,
    KvModel,
    KvModelsError,
    NonIdempotentValidatorError,
    PrimaryKey,
    ReservedKeyError,
    RetryPolicy,
    StaleObjectError,
    Unique,
    UniqueViolationError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.contract import Engine
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.hydration.rows import document_of
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.changes import KEEP, pending, record_change
from kvmodels.flows.writing.operation import AttemptState, Proposal
from kvmodels.indexing.entries import RecordChange
from kvmodels.runtime.sync import run
from tests.logical_writes import FunctionWrite
from tests.query.engines import WatchedEngine
from tests.regressions.stores import at_once, entries, exact, opened
from tests.zoo import Account, Animal


def over(engine: Engine, *models: type[KvModel], **policy: Any) -> Database:
    """A database over an engine of the test."""
    core = DatabaseCore(models, retry=RetryPolicy(**policy), readonly=False, must_be_current=False)
    return Database.from_engine(engine, core)


# --- 1: all records of a commit are compiled together -----------------------------------------------------------------


def together(db: Database, *changes: Account | int) -> None:
    """Save these accounts, and remove those of these keys, in one commit."""
    context, schema = db._core.context, db._core.schema_for(Account)
    layout = context.layouts[schema.collection]
    pks = [layout.pack((change if isinstance(change, int) else change.id,)) for change in changes]

    def propose(seen: AttemptState) -> Proposal[None]:
        live = seen.view.live[schema.collection]
        made = []
        for change, pk in zip(changes, pks, strict=True):
            row = seen.live_row(layout.key(pk))
            if isinstance(change, Account):
                made.append(record_change(context, pending(context, schema, change), seen, row, KEEP))
            elif row is not None:
                made.append(RecordChange(live, pk, row, document_of(context, row), None))
        return Proposal(tuple(made), lambda _: None)

    run(db._engine, execute(context, FunctionWrite(schema, [layout.key(pk) for pk in pks], propose)))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    ("changes", "owners"),
    [
        ([Account(id=1, email="b"), Account(id=2, email="a")], {"a": 2, "b": 1}),
        ([Account(id=1, email="c"), Account(id=2, email="a")], {"a": 2, "c": 1}),
        ([1, Account(id=2, email="a")], {"a": 2}),
        ([1, Account(id=3, email="a")], {"a": 3, "b": 2}),
        ([Account(id=1, email="b"), Account(id=2, email="c"), Account(id=3, email="a")], {"a": 3, "b": 1, "c": 2}),
        ([Account(id=1), Account(id=2, email="a")], {"a": 2}),
    ],
    ids=["swap", "move onto released", "remove and move", "remove and create", "rotate", "clear and take"],
)
def test_review_01_values_released_and_claimed_in_one_commit_keep_one_owner(db, accounts, changes, owners, backwards):
    accounts.create(id=1, email="a")
    accounts.create(id=2, email="b")
    together(db, *(reversed(changes) if backwards else changes))
    assert {email: accounts.get(email=email).id for email in owners} == owners
    assert {account.email: account.id for account in accounts.filter(email__isnull=False)} == owners
    for email in owners:
        with pytest.raises(UniqueViolationError):
            accounts.create(id=9, email=email)


def test_review_01_two_claims_of_one_value_in_a_bulk_insert_are_refused_together(db, accounts):
    objects = [Account(id=1, email="a"), Account(id=2, email="a")]
    with pytest.raises(UniqueViolationError):
        accounts.bulk_create(objects)
    assert accounts.count() == 0
    items = accounts.bulk_create(objects, on_conflict="ignore")
    assert [item.created for item in items] == [True, False]
    assert entries(db, "email") == [("a",)]


def test_review_01_bulk_inserts_that_want_each_others_values_leave_one_owner_of_each(db, accounts):
    def batch(base: int) -> list[Account]:
        return [Account(id=base + number, email=f"e{(base + number) % 5}") for number in range(5)]

    at_once(*(partial(accounts.bulk_create, batch(base)) for base in (10, 20, 30, 40)))
    assert accounts.count() == 5
    assert len(entries(db, "email")) == 5


# --- 2: an entry is key, value and deadline ---------------------------------------------------------------------------


@pytest.mark.parametrize("first", [None, 10, 100])
@pytest.mark.parametrize("then", [None, 10, 100])
def test_review_02_entries_follow_every_change_of_a_deadline(engine, tmp_path, first, then):
    now = [1_700_000_000_000]
    with opened(engine, tmp_path, Account, clock=lambda: now[0]) as db:
        accounts = db[Account]
        accounts.create(id=1, email="a", expire_in=first)
        accounts.patch(1, expire_in=then)
        exact(db, Account)
        deadlines = {entry.expires_at for entry in db.kv.list(prefix=()) if entry.key[0] != "__kvmodels__"}
        assert deadlines == {None if then is None else now[0] + then * 1000}
        now[0] += 50_000
        exact(db, Account)
        alive = then in (None, 100)
        assert (accounts.get_or_none(email="a") is not None) is alive
        if alive:
            with pytest.raises(UniqueViolationError):
                accounts.create(id=2, email="a")
        else:
            accounts.create(id=2, email="a")
        exact(db, Account)


def test_review_02_a_deadline_is_carried_by_every_verb_that_does_not_give_one(db, accounts):
    accounts.create(id=1, email="a", expire_in=3600)
    deadline = db.kv.get(("accounts", 1)).expires_at
    accounts.patch(1, color="blue")
    accounts.mutate(1, lambda account: None)
    accounts.save(accounts.get(1))
    accounts.save(Account(id=1, email="b"), force=True)
    written = [entry for entry in db.kv.list(prefix=()) if entry.key[0] != "__kvmodels__"]
    assert {entry.expires_at for entry in written} == {deadline}


# --- 6: entries are a function of the stored document -----------------------------------------------------------------


def test_review_06_a_new_default_does_not_leave_the_entries_of_the_old_one_behind(engine, tmp_path):
    class Early(KvModel, collection="tickets"):
        id: PrimaryKey[int]
        state: Indexed[str] = Field(default="new")

    class Later(KvModel, collection="tickets"):
        id: PrimaryKey[int]
        state: Indexed[str] = Field(default="open")

    with opened(engine, tmp_path, Early) as early:
        early[Early].create(id=1)
        early[Early].create(id=2)
        with opened(engine, tmp_path, Later) as later:
            assert later[Later].get(1).state == "new", "a default is stored, not guessed when it is read"
            later[Later].patch(1, state="done")
            later[Later].remove(2)
            later[Later].create(id=3)
            assert [entry.key[1:] for entry in later.kv.list(prefix=("tickets_by_state",))] == [
                ("done", 1),
                ("open", 3),
            ]
            exact(later, Later)


def test_review_06_what_a_class_does_not_know_is_carried_through_every_rewrite(engine, tmp_path):
    class Narrow(KvModel, collection="people"):
        id: PrimaryKey[int]
        name: str

    class Wide(KvModel, collection="people"):
        id: PrimaryKey[int]
        name: str
        plan: str = "free"

    with opened(engine, tmp_path, Wide) as wide:
        wide[Wide].create(id=1, name="Ada", plan="pro")
        with opened(engine, tmp_path, Narrow) as narrow:
            narrow[Narrow].patch(1, name="Ada L.")
            loaded = narrow[Narrow].get(1)
            narrow[Narrow].save(loaded)
        assert wide[Wide].get(1).model_dump() == {"id": 1, "name": "Ada L.", "plan": "pro"}


# --- 8: a commit whose answer was lost may still land -----------------------------------------------------------------


def rename(db: Database) -> Account:
    return db[Account].patch(1, email="wanted")


def insert(db: Database) -> Account:
    return db[Account].create(id=5, email="wanted")


@pytest.mark.parametrize("goes", [False, True])
@pytest.mark.parametrize("verb", [rename, insert])
def test_review_08_an_operation_that_was_reported_as_failed_never_lands_afterwards(verb, goes):
    """Also when what was in its way is gone: then nothing but its token keeps it out."""
    store = MemoryEngine()
    others = over(store, Account)
    others[Account].create(id=1, email="a")
    faults: list[Any] = []
    engine = FaultEngine(store, plan=lambda _: faults.pop(0) if faults else None)
    mine = over(engine, Account)

    def taken(*_: Any) -> str:
        others[Account].create(id=9, email="wanted")
        faults[:] = []
        return "hold"

    class First(list[Any]):
        def pop(self, *_: Any) -> Any:
            return taken()

    faults = First(["hold"])
    with pytest.raises(UniqueViolationError):
        verb(mine)
    if goes:
        others[Account].remove(9)
    engine.deliver_late()
    assert {account.id: account.email for account in others[Account]} == {1: "a"} | ({} if goes else {9: "wanted"})
    exact(others, Account)


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request", "repeat", "land_before_next", "land_after_next"])
@pytest.mark.parametrize("verb", [rename, insert])
def test_review_08_an_operation_whose_answer_was_lost_is_applied_once(verb, fault):
    store = MemoryEngine()
    others = over(store, Account)
    others[Account].create(id=1, email="a")
    mine = over(FaultEngine(store, plan=iter([fault])), Account)
    assert verb(mine).email == "wanted"
    assert others[Account].get(email="wanted").id == (1 if verb is rename else 5)
    exact(others, Account)


def test_review_08_what_cannot_be_found_out_is_an_error_whose_token_tells_it_later():
    store = MemoryEngine()
    others = over(store, Account)
    others[Account].create(id=1, email="a")
    engine = FaultEngine(store, plan=lambda _: "lose_request")
    mine = over(engine, Account, deadline_s=0.0)
    with pytest.raises(CommitUnknownError) as caught:
        rename(mine)
    assert caught.value.token is not None
    assert others.outcome(caught.value.token) is False
    engine.deliver_late()
    assert others[Account].get(1).email == "a"


# --- 10: a copy carries the versionstamp of its record ----------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda animals: animals.patch(("east", 1)),
        lambda animals: animals.patch(("east", 1), note="changed"),
        lambda animals: animals.save(animals.get(("east", 1)), force=True),
        lambda animals: animals.patch(("east", 1), expire_in=3600),
        lambda animals: animals.mutate(("east", 1), lambda animal: None),
    ],
    ids=["touch", "other field", "force", "deadline", "no change"],
)
def test_review_10_an_object_read_through_a_copy_can_be_saved_after_any_write(engine, tmp_path, write):
    with opened(engine, tmp_path, Animal) as db:
        animals = db[Animal]
        animals.create(park="east", number=1, species="lynx", name="Ada", weight=1, tag="t1", diet="meat")
        write(animals)
        for through in (lambda: animals.get(tag="t1"), lambda: animals.filter(diet="meat")[0]):
            found = through()
            assert found.versionstamp == animals.get(("east", 1)).versionstamp
            found.note += "x"
            animals.save(found)
        exact(db, Animal)


def test_review_10_a_copy_that_an_online_build_wrote_can_be_saved(engine, tmp_path):
    class Plain(KvModel, collection="pages"):
        id: PrimaryKey[int]
        slug: str

    class Copied(KvModel, collection="pages"):
        id: PrimaryKey[int]
        slug: Annotated[str, Unique(store="record")]

    with opened(engine, tmp_path, Plain) as db:
        db[Plain].create(id=1, slug="home")
        with opened(engine, tmp_path, Copied) as later:
            later.build_indexes()
            found = later[Copied].get(slug="home")
            found.slug = "start"
            later[Copied].save(found)
            exact(later, Copied)


# --- 13: raw writes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [("accounts", 1), ("accounts_by_email", "a"), ("__kvmodels__", "header")])
def test_review_13_raw_writes_to_the_keys_of_a_model_are_refused_by_the_database_that_has_it(db, accounts, key):
    accounts.create(id=1, email="a")
    before = list(db.kv.list(prefix=()))
    for write in (
        lambda: db.kv.set(key, 1),
        lambda: db.kv.delete(key),
        lambda: db.kv.atomic().set(("mine",), 1).sum(key, 1).commit(),
    ):
        with pytest.raises(ReservedKeyError):
            write()
    assert list(db.kv.list(prefix=())) == before
    db.kv.set(("mine", 1), "allowed")


# --- 18, 19, 20: models -----------------------------------------------------------------------------------------------


def test_review_18_a_validator_that_is_not_idempotent_is_refused_by_every_verb_that_writes(engine, tmp_path):
    class Secret(KvModel, collection="secrets"):
        id: PrimaryKey[int]
        hashed: Annotated[str, AfterValidator(lambda value: f"h({value})")]

    with opened(engine, tmp_path, Secret) as db:
        secrets = db[Secret]
        for write in (
            lambda: secrets.create(id=1, hashed="s"),
            lambda: secrets.save(Secret(id=1, hashed="s"), force=True),
            lambda: secrets.bulk_create([Secret(id=1, hashed="s")]),
            lambda: secrets.get_or_create(id=1, defaults={"hashed": "s"}),
        ):
            with pytest.raises(NonIdempotentValidatorError) as caught:
                write()
            assert caught.value.field == "hashed"
        assert list(db.kv.list(prefix=("secrets",))) == []


def test_review_18_the_validated_values_are_in_the_callers_object_after_the_write(accounts):
    account = Account.model_construct(id=1, email="a", color="red", n="7", note="")
    accounts.insert(account)
    assert account.n == 7
    assert accounts.get(1) == account


def test_review_19_aliases_exclusions_secrets_and_factories_do_not_change_what_is_stored(engine, tmp_path):
    class Login(KvModel, collection="logins"):
        id: PrimaryKey[int]
        name: Annotated[str, Indexed()] = Field(default="", alias="userName")
        password: SecretStr = Field(default=SecretStr(""), exclude=True)
        tags: list[str] = Field(default_factory=list)

    with opened(engine, tmp_path, Login) as db:
        db[Login].create(id=1, userName="ada", password="s3cret")
        assert db.kv.get(("logins", 1)).value == {"id": 1, "name": "ada", "password": "s3cret", "tags": []}
        found = db[Login].filter(name="ada")[0]
        assert (found.name, found.password.get_secret_value()) == ("ada", "s3cret")
        db.kv.unsafe().set(("logins", 1), {"id": 1, "name": "ada", "password": "x"})
        assert db[Login].get(1).tags == []
        exact(db, Login)


@pytest.mark.parametrize(
    "copied",
    [
        lambda account: account.model_copy(),
        copy.copy,
        copy.deepcopy,
        lambda account: pickle.loads(pickle.dumps(account)),
        lambda account: account.model_copy(update={"color": "blue"}),
    ],
    ids=["model_copy", "copy", "deepcopy", "pickle", "model_copy with update"],
)
def test_review_20_state_is_no_part_of_equality_and_survives_every_kind_of_copy(accounts, copied: Callable[..., Any]):
    created = accounts.create(id=1, email="a")
    assert accounts.get(1) == created == Account(id=1, email="a")
    clone = copied(created)
    assert clone.versionstamp == created.versionstamp
    clone.n = 3
    accounts.save(clone)
    assert accounts.get(1).n == 3
    with pytest.raises(StaleObjectError):
        accounts.save(created)
    assert accounts.save(accounts.detach(accounts.get(1).model_copy(update={"id": 2, "email": "b"}))).id == 2


# --- 25: the check beside writers; 27: columns ------------------------------------------------------------------------


def test_review_25_a_write_between_any_two_reads_of_a_check_is_no_finding():
    store = MemoryEngine()
    writer, watched = over(store, Account), WatchedEngine(store)
    checked = over(watched, Account)
    for moment in range(12):
        for account in writer[Account].to_list():
            writer[Account].remove(account)
        writer[Account].bulk_create([Account(id=number, email=f"e{number}") for number in range(3)])
        countdown = [moment]

        def change(countdown: list[int] = countdown) -> None:
            if countdown[0] == 0:
                writer[Account].patch(0, email="moved", color="blue")
                writer[Account].remove(1)
                writer[Account].create(id=7, email="e1")
            else:
                watched.before_read = partial(change, countdown)
            countdown[0] -= 1

        watched.before_read = change
        assert checked.check().findings == (), f"before read {moment}"
        watched.before_read = None
    exact(writer, Account)


def test_review_25_keys_that_are_not_ours_are_reported_and_never_deleted_unasked(db):
    db.kv.unsafe().set(("accounts_by_color", "red"), "theirs")
    assert [found.kind for found in db.check(repair=True).findings] == ["foreign"]
    assert db.kv.get(("accounts_by_color", "red")).value == "theirs"
    assert db.check(repair="all").ok


@pytest.mark.parametrize("bad", ["\ud800", "a\udfffb"])
def test_review_27_a_lone_surrogate_is_refused_and_not_made_equal_to_another(accounts, bad):
    for write in (
        lambda: accounts.create(id=1, color=bad),
        lambda: accounts.create(id=1, email=bad),
        lambda: accounts.filter(color=bad).to_list(),
    ):
        with pytest.raises(KvModelsError) as caught:
            write()
        assert isinstance(caught.value, InvalidValueError)
    assert accounts.count() == 0


def test_review_27_values_that_are_equal_share_one_entry_and_values_that_differ_do_not(engine, tmp_path):
    class Measure(KvModel, collection="measures"):
        id: PrimaryKey[int]
        real: Unique[float | None] = Field(default=None)
        exact: Unique[Decimal | None] = Field(default=None)
        moment: Unique[datetime | None] = Field(default=None)

    with opened(engine, tmp_path, Measure) as db:
        measures = db[Measure]
        summer = datetime.fromisoformat("2026-07-01T14:00:00+02:00")
        measures.create(id=1, real=0.0, exact=Decimal("1.0"), moment=summer)
        clashes: list[dict[str, Any]] = [
            {"real": -0.0},
            {"exact": Decimal("1.00")},
            {"moment": summer.astimezone(UTC)},
        ]
        for number, clash in enumerate(clashes):
            with pytest.raises(UniqueViolationError):
                measures.create(id=10 + number, **clash)
        measures.create(id=2, real=5e-324, exact=Decimal("1.0000000000000000000000000000000001"))
        found = measures.get(1)
        assert (str(found.exact), str(found.moment)) == ("1.0", "2026-07-01 14:00:00+02:00")
        exact(db, Measure)


def test_review_27_a_descending_text_column_lists_a_longer_text_before_its_beginning(engine, tmp_path):
    class Word(KvModel, collection="words"):
        id: PrimaryKey[int]
        text: str

        class Meta:
            indexes = (Index("-text"),)

    with opened(engine, tmp_path, Word) as db:
        texts = ["a", "ab", "a\0", "", "b", "\0", "a\0\0"]
        db[Word].bulk_create([Word(id=number, text=text) for number, text in enumerate(texts)])
        assert [word.text for word in db[Word].order_by("-text")] == sorted(texts, reverse=True)
        assert [word.text for word in db[Word].order_by("text")] == sorted(texts)
        exact(db, Word)
