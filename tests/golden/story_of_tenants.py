"""The story of a store with two tenants, in format 1.

``python -m tests.golden.story_of_tenants FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from kvmodels import Database, Indexed, KvModel, PrimaryKey, Unique
from kvmodels.api.core import DatabaseCore
from tests.golden.story import TellingEngine, write_files


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]


class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    ids = count(1)
    core = DatabaseCore([Account], tenant_models=[User], new_token=lambda: f"id {next(ids)}")
    db = Database.from_engine(engine, core)
    db[Account].create(id=1)
    db.create_tenant("acme")
    acme, initech = db.tenant("acme"), db.tenant("initech", create=True)
    acme[User].create(id=1, email="ada@example.org", color="red")
    acme.kv.set(("raw", 1), "raw")
    yield "1_one"
    initech[User].create(id=1, email="ada@example.org", color="blue")
    acme[User].patch(1, color="green")
    yield "2_two"
    db.remove_tenant("acme")
    yield "3_removed"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
