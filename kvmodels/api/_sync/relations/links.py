# Generated from kvmodels/api/_async/relations/links.py by tools/unasync.py. Do not edit.
"""Links: the links of the records of one model by a many-to-many relation.

Rules of this module: one-line methods over the flows that read and write links.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from kvmodels._support.naming import show_public_path
from kvmodels.api._sync.queryset import Runner
from kvmodels.api.refusals import refuse_copies
from kvmodels.flows.reading import links as reading
from kvmodels.flows.writing import links as writing
from kvmodels.schema.definition.definition import Relation

M = TypeVar("M")
T = TypeVar("T")


class Links(Generic[M, T]):
    """The links of a many-to-many relation; created by ``posts.links(Post.tags)``.

    Records of both sides are given as objects or as primary keys. Every change is one commit, and is refused if it is
    too large for one. Changes of one owner at the same time have the effect of one after the other: after two calls of
    ``set``, the owner has the links of one of them.

    Args:
        runner: runs flows against the store.
        relation: the relation.

    Examples:
        >>> from kvmodels import Database, KvModel, ManyToMany, PrimaryKey
        >>> class Skill(KvModel, collection="skills"):
        ...     name: PrimaryKey[str]
        >>> class Hero(KvModel, collection="heroes"):
        ...     id: PrimaryKey[int]
        ...     skills: ManyToMany[Skill] = ManyToMany()
        >>> db = Database("memory://", models=[Skill, Hero])
        >>> ada, swims, flies = db[Hero].create(id=1), db[Skill].create(name="s"), "f"
        >>> _ = db[Skill].create(name="f")
        >>> skills = db[Hero].links(Hero.skills)
        >>> skills.add(ada, swims, flies), skills.set(ada, [flies]), skills.fetch([ada])
        (2, 1, {1: [Skill(name='f')]})
    """

    __slots__ = ("_relation", "_runner")

    def __init__(self, runner: Runner, relation: Relation) -> None:
        self._runner = runner
        self._relation = relation

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._runner.schema.name}.{self._relation.name}>"

    @property
    def model(self) -> type[Any]:
        """The link model, whose records are the links: ``db[links.model]`` reads and writes them."""
        return self._relation.links.model

    # --- reading ------------------------------------------------------------------------------------------------

    def fetch(self, owners: Iterable[Any]) -> dict[Any, list[T]]:
        """Return for each owner the records that it has links to, in the order of their primary keys.

        Args:
            owners: objects or primary keys of this model, such as the items of a page.

        Returns:
            Lists of objects by the primary keys of the owners. Cost: two reads, of the links and of the records that
            they lead to; one more for every 500 links, and more if the engine does not take so many ranges at once.

        Raises:
            InvalidValueError: something is neither an object nor a primary key of the model.
            IndexNotReadyError: an index of the links is not built.
        """
        found: dict[Any, list[T]] = self._runner.run(
            "links.fetch", reading.fetch(self._runner.context, self._relation, owners)
        )
        return found

    def fetch_owners(self, targets: Iterable[Any]) -> dict[Any, list[M]]:
        """Return for each target the records of this model that have a link to it, in the order of their primary keys.

        Args:
            targets: objects or primary keys of the other model.

        Returns:
            Lists of objects by the primary keys of the targets. Cost: as for ``fetch``.

        Raises:
            InvalidValueError: something is neither an object nor a primary key of the other model.
            IndexNotReadyError: an index of the links is not built.
        """
        turned = self._relation.turned()
        found: dict[Any, list[M]] = self._runner.run(
            "links.fetch_owners", reading.fetch(self._runner.context, turned, targets)
        )
        return found

    # --- writing ------------------------------------------------------------------------------------------------

    def add(self, owner: Any, /, *targets: Any) -> int:
        """Add links from an owner to targets; a link that exists stays as it is.

        Args:
            owner: an object of the model or its primary key.
            targets: objects of the other model, or primary keys.

        Returns:
            The number of new links. Cost: as for inserts of link records, in one commit.

        Raises:
            ReferenceViolationError: the owner or a target does not exist.
            InvalidArgumentError: the link model has fields that need values.
            InvalidValueError: something is neither an object nor a primary key.
            OperationTooLargeError: one commit cannot take so many links.
            RetriesExhaustedError: every attempt met a conflict.
        """
        return self._runner.run("links.add", writing.add(self._runner.context, self._relation, owner, targets))

    def remove(self, owner: Any, /, *targets: Any) -> int:
        """Remove the links from an owner to targets, if it has them.

        Args:
            owner: an object of the model or its primary key.
            targets: objects of the other model, or primary keys.

        Returns:
            The number of links that were removed. Cost: as for removals of link records, in one commit.

        Raises:
            InvalidValueError: something is neither an object nor a primary key.
            OperationTooLargeError: one commit cannot take so many links.
            RetriesExhaustedError: every attempt met a conflict.
        """
        return self._runner.run("links.remove", writing.remove(self._runner.context, self._relation, owner, targets))

    def set(self, owner: Any, targets: Iterable[Any], /) -> int:
        """Make these targets the only ones of an owner: add the links that are missing, and remove all others.

        The commit conflicts with every new foreign key to the owner, whoever writes it, and is then tried again. So of
        two calls at the same time, the owner has the links of one.

        Args:
            owner: an object of the model or its primary key.
            targets: objects of the other model, or primary keys.

        Returns:
            The number of links that were added or removed. Cost: a read of the links of the owner, and one commit,
            which checks each of them.

        Raises:
            ReferenceViolationError: the owner or a target does not exist.
            InvalidArgumentError: the link model has fields that need values.
            InvalidValueError: something is neither an object nor a primary key.
            OperationTooLargeError: one commit cannot take so many links.
            RetriesExhaustedError: every attempt met a conflict.
            IndexNotReadyError: an index of the links is not built.
        """
        return self._runner.run("links.set", writing.replace(self._runner.context, self._relation, owner, targets))

    def clear(self, owner: Any, /) -> int:
        """Remove all links of an owner; as ``set`` without targets.

        Args:
            owner: an object of the model or its primary key.

        Returns:
            The number of links that were removed. Cost: as for ``set``.

        Raises:
            InvalidValueError: this is neither an object nor a primary key.
            OperationTooLargeError: one commit cannot remove so many links.
            RetriesExhaustedError: every attempt met a conflict.
            IndexNotReadyError: an index of the links is not built.
        """
        return self._runner.run("links.clear", writing.replace(self._runner.context, self._relation, owner, ()))


show_public_path(Links)
refuse_copies(Links)
