"""The declaration of a many-to-many relation, ``tags: ManyToMany[Tag]``, of which the owner stores nothing.

To pydantic the attribute is a class variable, so it is no field of the model. The class keeps a descriptor, which is
``Post.tags`` in queries and calls.

Rules of this module: it only reads the body of a class. Targets and link models are found when a database is opened.
"""

from __future__ import annotations

import re
from sys import modules
from typing import Annotated, Any, ClassVar, Final, Generic, NamedTuple, TypeVar, cast, get_args, get_origin

from kvmodels._support.annotations import own_annotations
from kvmodels._support.naming import short_repr, show_public_path
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.many_to_many_ref import ManyToManyRef

M = TypeVar("M")
Target = TypeVar("Target")

_RELATIONS: Final = "__kv_relations__"
"""The class attribute with the names of the relations in the body of a class."""

_TEXT: Final = re.compile(r"\s*([\w.]+)\s*\[(.*)\]\s*", re.DOTALL)


class DeclaredRelation(NamedTuple):
    """A many-to-many relation as a class body declares it."""

    name: str
    target: type[Any] | str
    through: type[Any] | str | None
    through_fields: tuple[str, str] | None
    related_name: str | None


class ManyToMany(Generic[Target]):
    """Declares that a record has links to any number of records of another model, and these to any number of it.

    Nothing is stored in the record. The links are records of a link model, whose primary key is two foreign keys. By
    default it is made by a rule: the collection ``<collection>_<field>`` with the fields ``owner_id`` and
    ``target_id``, both ``CASCADE``. Type checkers need the default value, ``tags: ManyToMany[Tag] = ManyToMany()``; at
    run time ``tags: ManyToMany[Tag]`` is the same. A target that is declared later, or the class itself, is given by
    its name: ``ManyToMany["Tag"]``.

    Args:
        through: a link model of your own, or its name. Its primary key is a foreign key to this model and one to the
            target.
        through_fields: these two fields, first the one to this model; needed if both refer to one model.
        related_name: the name of the relation in filters of the target; by default the name of this class in
            lowercase.

    Raises:
        ModelDefinitionError: an argument has the wrong type.

    Examples:
        >>> from kvmodels import Database, KvModel, ManyToMany, PrimaryKey
        >>> class Tag(KvModel, collection="tags"):
        ...     id: PrimaryKey[int]
        ...     name: str
        >>> class Post(KvModel, collection="posts"):
        ...     id: PrimaryKey[int]
        ...     tags: ManyToMany[Tag] = ManyToMany()
        >>> db = Database("memory://", models=[Tag, Post])
        >>> post, red = db[Post].create(id=1), db[Tag].create(id=7, name="red")
        >>> db[Post].links(Post.tags).add(post, red)
        1
        >>> db[Post].filter(tags__name="red").allow_scan().to_list()
        [Post(id=1)]
    """

    __slots__ = ("declared",)

    def __init__(
        self,
        *,
        through: type[Any] | str | None = None,
        through_fields: tuple[str, str] | None = None,
        related_name: str | None = None,
    ) -> None:
        through = _checked(through, "through", (type, str), "through=PostTag")
        related_name = _checked(related_name, "related_name", (str,), 'related_name="posts"')
        if related_name is not None and not related_name.isidentifier():
            raise _refused("related_name", related_name, 'related_name="posts"')
        if through_fields is not None and not _is_pair(through_fields):
            raise _refused("through_fields", through_fields, 'through_fields=("post_id", "tag_id")')
        self.declared = DeclaredRelation("", "", through, through_fields, related_name)

    def __class_getitem__(cls, item: Any) -> Any:
        return ClassVar[Annotated[Any, _LinkTarget(item)]]

    def __get__(self, instance: None, owner: type[M]) -> ManyToManyRef[M, Target]:
        name, target, _, _, related_name = self.declared
        if instance is not None:
            raise AttributeError(name=name, obj=instance)  # KvModel says what to write
        return ManyToManyRef(name, owner, target, related_name or owner.__name__.lower())

    def __repr__(self) -> str:
        return f"ManyToMany({self.declared.name!r})"


