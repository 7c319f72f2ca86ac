"""The output of a command: data on stdout, everything else on stderr.

Rules of this module: nothing else in ``kvmodels.cli`` prints. Text is the same on a terminal and in a pipe, apart from
colours, the width of tables, and CSV, which a terminal shows with escapes. Nothing that is printed drives a terminal:
stored characters that would are escaped. Credentials of URLs are removed from everything that is not data of the store.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvmodels._support.visible import visible, visible_json
from kvmodels.api.progress import bars, measures
from kvmodels.flows.evolution.throttle import SchemaProgress
from kvmodels.flows.tenant_schemas import TenantProgress

Format = Literal["table", "json", "nl", "csv"]

_PASSWORD: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^:/@\s]*:)(?:\S*|[^\n'\"]*)@")
_SECRET_NAME: Final = re.compile(r"(?:password|passfile|sslpassword|access_token)\s*=", re.IGNORECASE)
_SECRET_PARAMETER: Final = re.compile(
    rf"""({_SECRET_NAME.pattern})(?:
        \s*(?P<quote>\\*['"]).*?(?<!\\)(?P=quote)   # as libpq quotes it, also in the repr of a text
        | \s*\\*['"].*                              # without an end
        | (?:(?<=\s=)\s*)?(?![,.;]?(?:\s|$))(?:\\+.|[^&\s'"\\])*
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""With its value. A hint that names the parameter has none: a space or the end of a clause follows."""

_UNLIMITED: Final = 10_000
"""The width of tables in a pipe, where nothing may be wrapped or cut."""

_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
"""The first characters of a text that a spreadsheet executes, also those of full width."""


def redacted(text: str) -> str:
    r"""Return a text without the passwords of the URLs in it.

    Examples:
        >>> redacted("cannot open postgresql://ada:secret@host/shop?password=x")
        'cannot open postgresql://ada:***@host/shop?password=***'
        >>> redacted("Give user= and password=, or set ETCDCTL_PASSWORD.")
        'Give user= and password=, or set ETCDCTL_PASSWORD.'
        >>> redacted("no store \"host=h password='s3cr3t or not' user=ada\"")
        'no store "host=h password=*** user=ada"'
    """
    return _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1***@", text))


def without_password(url: str) -> str:
    """Return a URL that can be printed and still be opened, by a user whose password is known elsewhere.

    Examples:
        >>> without_password("postgresql://ada:secret@host/shop?password=x&application_name=y")
        'postgresql://ada@host/shop?application_name=y'
    """
    base, _, query = _PASSWORD.sub(lambda found: f"{found[1][:-1]}@", url).partition("?")
    kept = [parameter for parameter in query.split("&") if parameter and not _SECRET_NAME.match(parameter)]
    return f"{base}?{'&'.join(kept)}" if kept else base


class Output:
    """Where a command prints.

    Args:
        as_json: print data as JSON.
        silent: print no messages and no progress; errors are still printed.
    """

    __slots__ = ("as_json", "silent")

    def __init__(self, *, as_json: bool = False, silent: bool = False) -> None:
        self.as_json = as_json
        self.silent = silent

    # --- messages, on stderr -----------------------------------------------------------------------------------

    def message(self, text: str) -> None:
        """Print a message about the work, such as a number of records written."""
        if not self.silent:
            _print_line(sys.stderr, visible(redacted(text)))

    def error(self, text: str) -> None:
        """Print an error; ``--silent`` does not suppress it."""
        _print_line(sys.stderr, f"Error: {visible(redacted(text))}")

    @property
    def shows_progress(self) -> bool:
        """Whether stderr is a terminal that may show a progress bar."""
        return not self.silent and sys.stderr.isatty()

    @contextmanager
    def progress(self) -> Generator[bars.Report]:
        """Show a progress bar on stderr if it is a terminal; yield the function that moves it."""
        if not self.shows_progress:
            yield _no_report
            return
        with bars.drawn(Console(file=sys.stderr), transient=True) as report:
            yield report

    # --- data, on stdout ---------------------------------------------------------------------------------------

    def text(self, text: str) -> None:
        """Print data as one or more lines."""
        _print_line(sys.stdout, visible(text))

    def json_line(self, text: str) -> None:
        """Print a line of ``json_text``, which is printed as it is."""
        _print_line(sys.stdout, text)

    def json(self, value: object) -> None:
        """Print one JSON value, indented."""
        self.json_line(json_text(value, indent=2))

    def report(self, text: str, value: object) -> None:
        """Print a result as text, or with ``--json`` its JSON form."""
        if self.as_json:
            self.json_line(redacted(json_text(value, indent=2)))
        else:
            self.text(redacted(text))

    def listing(self, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, none: str) -> None:
        """Print a short list as an aligned table, or with ``--json`` as an array of objects.

        ``none``: the message on stderr if there are no rows; stdout stays empty then.
        """
        found = list(rows)
        if self.as_json:
            self.json(found)
        elif found:
            self.rows(columns, found, "table")
        else:
            self.message(none)

    def rows(
        self,
        columns: Sequence[str],
        rows: Iterable[Mapping[str, Any]],
        form: Format,
        *,
        for_spreadsheets: bool = False,
    ) -> None:
        """Print many rows, as they arrive unless they are a table.

        Args:
            columns: the columns of a table or of CSV, and the order of the keys in JSON.
            rows: values for JSON by column; a column that is absent is empty.
            form: ``json`` is one array, ``nl`` one object a line.
            for_spreadsheets: whether texts in CSV that a spreadsheet would execute get an apostrophe.
        """
        if form == "table":
            self._table(columns, rows)
        elif form == "csv":
            self._csv(columns, rows, for_spreadsheets=for_spreadsheets)
        else:
            lines = (json_text({name: row[name] for name in columns if name in row}) for row in rows)
            _print_json_lines(lines, is_array=form == "json")

    def format_of_rows(self, chosen: Format | None) -> Format:
        """Return the format for many rows: the chosen one, or a table on a terminal and JSON in a pipe."""
        if chosen is not None:
            return chosen
        return "table" if sys.stdout.isatty() and not self.as_json else "json"

    def _table(self, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in columns:
            table.add_column(Text(visible(column, kept="")), overflow="fold")
        for row in rows:
            table.add_row(*(Text(visible(cell(row.get(column)), kept="")) for column in columns))
        if sys.stdout.isatty():
            Console(file=sys.stdout).print(table)
            return
        drawing = Console(file=io.StringIO(), width=_UNLIMITED, color_system=None)
        with drawing.capture() as captured:
            drawing.print(table)
        self.text("\n".join(line.rstrip() for line in captured.get().splitlines()))

    def _csv(self, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, for_spreadsheets: bool) -> None:
        shown = visible if sys.stdout.isatty() else str  # a program reads the values as they are
        quoted = _without_formula if for_spreadsheets else cell
        writer = csv.writer(_Lines())
        writer.writerow([shown(quoted(column)) for column in columns])
        for row in rows:
            writer.writerow([shown(quoted(row.get(column))) for column in columns])


def of_schema_change(report: bars.Report) -> Callable[[SchemaProgress], None]:
    """Return the function for ``progress=`` of schema changes and checks that moves a progress bar."""

    def listen(progress: SchemaProgress) -> None:
        report(*measures.measured("", progress))

    return listen


def of_tenants(report: bars.Report, work: str) -> Callable[[TenantProgress], None]:
    """Return the function for ``progress=`` of work in all tenants that moves a progress bar."""

    def listen(progress: TenantProgress) -> None:
        report(*measures.measured(work, progress))

    return listen


def moment(milliseconds: int | None) -> str | None:
    """Return a time of the store as ISO 8601 in UTC; None for None.

    Examples:
        >>> moment(1_767_323_045_250)
        '2026-01-02T03:04:05.250Z'
    """
    if milliseconds is None:
        return None
    time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cell(value: Any) -> str:
    """Return a value as the text of one cell: text as it is, nothing for None, JSON for everything else.

    Examples:
        >>> cell("a"), cell(None), cell(True), cell([1, "b"])
        ('a', '', 'true', '[1, "b"]')
    """
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


def _without_formula(value: Any) -> str:
    """Return a value as the text of one cell, in which no spreadsheet finds a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else cell(value)


def json_text(value: object, *, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """Return a value as JSON that a terminal shows, in ASCII where stdout has another encoding than UTF-8."""
    ascii_only = codecs.lookup(sys.stdout.encoding or "utf-8").name != "utf-8"
    return visible_json(json.dumps(value, indent=indent, separators=separators, ensure_ascii=ascii_only))


def _print_json_lines(lines: Iterator[str], *, is_array: bool) -> None:
    if not is_array:
        for line in lines:
            _print_line(sys.stdout, line)
        return
    before = "["
    for line in lines:
        _write(sys.stdout, f"{before}{line}")
        before = ",\n "
    _print_line(sys.stdout, "[]" if before == "[" else "]")


class _Lines:
    """A file for ``csv.writer`` that writes lines to stdout.

    The writer ends them with CR and LF, because it puts a cell in quotes only for a character that ends its lines.
    """

    def write(self, line: str) -> None:
        _print_line(sys.stdout, line.removesuffix("\r\n"))


def _print_line(stream: Any, text: str) -> None:
    _write(stream, text + "\n")
    if stream is sys.stderr:
        stream.flush()


def _write(stream: Any, text: str) -> None:
    # A lone surrogate or a character that the terminal's encoding lacks must not end the command.
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _no_report(_label: str, _done: int, _total: int | None) -> None:
    return None
