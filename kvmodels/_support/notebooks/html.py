"""HTML of a result in a notebook: a title, facts, a table or a tree, and a note.

Rules of this module: no other module writes tags. Every text is escaped, and hidden characters in it are shown as
escapes. There is no script, link, image or id, so that a stored value cannot act and two outputs cannot meet. Colours
are those of the page, inherited or from the variables of JupyterLab: a page that is exported in light colours stays
readable for a reader whose system is dark, which ``prefers-color-scheme`` would break.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NamedTuple, Protocol

from kvmodels._support.visible import visible

_LINE: Final = "var(--jp-border-color2,rgba(128,128,128,.35))"

_STYLE: Final = (
    "<style>"
    ".kvmodels-view{font-size:13px;line-height:1.45;max-width:100%;overflow-x:auto;color:inherit}"
    ".kvmodels-view .kv-title{font-weight:600}"
    ".kvmodels-view .kv-dim{opacity:.65}"
    ".kvmodels-view table{border-collapse:collapse;border:0;margin:4px 0;font-size:inherit;display:table;width:auto}"
    f".kvmodels-view th,.kvmodels-view td{{border:0;border-bottom:1px solid {_LINE};padding:2px 8px;"
    "text-align:left!important;vertical-align:top;max-width:48ch;min-width:0;white-space:pre-wrap;overflow-wrap:anywhere;"
    "font-size:inherit}"
    ".kvmodels-view th{font-weight:600;white-space:nowrap}"
    ".kvmodels-view td.kv-number,.kvmodels-view th.kv-number{text-align:right!important}"
    f".kvmodels-view ul{{list-style:none!important;margin:0 0 0 5px;padding:0 0 0 10px;border-left:1px solid {_LINE};"
    "white-space:pre-wrap}"
    ".kvmodels-view progress{vertical-align:middle;margin:0 8px;width:220px}"
    "</style>"
)
"""Important where a rule of JupyterLab is more specific: its cells stand at the right, its inner lists have bullets."""

_IGNORED_BY_MATHJAX: Final = "tex2jax_ignore mathjax_ignore"
"""Classes of an element in which MathJax leaves dollar signs alone, as pandas sets them."""


class Cell(NamedTuple):
    """The text of a cell; numbers stand at the right, and a dim text is not a stored text."""

    text: str
    is_number: bool = False
    is_dim: bool = False


class Table(NamedTuple):
    """The names of the columns, and the cells of each row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


class Tree(Protocol):
    """A node of a tree: its label, named details, and the nodes below."""

    @property
    def label(self) -> str:
        """The title."""
        ...

    @property
    def details(self) -> Sequence[tuple[str, str]]:
        """Names and texts; an empty name is not shown."""
        ...

    @property
    def children(self) -> Sequence[Tree]:
        """The nodes below."""
        ...


class _TextLines(NamedTuple):
    label: str
    details: Sequence[tuple[str, str]]
    children: Sequence[Tree] = ()


Fact = tuple[str, str]
"""A name and a text, such as ``("order", "-height")``."""


def view(
    title: str,
    facts: Iterable[Fact] = (),
    *,
    table: Table | None = None,
    tree: Tree | None = None,
    note: str = "",
) -> str:
    r"""Return the HTML of a result.

    Examples:
        >>> view("User", note="<b>").partition("</style>")[2]
        '<div class="kv-title">User</div><div class="kv-dim">&lt;b&gt;</div></div>'
    """
    parts = [f'<div class="kvmodels-view {_IGNORED_BY_MATHJAX}">{_STYLE}']
    parts += [f'<div class="kv-title">{_text(title)}</div>'] if title else []
    parts += [f'<div><span class="kv-dim">{_text(name)}</span> {_text(text)}</div>' for name, text in facts]
    parts += _table(table) if table is not None and table.columns else []
    parts += _branch(tree) if tree is not None else []
    parts += [f'<div class="kv-dim">{_text(note)}</div>'] if note else []
    return "".join([*parts, "</div>"])


def lines(text: str) -> str:
    """Return the HTML of a text with a line for the title and an indented line for each detail."""
    title, *others = text.splitlines() or [""]
    return view(title, tree=_TextLines("", [("", line) for line in others]) if others else None)


def bar(label: str, done: int, total: int | None, note: str) -> str:
    """Return the HTML of a progress bar; without a total, it moves without an end."""
    share = "" if total is None else f' value="{min(done, total)}" max="{max(total, 1)}"'
    return (
        f'<div class="kvmodels-view {_IGNORED_BY_MATHJAX}">{_STYLE}{_text(label)}<progress{share}></progress>'
        f'<span class="kv-dim">{_text(note)}</span></div>'
    )


def _text(text: str) -> str:
    return escape(visible(text, kept="\n\t"))


def _table(table: Table) -> Iterable[str]:
    numeric = [
        bool(table.rows) and all(row[at].is_number or row[at].is_dim for row in table.rows)
        for at in range(len(table.columns))
    ]
    yield "<table><thead><tr>"
    for name, is_numeric in zip(table.columns, numeric, strict=True):
        yield f"<th{_class(is_number=is_numeric)}>{_text(name)}</th>"
    yield "</tr></thead><tbody>"
    for row in table.rows:
        yield "<tr>"
        for one in row:
            yield f"<td{_class(is_number=one.is_number, is_dim=one.is_dim)}>{_text(one.text)}</td>"
        yield "</tr>"
    yield "</tbody></table>"


def _class(*, is_number: bool, is_dim: bool = False) -> str:
    names = [*(["kv-number"] if is_number else []), *(["kv-dim"] if is_dim else [])]
    return f' class="{" ".join(names)}"' if names else ""


def _branch(branch: Tree) -> Iterable[str]:
    yield f'<div class="kv-title">{_text(branch.label)}</div><ul>' if branch.label else "<ul>"
    for name, text in branch.details:
        named = f'<span class="kv-dim">{_text(name)}:</span> ' if name else ""
        yield f"<li>{named}{_text(text)}</li>"
    for child in branch.children:
        yield "<li>"
        yield from _branch(child)
        yield "</li>"
    yield "</ul>"
