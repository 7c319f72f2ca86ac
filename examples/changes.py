"""A second tour: a theatre that sells seats, from one transaction to a new release of its models.

The first tour (``tour.py``) shows models, indexes and queries; this one shows what changes several records, many
records, and the models themselves. Read it from top to bottom, and run it beside that.

Rules of this module: mypy and pyright accept it in strict mode, without a cast and without an ignored line; a test
runs both of them, and compares every line that it prints.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from kvmodels import (
    AutoNow,
    Database,
    F,
    Field,
    Indexed,
    KvModel,
    Partial,
    PrimaryKey,
    Transaction,
    TransactionConflictError,
    Unique,
    Version,
    upgrade,
)


def chapter(title: str) -> None:
    """A heading between the steps."""
    print(f"\n== {title}")


def show(what: str, found: object) -> None:
    """One line of the output: what was asked, and what came out."""
    print(f"{what:<28} {found}")


# --- 1. Declare ---------------------------------------------------------------------------------------------------


class Guest(KvModel, collection="guests"):
    """A guest with an account; what the library fills in is declared like any other field."""

    id: PrimaryKey[int]
    email: Unique[str]
    balance: int = 0
    changed_at: datetime = AutoNow()  # set by the clock of the store whenever the record changes
    revision: int = Version()  # 1, 2, 3 …

    def before_update(self, old: Guest) -> None:
        """Run in every attempt of every write that changes a guest; what it raises stops the write."""
        if self.balance < 0 <= old.balance:
            raise ValueError(f"the account of {self.email} may not be overdrawn")


GuestPatch = Partial[Guest]  # a model whose every field may be left out, for the body of a PATCH request


class Seat(KvModel, collection="seats"):
    """A seat of one evening; nobody has it as long as ``guest`` is None."""

    id: PrimaryKey[int]
    row: Indexed[str]
    price: int
    guest: Indexed[int | None] = Field(default=None)


class Event(KvModel, collection="events", discriminator="kind"):
    """Events in a house: several classes of records in one collection."""

    id: PrimaryKey[int]
    title: Indexed[str]


class Play(Event):
    """A play has an author."""

    kind: Literal["play"] = "play"
    author: Indexed[str]


class Concert(Event):
    """A concert has a band."""

    kind: Literal["concert"] = "concert"
    band: Unique[str]


# --- 2. Change several records together ---------------------------------------------------------------------------
# A transaction reads one state of the store and its own writes, and is committed as one operation. What it has read
# is checked then: if somebody has changed it meanwhile, nothing is written.


def book_seats(db: Database) -> None:
    """Both records change, or none."""
    chapter("Transactions")

    @db.transactional()  # run again from the top after a conflict
    def book(tx: Transaction, guest_id: int, seat_id: int) -> Seat:
        seat = tx[Seat].get(seat_id)
        if seat.guest is not None:
            raise LookupError(f"seat {seat_id} is taken")
        guest = tx[Guest].get(guest_id)
        guest.balance -= seat.price
        seat.guest = guest_id
        tx[Guest].save(guest)
        tx.on_commit(lambda: show("told after the commit", f"seat {seat_id}"))
        tx.kv.sum(("sold", seat.row), 1)  # keys of your own are in the same commit
        return tx[Seat].save(seat)

    show("booked", book(1, 11))
    for wanted in (11, 31):
        try:
            book(2, wanted)
        except (LookupError, ValueError) as error:
            show("refused", error)
    show("nothing was left behind", (db[Guest].get(2).balance, db[Seat].filter(guest=2).count()))
    show("seats sold", db.kv.get(("sold", "A")).value)


def exchange_and_undo(db: Database) -> None:
    """Unique values may be swapped, because they are judged at the end; an exception undoes all of it."""
    with db.transaction() as tx:
        ada, bob = tx[Guest].get(1), tx[Guest].get(2)
        ada.email, bob.email = bob.email, ada.email
        tx[Guest].save(ada)
        tx[Guest].save(bob)
        show("reads its own writes", tx[Guest].get(email="bob@example.org").id)
    show("exchanged", (ada.email, bob.email))
    try:
        with db.transaction() as tx:
            tx[Guest].patch(1, balance=0)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        show("undone", db[Guest].get(1).balance)


def guard_a_rule(db: Database, url: str) -> None:
    """A rule about what a query does not find needs a guard: two transactions with one guard never both commit."""
    chapter("Guards")

    def reserve_the_box(tx: Transaction, guest_id: int) -> None:
        tx.guard("box")
        if not tx[Seat].filter(row="box").exists():
            tx[Seat].create(id=900 + guest_id, row="box", price=0, guest=guest_id)

    try:
        with db.transaction() as slow:
            reserve_the_box(slow, 1)
            with Database(url, models=[Guest, Seat, Event]) as other, other.transaction() as quick:
                reserve_the_box(quick, 2)
    except TransactionConflictError as error:
        show("the second one", error.failed_checks)
    show("who has the box", [seat.guest for seat in db[Seat].filter(row="box")])


# --- 3. Change many records ---------------------------------------------------------------------------------------
# Bulk writes go in batches of one commit each. With an id they can be resumed: each record is written exactly once,
# however often the program was killed.


def change_in_bulk(db: Database) -> None:
    """Filters with terms, lists of objects, and what could not be written."""
    chapter("Many records")
    seats = db[Seat]
    raised = seats.filter(row="A").update(price=F("price") + 2, resume_id="autumn-prices")
    again = seats.filter(row="A").update(price=F("price") + 2, resume_id="autumn-prices")  # does nothing any more
    show("raised, and once only", (raised.written, again.written, [seat.price for seat in seats.filter(row="A")]))
    free = seats.filter(guest=None).order_by("id")
    show("delete one of them", free[:1].delete().written)
    guests = [Guest(id=3, email="cleo@example.org"), Guest(id=4, email="ada@example.org")]
    results = db[Guest].bulk_create(guests, on_conflict="ignore")
    show("what was not written", [type(item.error).__name__ for item in results if not item.created])
    cleo, created = db[Guest].update_or_create(id=3, defaults={"email": "cleo@example.org", "balance": 50})
    show("created", (created, cleo.revision))


# --- 4. Several classes in one collection -------------------------------------------------------------------------


def hold_events(db: Database) -> None:
    """A repository for all of them, and one for each class."""
    chapter("Shapes")
    db[Play].create(id=1, title="Emilia", author="Lessing")
    db[Concert].create(id=2, title="Late Blues", band="The Sevens")
    show("all", [type(event).__name__ for event in db[Event].all()])
    show("of one class", [play.author for play in db[Play].filter(author="Lessing")])
    show("by a field of one class", db[Concert].get(band="The Sevens").title)
    show("given fields only", GuestPatch(balance=7).model_dump())


# --- 5. A new release ---------------------------------------------------------------------------------------------
# A class of the same collection stands for the next release of the program. In yours there is one class, and its
# versions follow each other in the history of your repository.


class GuestOfRelease2(KvModel, collection="guests"):
    """Balances are in cents now, and there are tiers."""

    id: PrimaryKey[int]
    email: Unique[str]
    balance: Indexed[int] = Field(default=0)
    tier: Indexed[str] = Field(default="regular")
    changed_at: datetime = AutoNow()
    revision: int = Version()

    class Meta:
        schema_version = 2

    @upgrade(to=2, touches=("balance",))
    @staticmethod
    def in_cents(document: dict[str, int]) -> dict[str, int]:
        """Applied to records of version 1 when they are read, and for good when they are written."""
        document["balance"] *= 100
        return document


def release(url: str) -> None:
    """Look at the plan, apply it beside readers and writers, and check."""
    chapter("A new release")
    with Database(url, models=[GuestOfRelease2]) as db:
        print(db.plan())
        print(db.apply())  # the upgrade was tried on stored records before
        show("in cents", [(guest.id, guest.balance) for guest in db[GuestOfRelease2].filter(balance__gt=0)])
        show("consistent", db.check().ok)


def tour(url: str = "memory://theatre") -> None:
    """Every step, on one store."""
    with Database(url, models=[Guest, Seat, Event]) as db:
        chapter("Open")
        db[Guest].bulk_create([Guest(id=1, email="ada@example.org", balance=100), Guest(id=2, email="bob@example.org")])
        db[Seat].bulk_create(
            [Seat(id=n * 10 + place, row=row, price=price) for n, row, price in PLACES for place in (1, 2)]
        )
        show("seats", db[Seat].count())
        book_seats(db)
        exchange_and_undo(db)
        guard_a_rule(db, url)
        change_in_bulk(db)
        hold_events(db)
        show("consistent", db.check().ok)
        release(url)


PLACES = ((1, "A", 40), (2, "B", 30), (3, "C", 20))


if __name__ == "__main__":
    tour()
