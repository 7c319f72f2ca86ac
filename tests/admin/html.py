"""A parsed page: the fields of its forms, its texts by class or id, its links and its scripts."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "input", "img", "br", "hr"})


class ParsedPage(HTMLParser):
    """The fields of a page, as a browser would send and show them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.fields: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.scripts: list[dict[str, str | None]] = []
        self.inline_scripts: list[str] = []
        self.handlers: list[str] = []
        self.texts: list[tuple[frozenset[str], str]] = []
        self._stack: list[tuple[str, frozenset[str], dict[str, str | None]]] = []
        self._select: str | None = None
        self._area: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.handlers += [name for name in given if name.startswith("on") or name == "style"]
        names = frozenset((given.get("class") or "").split()) | (
            {f"#{given['id']}"} if given.get("id") else frozenset()
        )
        if tag not in VOID:
            self._stack.append((tag, names, given))
        name = given.get("name")
        if tag == "input" and name and (given.get("type") != "checkbox" or "checked" in given):
            self.fields[name] = given.get("value") or ""
        if tag == "select" and name:
            self._select = name
            self.fields[name] = ""
        if tag == "option" and self._select and "selected" in given:
            self.fields[self._select] = given.get("value") or ""
        if tag == "textarea" and name:
            self._area = name
            self.fields[name] = ""
        if tag == "a" and given.get("id"):
            self.links[str(given["id"])] = given.get("href") or ""
        if tag == "script":
            self.scripts.append(given)

    def handle_data(self, data: str) -> None:
        if self._stack and self._stack[-1][0] == "script" and data.strip():
            self.inline_scripts.append(data)
        if self._area is not None:
            self.fields[self._area] += data
        names = frozenset(name for _, found, _ in self._stack for name in found)
        self.texts.append((names, data))

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area is not None:
            self.fields[self._area] = self.fields[self._area].removeprefix("\n")
            self._area = None
        if tag == "select":
            self._select = None
        while self._stack and self._stack.pop()[0] != tag:
            pass

    def within(self, name: str) -> str:
        """The text inside of the elements with a class or an id (``#id``)."""
        return " ".join(" ".join(text for names, text in self.texts if name in names).split())

    def form(self, **changes: str) -> dict[str, str]:
        """The fields of the forms, some of them changed; ``publisher__city`` is ``f.publisher.city``."""
        return self.fields | {f"f.{name.replace('__', '.')}": text for name, text in changes.items()}
