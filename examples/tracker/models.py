"""The records of the tracker, and the bodies of its requests."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict

from kvmodels import (
    AUTO,
    CASCADE,
    ULID,
    AggregateIndex,
    AutoNowAdd,
    Creation,
    Field,
    ForeignKey,
    History,
    Index,
    KvModel,
    MultiIndexed,
    Partial,
    PrimaryKey,
    Unique,
)

Status = Literal["open", "active", "done"]


class Record(KvModel, abstract=True):
    """The base of all models: a response always has all fields, and its schema says so."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class User(Record, collection="users"):
    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    email: Annotated[str, Unique(key=str.casefold)] = Field(pattern=r"^\S+@\S+$")
    name: str


class Project(Record, collection="projects"):
    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    slug: Unique[str] = Field(pattern="^[a-z0-9-]+$")
    title: str
    closed: bool = False

    class Meta:
        history = History()


class Ticket(Record, collection="tickets"):
    id: PrimaryKey[int] = Field(default=AUTO)
    project_id: Annotated[ForeignKey[ULID, Project], CASCADE]
    reporter_id: ForeignKey[ULID, User]
    title: str
    status: Status = "open"
    tags: MultiIndexed[list[str]] = Field(default=[])
    created_at: datetime = AutoNowAdd()

    class Meta:
        indexes = (Index("status"), Index("project_id", "status"), AggregateIndex("project_id", "status"))
        history = History()


MODELS = (User, Project, Ticket)


class NewUser(Creation[User]):
    """The body of POST /users."""


class NewProject(Creation[Project], exclude=("closed",)):
    """The body of POST /projects."""


class NewTicket(Creation[Ticket], exclude=("project_id", "status")):
    """The body of POST /projects/{slug}/tickets."""


class TicketPatch(Partial[Ticket], exclude=("id", "project_id", "reporter_id")):
    """The body of PATCH /tickets/{key}."""
