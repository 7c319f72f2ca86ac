"""Write the page of errors from the error classes; run it after a change of ``kvmodels/errors.py``.

Rules of this module: everything below the introduction comes from the classes; a test compares the page with it.
"""

from __future__ import annotations

from inspect import cleandoc
from pathlib import Path

from kvmodels.errors import ERRORS, KvModelsError

PAGE = Path(__file__).with_name("errors.md")

INTRODUCTION = """\
# Errors

A program must distinguish errors without parsing their messages. Every error of this library is a `KvModelsError` with
a stable `code`, a fixed `message`, a `hint` that says what to do, and its data as attributes. Printing it shows all
four. Errors can be pickled. Values of fields never appear in them, except keys.

```python
from kvmodels import Database, KvModel, PrimaryKey, Unique, UniqueViolationError


class Member(KvModel, collection="members"):
    id: PrimaryKey[int]
    email: Unique[str]


db = Database("memory://", models=[Member])
members = db[Member]
members.create(id=1, email="ada@example.org")
try:
    members.create(id=2, email="ada@example.org")
except UniqueViolationError as error:
    print(error.code, error.index, error.fields, error.existing_key)
try:
    members.get(3)
except Member.DoesNotExist as error:
    print(error.code, error.lookup)
db.close()
```

```text
KV302 email ('email',) 1
KV201 3
```

Errors of Pydantic are not wrapped: `members.create(id="x")` raises Pydantic's `ValidationError`. Invalid input is
refused before anything is written.

## All errors

The first digit of a code is its group: 1 declarations, 2 lookups of records, 3 constraints, 4 concurrent writers,
5 arguments, 6 limits, 7 queries, 8 schemas, 9 engines. "Base" lists the base classes by which an error can also be
caught: one of this library and, for some errors, one of Python.
"""

TABLE = """
| Code | Error | Base | Cause |
|---|---|---|---|
"""

Kind = type[KvModelsError]


def kinds() -> list[Kind]:
    """Return all error classes in the order of their codes."""
    return sorted(ERRORS, key=lambda kind: kind.code)


def paragraphs(kind: Kind) -> list[str]:
    """Return the paragraphs of the class's docstring, without the sections about arguments."""
    text = cleandoc(kind.__doc__ or "").replace("``", "`")
    parts = [" ".join(part.split()) for part in text.split("\n\n")]
    return [part for part in parts if not part.startswith(("Args:", "Attributes:", "Examples:"))]


def bases(kind: Kind) -> str:
    """Return the base classes, as the table shows them."""
    return ", ".join(f"`{base.__name__}`" for base in kind.__bases__)


def anchor(kind: Kind) -> str:
    """Return the anchor that the documentation gives to the section."""
    return f"{kind.code}-{kind.__name__}".lower()


def row(kind: Kind) -> str:
    """Return one row of the overview."""
    return f"| [`{kind.code}`](#{anchor(kind)}) | `{kind.__name__}` | {bases(kind)} | {paragraphs(kind)[0]} |"


def section(kind: Kind) -> str:
    """Return the section of one class: the cause, the attributes, and the hint."""
    lines = [f"### {kind.code} {kind.__name__}", "", *(f"{part}\n" for part in paragraphs(kind))]
    if kind.attributes:
        lines.append(f"**Attributes:** {', '.join(f'`{name}`' for name in kind.attributes)}.\n")
    below = [f"`{other.__name__}`" for other in kinds() if kind in other.__bases__]
    if below:
        lines.append(f"**Subclasses:** {', '.join(below)}.\n")
    if kind.default_hint:
        lines.append(f"**What to do:** {kind.default_hint}\n")
    elif not below:
        lines.append("**What to do:** Read the hint of the error; it depends on the cause.\n")
    return "\n".join(lines)


def page() -> str:
    """Return the whole page."""
    rows = "".join(f"{row(kind)}\n" for kind in kinds())
    sections = "\n".join(section(kind) for kind in kinds())
    return f"{INTRODUCTION}{TABLE}{rows}\n## Reference\n\n{sections.strip()}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
