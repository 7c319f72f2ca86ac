"""The story of a history, a trash and the list of a removal, in format 1.

``python -m tests.golden.story_of_histories FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from kvmodels import CASCADE, SET_NULL, Field, ForeignKey, History, KvModel, PrimaryKey
from tests.golden.story import TellingEngine, database, write_files


class Project(KvModel, collection="projects"):
    id: PrimaryKey[int]
    name: str
    preview: bytes = b""

    class Meta:
        history = History(exclude=("preview",))


class Ticket(KvModel, collection="tickets"):
    id: PrimaryKey[int]
    project: Annotated[ForeignKey[int, Project], CASCADE]

    class Meta:
        history = History(keep=timedelta(days=36_500))


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    project: Annotated[ForeignKey[int | None, Project], SET_NULL] = Field(default=None)

    class Meta:
        history = History(only="removed")


MODELS = (Project, Ticket, Note)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, *MODELS)
    projects = db[Project]
    with db.acting("ada", reason="the start"):
        projects.create(id=1, name="moon", preview=b"old")
        db[Ticket].create(id=10, project=1)
        db[Note].create(id=5, project=1)
    yield "1_first_versions"
    projects.patch(1, preview=b"new")
    with db.acting("grace"):
        projects.patch(1, name="mars")
        projects.create(id=2, name="sun")
        projects.rename(2, 3)
    yield "2_an_update_a_rewrite_and_a_rename"
    with db.acting("eve", reason="a mistake"):
        projects.remove(1)
    yield "3_a_removal_with_a_cascade"
    projects.restore(1, also=True)
    yield "4_a_restore"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
