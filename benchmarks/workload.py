"""The users workload: which records there are, what is asked of them, and what the right answers are.

Rules of this module: everything follows from the numbers that are given and a seed; nothing is measured here. An answer
is judged by a digest that can be computed in any language: SHA-256 over one line for each object, fields parted by
U+001F.
"""

from __future__ import annotations

import hashlib
import random
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

COLOURS = (
    *("amber", "azure", "black", "blue", "brown", "coral", "cyan", "gold", "green", "grey"),
    *("indigo", "ivory", "lime", "olive", "orange", "pink", "purple", "red", "teal", "white"),
)
BIO_BYTES = 120
PAGE = 20
BATCH = 1_000
CONTENDERS = 4


class User(NamedTuple):
    """One record; ``email`` is unique, ``colour`` is indexed."""

    id: int
    name: str
    email: str
    colour: str
    age: int
    bio: str


@dataclass(frozen=True, slots=True)
class Operations:
    """How often each row is run in a round, if its time allows."""

    get: int = 20_000
    lists: int = 6
    """How often each colour is listed."""
    page: int = 1_000
    count: int = 2_000
    scan: int = 3
    update: int = 1_500
    insert: int = 3_000
    delete: int = 4_000


Arguments = list[list[Any]]
"""The arguments of the calls of one row, in order."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The records, and for every row the arguments of its calls, in parts that are run one after another."""

    users: tuple[User, ...]
    arguments: dict[str, list[Arguments]]


def drawn(
    records: int = 20_000,
    operations: Operations = Operations(),
    *,
    seed: int = 7,
    parts: int = 1,
    returning: bool = False,
) -> Workload:
    """Draw a workload.

    Args:
        records: how many users are stored at first.
        operations: how many calls a part of each row has.
        seed: the same for everybody who is compared.
        parts: how often each row is run with arguments of its own.
        returning: whether what a part deletes is what it has inserted, so that the store keeps its size.
    """
    chance = random.Random(seed)
    everybody = tuple(_user(number, chance) for number in range(1, records + parts * operations.insert + 1))
    users, newcomers = everybody[:records], everybody[records:]
    keys = range(1, records + 1)
    some, gone = min(operations.update, records // parts), min(operations.delete, records // parts)
    arguments: dict[str, list[Arguments]] = {
        "get": [[[key] for key in chance.choices(keys, k=operations.get)] for _ in range(parts)],
        "get_by_email": [[[user.email] for user in chance.choices(users, k=operations.get)] for _ in range(parts)],
        "list_colour": [[[colour] for _ in range(operations.lists) for colour in COLOURS] for _ in range(parts)],
        "page": [[[colour] for colour in chance.choices(COLOURS, k=operations.page)] for _ in range(parts)],
        "scan": [[[] for _ in range(operations.scan)] for _ in range(parts)],
        "count": [[[colour] for colour in chance.choices(COLOURS, k=operations.count)] for _ in range(parts)],
        "update_plain": _cut([[key, f"Renamed {key}"] for key in chance.sample(keys, some * parts)], parts),
        "update_indexed": _cut([[key, chance.choice(COLOURS)] for key in chance.sample(keys, some * parts)], parts),
        "update_unique": _cut([[key, f"moved{key}@example.net"] for key in chance.sample(keys, some * parts)], parts),
        "insert": _cut([[*user] for user in newcomers], parts),
        "delete": _cut(
            [[user.id] for user in newcomers] if returning else [[key] for key in chance.sample(keys, gone * parts)],
            parts,
        ),
    }
    return Workload(users, arguments)


def in_turns(workload: Workload, rows: Iterable[str], turns: int) -> Workload:
    """The same calls, those of some rows in so many parts, or fewer where there are not so many calls."""
    arguments = {row: list(parts) for row, parts in workload.arguments.items()}
    for row in rows:
        arguments[row] = [cut for part in arguments[row] for cut in _cut(part, max(1, min(turns, len(part))))]
    return Workload(workload.users, arguments)


def _cut(calls: Arguments, parts: int) -> list[Arguments]:
    """The calls in parts of one length."""
    size = len(calls) // parts
    return [calls[size * part : size * (part + 1)] for part in range(parts)]


def _user(number: int, chance: random.Random) -> User:
    tag = f"{chance.getrandbits(32):08x}"
    return User(
        id=number,
        name=f"User {number} {tag}",
        email=f"user.{tag}.{number}@example.org",
        colour=chance.choice(COLOURS),
        age=chance.randrange(18, 90),
        bio="".join(chance.choices(string.ascii_lowercase + "     ", k=BIO_BYTES)),
    )


def line(user: User) -> str:
    """Return the values of an object that enter the digest."""
    return "\x1f".join(map(str, user))


def digest(lines: Iterable[str]) -> str:
    """The digest of some objects, in this order."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest_of_set(users: Iterable[User]) -> str:
    """The digest of objects that may come in any order."""
    return digest(sorted(map(line, users)))


class Truth:
    """The expected content of a store as plain Python, updated beside a column while its rows are run."""

    def __init__(self, users: Sequence[User]) -> None:
        self._users = {user.id: user for user in users}
        self._by_email = {user.email: user for user in users}

    def __len__(self) -> int:
        return len(self._users)

    def apply(self, row: str, arguments: Sequence[Sequence[Any]]) -> None:
        """Do what a row did to the store."""
        for argument in arguments:
            if row == "insert":
                user = User(*argument)
                self._users[user.id] = user
            elif row == "delete":
                del self._users[argument[0]]
            else:
                changed = {"update_plain": "name", "update_indexed": "colour", "update_unique": "email"}[row]
                self._users[argument[0]] = self._users[argument[0]]._replace(**{changed: argument[1]})
        self._by_email = {user.email: user for user in self._users.values()}

    def add_years(self, key: int, years: int) -> None:
        """Record increments of one user's age."""
        self._users[key] = self._users[key]._replace(age=self._users[key].age + years)

    def age(self, key: int) -> int:
        """How old a user must be."""
        return self._users[key].age

    def by_colour(self) -> dict[str, list[User]]:
        """Users of each colour, by key."""
        found: dict[str, list[User]] = {colour: [] for colour in COLOURS}
        for user in sorted(self._users.values()):
            found[user.colour].append(user)
        return found

    def owners(self, workload: Workload, most: int = 5) -> dict[str, int | None]:
        """Addresses of all kinds, and whose they are: as they were, changed, given up, and deleted."""
        moved = [email for parts in workload.arguments["update_unique"] for _, email in parts]
        known = [user.email for user in workload.users]
        given_up = [email for email in known if email not in self._by_email]
        kept = [email for email in known if email in self._by_email]
        chosen = [*moved[:most], *given_up[:most], *kept[:most], *kept[-most:]]
        return {email: self._by_email[email].id if email in self._by_email else None for email in chosen}

    def answer(self, row: str, arguments: Sequence[Sequence[Any]]) -> str:
        """The digest that a column must give for calls of a row that reads."""
        if row == "get":
            return digest(line(self._users[key]) for (key,) in arguments)
        if row == "get_by_email":
            return digest(line(self._by_email[email]) for (email,) in arguments)
        if row == "scan":
            return digest_of_set(user for _ in arguments for user in self._users.values())
        by_colour = self.by_colour()
        if row == "list_colour":
            return digest_of_set(user for (colour,) in arguments for user in by_colour[colour])
        if row == "page":
            return digest(line(user) for (colour,) in arguments for user in by_colour[colour][:PAGE])
        return digest(str(len(by_colour[colour])) for (colour,) in arguments)
