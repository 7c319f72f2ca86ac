"""The output of a result in a notebook, parsed."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

ALLOWED = {"div", "span", "style", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "progress"}


class Output(HTMLParser):
    """The text and the cells of an output; refuses tags and attributes that a stored value could have written."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.text = ""
        self.rows: list[list[str]] = []
        self._inside: list[str] = []
        self.feed(result if isinstance(result, str) else result._repr_html_())
        assert not self._inside

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self.rows[0] if self.rows else []

    def cells(self, column: int) -> list[str]:
        """The texts of a column, without its name."""
        return [row[column] for row in self.rows[1:]]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        assert {name for name, _ in attrs} <= ({"value", "max"} if tag == "progress" else {"class"})
        self._inside.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        if tag in ("div", "li"):
            self.text += "\n"

    def handle_endtag(self, tag: str) -> None:
        assert self._inside.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._inside[-1] == "style":
            return
        self.text += data
        if self._inside[-1] in ("th", "td"):
            self.rows[-1][-1] += data
