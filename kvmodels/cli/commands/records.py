"""``rows``, ``search``, ``count``, ``explain``, ``insert`` and ``export``: the records of a model.

Rules of this module: conditions are text for ``parse_lookups``. A database that is given as a URL has no classes: its
records are then printed as they are stored, without conditions and orders.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer
from pydantic_core import to_jsonable_python

from kvmodels._support.naming import key_argument
from kvmodels._support.secret_values import masked, revealed, secret_fields, without_values
from kvmodels.api._sync.queryset import QuerySet
from kvmodels.cli.command_line import CommandLine
from kvmodels.cli.commands.schema import Model, as_data
from kvmodels.cli.failures import FOUND, CommandError, exit_code_of
from kvmodels.cli.output import Format
from kvmodels.cli.record_files import FileForm, checked_records
from kvmodels.cli.store import OpenStore
from kvmodels.cli.wording import in_commands
from kvmodels.codecs.typed_json import value_to_json
from kvmodels.errors import AlreadyExistsError, IntegrityError, InvalidValueError
from kvmodels.flows.describe.catalogue import CollectionDescription
from kvmodels.query.planning.ranked import names_of_ranking_indexes
from kvmodels.query.text_lookups import ORDER, parse_lookups
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.polymorphic import collection_schema
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.definition.values import RESERVED_FIELD
from kvmodels.schema.describe.describe import describe

Conditions = Annotated[
    list[str] | None,
    typer.Argument(metavar="FIELD[__LOOKUP]=VALUE", help="Conditions, such as age__gte=18.", show_default=False),
]
Orders = Annotated[
    list[str] | None, typer.Option("--order", "-o", metavar="[-]FIELD", help="Order by a field, - for descending.")
]
SortInMemory = Annotated[
    int | None,
    typer.Option("--sort-in-memory", metavar="N", min=1, help="Sort up to N records if no index has the order."),
]
Scan = Annotated[bool, typer.Option("--scan", help="Allow a query that no index serves.")]
AsTable = Annotated[bool, typer.Option("--table", help="Print a table.")]
AsLines = Annotated[bool, typer.Option("--nl", help="Print one JSON object a line.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
ForSpreadsheets = Annotated[
    bool,
    typer.Option(
        "--for-spreadsheets", help="With --csv: an apostrophe before texts that are formulas to a spreadsheet."
    ),
]

ShowEncrypted = Annotated[
    bool, typer.Option("--show-encrypted", help="Print the values of encrypted fields, which are hidden otherwise.")
]
ToParquet = Annotated[
    str | None, typer.Option("--parquet", metavar="FILE", help="Write a new Parquet file; - is stdout.")
]
Columns = Annotated[
    list[str] | None, typer.Option("--column", metavar="FIELD", help="With --parquet: write only these fields.")
]

BATCH = 500
SCORE = "score"
"""The name of the score in the output of a search."""


def rows(
    line: CommandLine,
    *,
    model: Model,
    conditions: Conditions = None,
    order: Orders = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Print at most this many.")] = 20,
    after: Annotated[str | None, typer.Option("--after", metavar="CURSOR", help="Continue after a page.")] = None,
    scan: Scan = False,
    sort_in_memory: SortInMemory = None,
    table: AsTable = False,
    nl: AsLines = False,
    csv: AsCsv = False,
    for_spreadsheets: ForSpreadsheets = False,
    show_encrypted: ShowEncrypted = False,
) -> None:
    """Print records, one page at a time.

    The cursor of the next page is printed on stderr. On a terminal the format is a table, in a pipe JSON.
    """
    form = line.output.format_of_rows(_format(line, table=table, nl=nl, csv=csv, for_spreadsheets=for_spreadsheets))
    with line.open() as store, _printed(line, form, shows=show_encrypted) as printed:
        if store.models:
            chosen = store.model(model)
            query = _query(store, chosen, conditions, order, scan=scan, sort=sort_in_memory)
            page = query.page(size=limit, after=after)
            found, cursor = [printed.record(one) for one in page.items], page.next_cursor
        else:
            collection = _collection(store, model, conditions, order)
            documents, cursor = _stored_page(store, collection.name, limit, after)
            found = [printed.document(one, collection) for one in documents]
        line.output.rows(_columns(store, model, found), found, form, for_spreadsheets=for_spreadsheets)
        if cursor is not None:
            line.output.message(f"more: --after {cursor}")


def search(
    line: CommandLine,
    *,
    model: Model,
    words: Annotated[str, typer.Argument(metavar="WORDS", help="Words, as of a search box; in quotes if several.")],
    conditions: Conditions = None,
    index: Annotated[str | None, typer.Option("--index", metavar="NAME", help="The search index, if several.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Print at most this many.")] = 20,
    after: Annotated[str | None, typer.Option("--after", metavar="CURSOR", help="Continue after a page.")] = None,
    table: AsTable = False,
    nl: AsLines = False,
    csv: AsCsv = False,
    for_spreadsheets: ForSpreadsheets = False,
    show_encrypted: ShowEncrypted = False,
) -> None:
    """Print the records with these words, the best first.

    Words before which a minus stands must not occur; write -- before the model if the first one has a minus. The cursor
    of the next page is printed on stderr.
    """
    form = line.output.format_of_rows(_format(line, table=table, nl=nl, csv=csv, for_spreadsheets=for_spreadsheets))
    with line.open() as store, _printed(line, form, shows=show_encrypted) as printed:
        chosen = store.model(model)
        query = _query(store, chosen, conditions, None, scan=False).search(_search_index(chosen, index), words)
        page = query.page(size=limit, after=after)
        found = [{SCORE: round(hit.score, 4), **printed.record(hit.record)} for hit in page.items]
        line.output.rows([SCORE, *_columns(store, model, ())], found, form, for_spreadsheets=for_spreadsheets)
        if page.next_cursor is not None:
            line.output.message(f"more: --after {page.next_cursor}")


def count(line: CommandLine, *, model: Model, conditions: Conditions = None, scan: Scan = False) -> None:
    """Print the number of records."""
    with line.open() as store:
        if store.models:
            number = _query(store, store.model(model), conditions, None, scan=scan).count()
        else:
            number = store.kv.count((_collection(store, model, conditions, None).name,))
        line.output.report(str(number), number)


def explain(
    line: CommandLine,
    *,
    model: Model,
    conditions: Conditions = None,
    order: Orders = None,
    scan: Scan = False,
    sort_in_memory: SortInMemory = None,
    analyze: Annotated[bool, typer.Option("--analyze", help="Run the query, and show what it read.")] = False,
) -> None:
    """Show which indexes a query reads."""
    with line.open() as store:
        query = _query(store, store.model(model), conditions, order, scan=scan, sort=sort_in_memory)
        plan = query.explain(analyze=analyze)
        line.output.report(str(plan), as_data(plan))


def export(
    line: CommandLine,
    *,
    model: Model,
    conditions: Conditions = None,
    order: Orders = None,
    scan: Scan = False,
    sort_in_memory: SortInMemory = None,
    table: AsTable = False,
    nl: AsLines = False,
    csv: AsCsv = False,
    for_spreadsheets: ForSpreadsheets = False,
    show_encrypted: ShowEncrypted = False,
    parquet: ToParquet = None,
    columns: Columns = None,
) -> None:
    """Print all records, by default one JSON object a line.

    Records are printed as they are read. The command insert reads the lines, JSON or CSV again: secrets are in them as
    clear text, and masked in a table. Values of encrypted fields are printed only with --show-encrypted. A Parquet file
    is new, has the types of the fields, and no secrets: --column names the other fields.
    """
    if parquet is not None:
        _require_no_format(line, table=table, nl=nl, csv=csv, for_spreadsheets=for_spreadsheets)
        with line.open() as store:
            chosen = store.model(model)
            named = _parquet_columns(chosen, columns, shows=show_encrypted)
            query = _query(store, chosen, conditions, order, scan=scan, sort=sort_in_memory)
            target = typer.get_binary_stream("stdout") if parquet == "-" else parquet
            with line.output.progress() as progress:
                written = query.to_parquet(
                    target, columns=named, progress=lambda rows: progress(f"export {model}", rows, None)
                )
        line.output.message(f"{_count(written)} written")
        return
    if columns:
        raise CommandError("--column needs --parquet", hint="It names the columns of a Parquet file.")
    form = _format(line, table=table, nl=nl, csv=csv, for_spreadsheets=for_spreadsheets) or "nl"
    with line.open() as store, _printed(line, form, shows=show_encrypted) as printed:
        if store.models:
            query = _query(store, store.model(model), conditions, order, scan=scan, sort=sort_in_memory)
            found: Iterator[dict[str, Any]] = (printed.record(one) for one in query.iterator(batch_size=BATCH))
        else:
            collection = _collection(store, model, conditions, order)
            found = (printed.document(one, collection) for one in _stored(store, collection.name))
        line.output.rows(_columns(store, model, ()), found, form, for_spreadsheets=for_spreadsheets)


def insert(
    line: CommandLine,
    *,
    model: Model,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON, JSON lines, CSV or Parquet; - is stdin.")],
    csv: Annotated[bool, typer.Option("--csv", help="The file is CSV.")] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="The file is Parquet.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite records with the same primary key.")] = False,
) -> None:
    """Insert records from a file.

    A file of another program needs the names of the fields in its first line, or as its columns. The whole file is
    validated before the first record is written. Records are written in batches of 500, each of which
    is one commit. Exit code 1: a record exists already, or breaks a unique index.
    """
    if csv and parquet:
        raise CommandError("more than one format was given", hint="Choose one of --csv and --parquet.")
    written = 0
    form: FileForm = "csv" if csv else "parquet" if parquet else "json"
    with line.open(writes=True) as store:
        chosen = store.model(model)
        with checked_records(file, chosen, form) as records, line.output.progress() as progress:
            for batch in _batches(records):
                places = [place for place, _ in batch]
                try:
                    store.db[chosen].bulk_create(
                        [record for _, record in batch], on_conflict="update" if replace else "error"
                    )
                except (IntegrityError, InvalidValueError) as error:
                    if written:
                        line.output.message(f"{_count(written)} of earlier batches written")
                    raise _placed(error, places) from error
                written += len(batch)
                progress(f"insert {model}", written, None)
        line.output.message(f"{_count(written)} written")


def _search_index(model: type[KvModel], name: str | None) -> str:
    """Return the name of the search index of a model. Raises CommandError unless it is one, or was given."""
    known = names_of_ranking_indexes(collection_schema(model), "search")
    if name in known:
        return name
    if name is None and len(known) == 1:
        return known[0]
    if not known:
        hint = f'Add SearchIndex("FIELD", name="by_text") to the indexes of {model.__name__}.Meta.'
        raise CommandError(f"{model.__name__} has no search index", hint=hint)
    problem = "has several search indexes" if name is None else f"has no search index {name!r}"
    raise CommandError(f"{model.__name__} {problem}", hint=f"Choose one with --index: {', '.join(known)}.")


def _count(records: int) -> str:
    return f"{records} record{'' if records == 1 else 's'}"


def _placed(error: IntegrityError | InvalidValueError, places: Sequence[str]) -> CommandError:
    """Return the error of a batch, with the line of the file in place of the position in the batch."""
    if isinstance(error, AlreadyExistsError):
        error.hint = "Use --replace to overwrite records."
    place = "" if error.position is None else f"{places[error.position]}: "
    error.position = None
    return CommandError(in_commands(f"{place}{error}"), exit_code=exit_code_of(error))


def _format(line: CommandLine, *, table: bool, nl: bool, csv: bool, for_spreadsheets: bool) -> Format | None:
    options: dict[Format, bool] = {"table": table, "nl": nl, "csv": csv, "json": line.output.as_json}
    chosen: list[Format] = [name for name, given in options.items() if given]
    if len(chosen) > 1:
        raise CommandError("more than one format was given", hint="Choose one of --table, --json, --nl and --csv.")
    if for_spreadsheets and not csv:
        raise CommandError("--for-spreadsheets needs --csv", hint="It changes texts that begin like a formula.")
    return chosen[0] if chosen else None


def _require_no_format(line: CommandLine, *, table: bool, nl: bool, csv: bool, for_spreadsheets: bool) -> None:
    if _format(line, table=table, nl=nl, csv=csv, for_spreadsheets=for_spreadsheets) is not None:
        raise CommandError("more than one format was given", hint="Leave out the others beside --parquet.")


def _parquet_columns(model: type[KvModel], columns: Sequence[str] | None, *, shows: bool) -> Sequence[str] | None:
    """Return the columns of a Parquet file, by default all fields but those that are encrypted. Raises CommandError."""
    encrypted = () if shows else schema_of(model).encrypted
    for name in columns or ():
        if name in encrypted:
            raise CommandError(
                f"{name} is encrypted, and a Parquet file would hold it as clear text", hint="Add --show-encrypted."
            )
    if columns or not encrypted:
        return columns or None
    return [name for name in model.model_fields if name not in encrypted]


def _query(
    store: OpenStore,
    model: type[KvModel],
    conditions: Iterable[str] | None,
    order: Iterable[str] | None,
    *,
    scan: bool,
    sort: int | None = None,
) -> QuerySet[Any]:
    parameters = [_condition(word) for word in conditions or ()]
    parsed = parse_lookups(model, [*parameters, *((ORDER, column) for column in order or ())])
    query = store.db[model].filter(parsed.where)
    query = query.order_by(*parsed.order_by) if parsed.order_by else query
    query = query.allow_scan().sort_in_memory() if scan else query
    return query if sort is None else query.sort_in_memory(limit=sort)


def _condition(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise CommandError(
            f"{word!r} is not a condition", hint="Write FIELD=VALUE, such as genre=essay or age__gte=18."
        )
    if name == ORDER:
        raise CommandError("an order is not a condition", hint="Write -o FIELD.")
    return name, value


class _Printed:
    """The JSON forms of the records of a command; tables mask secrets, and other formats have them as clear text."""

    def __init__(self, *, masks: bool, shows: bool) -> None:
        self.masks = masks
        self.shows = shows
        self.secrets: dict[str, None] = {}

    def record(self, record: KvModel) -> dict[str, Any]:
        """Return the JSON form of a record without the values of encrypted fields; raises CommandError without one."""
        shown = self._form(record)
        return shown if self.shows else without_values(shown, schema_of(type(record)).encrypted)

    def _form(self, record: KvModel) -> dict[str, Any]:
        try:
            shown, secrets = (record.model_dump(mode="json"), []) if self.masks else revealed(record)
        except ValueError as error:
            if self.masks:
                plain = to_jsonable_python(record.model_dump(), bytes_mode="base64", serialize_unknown=True)
                return cast("dict[str, Any]", plain)
            key = tuple(getattr(record, column.name) for column in describe(type(record)).primary_key)
            raise CommandError(
                f"a record cannot be printed as JSON: {type(record).__name__} {key_argument(key)}: {error}",
                hint="Print a --table, or use kvmodels dump. A class with model_config = ConfigDict(ser_json_bytes="
                "'base64', val_json_bytes='base64') can hold all bytes.",
                exit_code=FOUND,
            ) from error
        self.secrets |= dict.fromkeys(secrets)
        return shown

    def document(self, document: dict[str, Any], collection: CollectionDescription) -> dict[str, Any]:
        """Return a stored document, whose secrets are those that the catalogue tells."""
        secrets = [name for name in secret_fields(collection.fields) if document.get(name)]
        if self.masks:
            return masked(document, secrets)
        self.secrets |= dict.fromkeys(secrets)
        return document


@contextmanager
def _printed(line: CommandLine, form: Format, *, shows: bool) -> Generator[_Printed]:
    """Yield the printer of the records in a format; afterwards say which of their fields were secrets."""
    printed = _Printed(masks=form == "table", shows=shows)
    yield printed
    if printed.secrets:
        line.output.message(f"warning: the output has secrets as clear text: {', '.join(printed.secrets)}")


def _columns(store: OpenStore, model: str, found: Iterable[dict[str, Any]]) -> list[str]:
    """Return the fields in the order of the class or catalogue, then others that records on the page have."""
    if store.models:
        fields = list(store.model(model).model_fields)
    else:
        fields = [name for one in store.db.collections() if one.name == model for name in one.fields]
    return list(dict.fromkeys([*fields, *(name for record in found for name in record)]))


# --- without classes --------------------------------------------------------------------------------------------


def _collection(store: OpenStore, name: str, conditions: object, order: object) -> CollectionDescription:
    """Return a collection of the catalogue; conditions and orders need its class."""
    if conditions or order:
        store.require_models()
    known = {one.name: one for one in store.db.collections()}
    if name not in known:
        there = f"There are: {', '.join(known)}." if known else "The store has no collections."
        raise CommandError(f"no collection is called {name!r}", hint=there)
    return known[name]


def _stored_page(
    store: OpenStore, collection: str, limit: int, after: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    listing = store.kv.list((collection,), limit=limit, cursor=after)
    found = [_document(entry.value) for entry in listing]
    if len(found) < limit:
        return found, None
    is_last = next(iter(store.kv.list((collection,), limit=1, cursor=listing.cursor, keys_only=True)), None) is None
    return found, None if is_last else listing.cursor


def _stored(store: OpenStore, collection: str) -> Iterator[dict[str, Any]]:
    return (_document(entry.value) for entry in store.kv.list((collection,)))


def _document(value: Any) -> dict[str, Any]:
    return {name: value_to_json(one) for name, one in value.items() if name != RESERVED_FIELD}


def _batches(records: Iterator[tuple[str, KvModel]]) -> Iterator[list[tuple[str, KvModel]]]:
    batch: list[tuple[str, KvModel]] = []
    for record in records:
        batch.append(record)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