class _LinkTarget:
    """The argument of ``ManyToMany[...]``, as annotations hold it."""

    def __init__(self, target: object) -> None:
        given: object = getattr(target, "__forward_arg__", target)
        if not isinstance(given, (type, str)):
            raise ModelDefinitionError(
                "the target of a many-to-many relation is neither a model class nor the name of one",
                option=f"ManyToMany[{short_repr(given)}]",
                hint='Write ManyToMany[Tag], or ManyToMany["Tag"] for a class that is declared later.',
            )
        self.target = given


def declare_relations(cls: type[Any]) -> tuple[str, ...]:
    """Give a class that is being created a descriptor for each relation in its body; return their names."""
    found: dict[str, Any] = {}
    annotations = own_annotations(cls)
    for name, annotation in annotations.items():
        declared = _declared(cls, annotation)
        if declared is ManyToMany:
            raise ModelDefinitionError(
                "a many-to-many relation has no target",
                model=cls.__name__,
                field=name,
                option="ManyToMany",
                hint="Write ManyToMany[Tag].",
            )
        if not isinstance(declared, _LinkTarget):
            continue
        if not isinstance(relation := vars(cls).get(name, ManyToMany()), ManyToMany):
            raise ModelDefinitionError(
                "the default of a many-to-many relation is no ManyToMany()",
                model=cls.__name__,
                field=name,
                option=short_repr(relation),
                hint=f"Write {name}: ManyToMany[...] = ManyToMany().",
            )
        relation.declared = relation.declared._replace(name=name, target=declared.target)
        type.__setattr__(cls, name, relation)
        found[name] = ClassVar[Annotated[Any, declared]]
    if found:
        type.__setattr__(cls, _RELATIONS, tuple(found))
        cls.__annotations__ = {**annotations, **found}  # so that pydantic need not evaluate text
    return tuple(found)


def relations_of(model: type[Any]) -> dict[str, DeclaredRelation]:
    """Return the many-to-many relations that a class declares or inherits, by name, those of parents first."""
    names = dict.fromkeys(name for base in reversed(model.__mro__) for name in vars(base).get(_RELATIONS, ()))
    found: dict[str, DeclaredRelation] = {}
    for name in names:
        value = next(vars(base)[name] for base in model.__mro__ if name in vars(base))
        if isinstance(value, ManyToMany):  # and nothing else in a derived class
            found[name] = value.declared
    return found


def _declared(cls: type[Any], annotation: object) -> object:
    """Return the target in an annotation, ``ManyToMany`` for one without a target, and None for other annotations."""
    text = getattr(annotation, "__forward_arg__", annotation)
    if isinstance(text, str):
        return _declared_in_text(cls, text)
    if annotation is ManyToMany:
        return annotation
    inner: Any = get_args(annotation)[0] if get_origin(annotation) is ClassVar else None
    marks: tuple[object, ...] = inner.__metadata__ if get_origin(inner) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, _LinkTarget)), None)


def _declared_in_text(cls: type[Any], annotation: str) -> object:
    """Return the same for an annotation that is text, as in a module that postpones their evaluation."""
    names = vars(modules[cls.__module__]) if cls.__module__ in modules else {}
    match = _TEXT.fullmatch(annotation)
    head = annotation.strip() if match is None else match[1]
    if _named(names, head) is not ManyToMany and head.rpartition(".")[2] != ManyToMany.__name__:
        return None
    if match is None:
        return ManyToMany
    target = match[2].strip().strip("\"'")
    known = _named(names, target)
    return _LinkTarget(known if isinstance(known, type) else target.rpartition(".")[2])


def _named(names: dict[str, Any], path: str) -> object:
    first, *others = path.split(".")
    found: object = names.get(first)
    for name in others:
        found = getattr(found, name, None)
    return found


def _is_pair(value: object) -> bool:
    pair = cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()
    return len(pair) == 2 and all(isinstance(one, str) for one in pair)


def _checked(value: Any, option: str, kinds: tuple[type, ...], example: str) -> Any:
    if value is not None and not isinstance(value, kinds):
        raise _refused(option, value, example)
    return value


def _refused(option: str, value: object, example: str) -> ModelDefinitionError:
    return ModelDefinitionError(
        "an option of a many-to-many relation has the wrong form",
        option=f"{option}={short_repr(value)}",
        hint=f"Write ManyToMany({example}).",
    )


show_public_path(ManyToMany)
