"""The index of words: its declaration, its options, and its lookup.

Rules of this module: pure. The document stores the terms of its texts; entries, builds, checks and tests read them
there. Only writes and queries use the tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from math import isfinite
from typing import Any, ClassVar, Final, Never, cast

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.columns.scalars import BYTES, STR
from kvmodels.core.keys import encode_key
from kvmodels.errors import InvalidValueError
from kvmodels.schema.compile.columns import column_of, naming, nearest, stored_source
from kvmodels.schema.declare.annotations import Plain
from kvmodels.schema.declare.declarations import DeclaredIndex
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.definition.definition import (
    Column,
    ColumnSource,
    Computed,
    Document,
    IndexDefinition,
    KindOptions,
    ModelSchema,
)
from kvmodels.schema.definition.kind_lookup import KindLookup, Test
from kvmodels.schema.definition.kinds import ColumnsOf, DeclaringModel, GroupedKind, KindDescription
from kvmodels.schema.definition.values import computed_path, reader, reader_of
from kvmodels.schema.words.conditions import (
    Node,
    condition_of,
    holds,
    named_in,
    needed_terms,
    plain_of,
    terms_decide,
)
from kvmodels.schema.words.search import Search, Written, fields_in, parsed_search
from kvmodels.schema.words.stored_terms import StoredTerms, named_terms, packed_terms, texts_of, unpacked_terms
from kvmodels.schema.words.tokenizer import Tokenizer, TokenizerFunction, languages

COUNT: Final = encode_key((0, "count"))
"""The end of the key of the number of records of a group."""

LENGTH: Final = encode_key((0, "length"))
"""The end of the key of the sum of their lengths."""

HAS_WORD: Final = "has word"
"""The condition of the entries of one term, which the planner adds; no keyword has this name."""

MAX_TERMS: Final = 20_000
"""The maximum number of different words of a record, unless the declaration says another one."""

MOST_KEPT_TERMS: Final = 10_000
"""The maximum number of words whose terms one search keeps."""


class SearchIndex(DeclaredIndex):
    """An index of the words of texts, which finds records by words and ranks them.

    ``search("by_text", 'ordered "key value" stor* -redis')`` returns the records with these words, the best first;
    ``filter(by_text__search="lmdb")`` is the same condition beside others, in any order.

    Args:
        fields: the fields with texts: of type ``str``, or lists of ``str``, or paths such as ``"address.city"``. A
            field that is None has no words.
        language: a language of PyStemmer (``pip install 'kvmodels[search]'``), such as ``"english"``: words with one
            stem are the same word, and its stop words are left out. None: words are compared as they are, folded.
        stop_words: words that are left out, in place of the list of the language.
        tokenizer: returns the words of a text in order, as they are compared, in place of the built-in rules; not with
            ``language`` or ``stop_words``.
        version: a whole number from 1 on, for ``tokenizer`` only; increase it whenever it gives other words.
        weights: how much a word in a field counts for the score; 1 unless given.
        group: the field, or fields, that a query must fix, such as ``"org"``.
        rank: whether statistics for scores are kept. Without them there is no ``search()``, only the lookup, and
            records may expire.
        name: name of the index; by default the names of group and fields, and ``words``, joined by ``_``.
        where: a condition; only records that satisfy it have entries.
        max_fan_out: the maximum number of different words of one record; 20,000 by default.

    Raises:
        ModelDefinitionError: no field, a repeated field, or an invalid option.

    Examples:
        >>> SearchIndex("title", "body", weights={"title": 3}, group="org", name="by_text")
        SearchIndex('title', 'body', name='by_text', group=('org',), language=None, weights={'title': 3.0}, rank=True)
    """

    kind = "search"
    _shown = ("name", "group", "language")

    def __init__(
        self,
        *fields: str,
        language: str | None = None,
        stop_words: Collection[str] | None = None,
        tokenizer: TokenizerFunction | None = None,
        version: int | None = None,
        weights: Mapping[str, float] | None = None,
        group: str | Sequence[str] = (),
        rank: bool = True,
        name: str | None = None,
        where: Expression | None = None,
        max_fan_out: int | None = None,
        **unknown: Never,
    ) -> None:
        self._refuse_unknown(unknown)
        self._declare_grouped(fields, group, name, where, max_fan_out)
        self._refuse_directions(fields)
        self.language = language
        self.stop_words = None if stop_words is None else self._words(stop_words)
        self.tokenizer = tokenizer
        self.version = version
        self.weights = self._weights({} if weights is None else weights)
        self.rank = rank
        self._check()

    def _check(self) -> None:
        if not isinstance(cast("object", self.rank), bool):
            raise self._invalid("rank", self.rank, "rank is True or False.")
        if self.language is not None and self.language not in languages():
            hint = f"The languages are: {', '.join(sorted(languages()))}."
            raise self._invalid("language", self.language, hint)
        if self.tokenizer is None:
            if self.version is not None:
                raise self._useless("version", "It says which words tokenizer= returns: give tokenizer= as well.")
            return
        if not callable(self.tokenizer):
            raise self._invalid("tokenizer", self.tokenizer, "tokenizer is a function from a str to a list of str.")
        if type(self.version) is not int or self.version < 1:
            hint = "Give tokenizer= a version=, a whole number from 1 on; increase it whenever it gives other words."
            raise self._invalid("version", self.version, hint)
        if self.language is not None or self.stop_words is not None:
            option = "stop_words" if self.language is None else "language"
            raise self._useless(option, "A tokenizer returns the words as they are compared: leave one of both out.")

    def _words(self, words: Any) -> tuple[str, ...]:
        is_list = isinstance(words, (tuple, list, set, frozenset))
        given: list[Any] = list(cast("list[Any]", words)) if is_list else [None]
        if not all(isinstance(word, str) for word in given):
            raise self._invalid("stop_words", words, 'Write stop_words=("and", "or"); () keeps every word.')
        return tuple(sorted(given))

    def _weights(self, weights: object) -> dict[str, float]:
        hint = f'Write weights={{"{self.fields[0]}": 3}}: fields of the index, with numbers of 0 or more.'
        if not isinstance(weights, Mapping):
            raise self._invalid("weights", weights, hint)
        given = dict(cast("Mapping[str, Any]", weights))
        for name, weight in given.items():
            is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
            if name not in self.fields or not is_number or not isfinite(weight) or weight < 0:
                raise self._invalid("weights", given, hint)
        return {name: float(weight) for name, weight in given.items()}


@dataclass(frozen=True, slots=True)
class SearchOptions(KindOptions):
    """The options of an index of words.

    Attributes:
        terms: the column of the stored terms.
        fields: the fields with texts, in order.
        language: the language; None: none.
        digest: what the tokenizer makes of a probe; None: no library decides on terms.
        version: the version of a function that returns words; None: the built-in rules.
        ranks: whether statistics are kept.
        tokenizer: the tokenizer of this process; None in a definition that was rebuilt from the catalogue.
        weights: the weight of each field.
    """

    kind = "search"
    key_parts = 1
    fans_out = True

    terms: Column
    fields: tuple[str, ...]
    language: str | None
    digest: str | None
    version: int | None
    ranks: bool
    tokenizer: Tokenizer | None = field(default=None, compare=False, repr=False)
    weights: tuple[float, ...] = field(default=(), compare=False)

    @property
    def has_counters(self) -> bool:  # type: ignore[override]
        """Whether statistics are kept."""
        return self.ranks

    @property
    def columns(self) -> tuple[Column, ...]:
        """The column of the stored terms."""
        return (self.terms,)

    def stored(self) -> dict[str, Any]:
        """Return the fields, and what determines their terms; newer items only if they are used."""
        found: dict[str, Any] = {"fields": list(self.fields), "rank": self.ranks}
        items = {"language": self.language, "digest": self.digest, "version": self.version}
        return {**found, **{name: value for name, value in items.items() if value is not None}}

    def terms_in(
        self, packed: object, unpacked: Callable[[object, int], StoredTerms] = unpacked_terms
    ) -> StoredTerms | None:
        """Return the terms of a stored value; None if every field is None. Raises InvalidValueError.

        ``unpacked``: takes the stored value and the number of fields, and returns the terms or raises ValueError.
        """
        if packed is None:
            return None
        try:
            return unpacked(packed, len(self.fields))
        except ValueError as error:
            raise InvalidValueError(
                "the stored terms of a record are damaged",
                field=self.fields[0],
                type=type(packed).__name__,
                hint="Another program wrote the record: store it again.",
            ) from error


def options_of(definition: IndexDefinition) -> SearchOptions:
    """Return the options of an index of words."""
    options = definition.options
    assert isinstance(options, SearchOptions), "an index of another kind"
    return options


# --- the lookup -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Searched:
    """The operand of a search: as it was given, and its condition on terms."""

    shown: str | Search = field(compare=False)
    node: Node

    def __repr__(self) -> str:
        return short_repr(self.shown)


def searched(definition: IndexDefinition, value: Any) -> Searched:
    """Return the operand for a text or a ``Search``. Raises InvalidValueError for anything else."""
    options = options_of(definition)
    if isinstance(value, str):
        written: Written = parsed_search(value, options.fields)
    elif isinstance(value, Search):
        written = value.written
        unknown = sorted(fields_in(written).difference(options.fields))
        if unknown:
            raise InvalidValueError(
                "a search names a field that its index does not have",
                type=unknown[0],
                hint=f"The index {definition.name!r} has the fields {', '.join(options.fields)}.",
            )
    else:
        raise InvalidValueError(
            "search takes words",
            type=type(value).__name__,
            hint=f'Give a text, {definition.name}__search="key value", or a Search, such as Search.all("key").',
        )
    assert options.tokenizer is not None  # a declared index has one
    return Searched(value, condition_of(written, options.tokenizer, options.fields))


class SearchLookup(KindLookup):
    """The lookup of records whose texts have words."""

    def column(self, definition: IndexDefinition) -> Column:
        """Return a column of texts."""
        return Column(f"words of {definition.name}", STR)

    def operand(self, schema: ModelSchema, definition: IndexDefinition, value: Any) -> Searched:
        """Return the condition of a text or ``Search``."""
        del schema
        return searched(definition, value)

    def test(self, definition: IndexDefinition, operand: Searched) -> Test:
        """Return the test of the stored terms of a document, and of its texts where words must be adjacent."""
        found_in = finder(definition, operand)

        def passes(document: Document) -> bool:
            return found_in(document) is not None

        return passes

    def identity(self, operand: Searched) -> Any:
        """Return the condition as plain data."""
        return plain_of(operand.node)

    def narrows(self, operand: Searched) -> bool:
        """Return whether a record must have a word whose entries do not decide alone."""
        return bool(needed_terms(operand.node)) and not terms_decide(operand.node)


class HasWord(KindLookup):
    """The condition that a record has a term."""

    def operand(self, schema: ModelSchema, definition: IndexDefinition, value: Any) -> str:
        """Return the term."""
        del schema, definition
        term: str = value
        return term

    def test(self, definition: IndexDefinition, operand: str) -> Test:
        """Return the test of the stored terms of a document."""
        options = options_of(definition)
        read = reader_of(options.terms)

        def passes(document: Document) -> bool:
            found = options.terms_in(read(document))
            return found is not None and operand in found.frequencies

        return passes

    def identity(self, operand: str) -> str:
        """Return the term."""
        return operand


def finder(definition: IndexDefinition, operand: Searched) -> Callable[[Document], StoredTerms | None]:
    """Return the function from a document to its terms that a search names; None if it does not satisfy the search.

    It raises InvalidValueError for damaged terms.
    """
    options, node = options_of(definition), operand.node
    read, words_of = reader_of(options.terms), words_reader(options)
    named = [*named_in(node)]
    names = frozenset(one.term.encode() for one in named if not one.prefix)
    beginnings = tuple({one.term.encode() for one in named if one.prefix})

    def found_in(document: Document) -> StoredTerms | None:
        found = options.terms_in(read(document), lambda packed, size: named_terms(packed, size, names, beginnings))
        return found if found is not None and holds(node, found.frequencies, words_of(document)) else None

    return found_in


class _TermOfWord(dict[str, str]):
    """The term of each word, kept while one search tests records, which repeat their words."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> str:
        if len(self) >= MOST_KEPT_TERMS:
            self.clear()
        term = self[word] = self._tokenizer.term(word)
        return term


def words_reader(options: SearchOptions) -> Callable[[Document], Callable[[int], list[list[str]]]]:
    """Return a function from a document to a function from the number of a field to the terms of its texts."""
    readers = [reader(tuple(name.split(".")), many=False) for name in options.fields]
    tokenizer = options.tokenizer
    assert tokenizer is not None  # a declared index has one
    term_of = _TermOfWord(tokenizer).__getitem__

    def words_of(document: Document) -> Callable[[int], list[list[str]]]:
        def terms_at(number: int) -> list[list[str]]:
            texts = texts_of(readers[number](document))
            return [[*map(term_of, tokenizer.words(text))] for text in texts]

        return terms_at

    return words_of


# --- the definition ---------------------------------------------------------------------------------------------


class SearchKind(GroupedKind):
    """The definition of an index of words."""

    declaration: ClassVar[type[DeclaredIndex] | None] = SearchIndex
    shown: ClassVar[str] = "search"
    suffix: ClassVar[tuple[str, ...]] = ("words",)
    max_fan_out: ClassVar[int] = MAX_TERMS
    fans_out: ClassVar[bool] = True
    has_counters: ClassVar[bool] = True
    without_counters: ClassVar[str | None] = "rank=False"
    lookups: ClassVar[Mapping[str, KindLookup]] = {"search": SearchLookup()}
    implied_lookups: ClassVar[Mapping[str, KindLookup]] = {HAS_WORD: HasWord()}

    def line(self, name: str) -> str | None:
        """Return a declaration whose lookups go by a name."""
        return f'SearchIndex("title", name="{name}")' if name.isidentifier() and "__" not in name else None

    def implied(self, lookup: str, operand: Searched) -> tuple[str, Sequence[str]]:
        """Return the condition of entries and its operands: the words that every record of a search has."""
        del lookup
        return HAS_WORD, needed_terms(operand.node)

    def computed(self, declared: SearchIndex, model: str, fields: Mapping[str, Plain]) -> ColumnSource | None:
        """Return the column of the terms; None if a field is refused later."""
        sources = [stored_source(model, fields, name) for name in declared.fields]
        name = self.default_name((), declared) if declared.name is None else declared.name
        tokenizer = Tokenizer(declared.language, declared.stop_words, declared.tokenizer)
        release = declared.version or 1
        made_by = "" if tokenizer.digest is None else f":{declared.language or ''}:{tokenizer.digest}"
        stored_as = f"{name}({','.join(declared.fields)})~{release}{made_by}"

        def terms(*texts: Any) -> bytes | None:
            return packed_terms(tokenizer, texts)

        shown = f"terms of {name}"
        codec = naming(BYTES, model, declared.fields[0])
        computed = Computed(shown, stored_as, declared.fields, terms, codec, takes_none=True)
        is_nullable = all(source is None or source.nullable for source in sources)
        return ColumnSource(shown, computed_path(stored_as), codec, is_nullable, computed=computed)

    def compile(
        self, declared: SearchIndex, columns: tuple[Column, ...], text: str, model: DeclaringModel
    ) -> Mapping[str, Any]:
        """Return the column of the terms and the tokenizer."""
        name = self.default_name(columns, declared) if declared.name is None else declared.name
        if not name.isidentifier() or "__" in name or name == "pk":
            raise model.error(
                "the name of a search index cannot be the keyword of its lookup",
                None,
                text,
                f"Queries write filter({name}__search=...): give it a name that is an identifier without a double "
                'underscore, such as name="by_text".',
            )
        for one in declared.fields:
            _require_text(one, text, model)
        if declared.rank and model.schema.ttl_ms is not None:
            raise model.error(
                "a model whose records expire has a search index with statistics",
                None,
                text,
                "A record that expires is taken out of no statistics: write rank=False, or remove Meta.ttl.",
            )
        source = model.schema.source(f"terms of {name}")
        assert source is not None  # the column was declared before
        assert source.computed is not None
        tokenizer = Tokenizer(declared.language, declared.stop_words, declared.tokenizer)
        return {
            "options": SearchOptions(
                column_of(source),
                declared.fields,
                declared.language,
                tokenizer.digest,
                declared.version,
                declared.rank,
                tokenizer,
                tuple(declared.weights.get(one, 1.0) for one in declared.fields),
            )
        }

    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> SearchOptions:
        """Return the options in a signature."""
        options = stored["options"]
        (terms,) = columns_of(options["columns"])
        fields, ranks = options["fields"], options["rank"]
        found = SearchOptions(
            terms, tuple(fields), options.get("language"), options.get("digest"), options.get("version"), ranks
        )
        known = {"columns", "fields", "rank", "language", "digest", "version"}
        texts = (*fields, *(one for one in (found.language, found.digest) if one is not None))
        is_valid = bool(fields) and all(isinstance(one, str) for one in texts) and isinstance(ranks, bool)
        if not is_valid or set(options) > known or terms.codec.name != "bytes" or terms.many:
            raise ValueError("an index of words of another form")
        return found

    def describe(self, index: IndexDefinition) -> KindDescription:
        """Return the description of an index, by its fields."""
        options = options_of(index)
        shown = {"language": options.language, "rank": False if not options.ranks else None}
        return KindDescription(
            self.shown,
            self.declaration,
            options.fields,
            {name: value for name, value in shown.items() if value is not None},
        )


def _require_text(name: str, text: str, model: DeclaringModel) -> None:
    """Refuse a field that is no text."""
    source = stored_source(model.schema.name, model.fields, name)
    if source is not None:
        is_text = source.codec.name == "str" and source.codec.to_stored is None
        if is_text and not (source.many and "." in name):
            return
    else:
        suggestion = nearest(model.fields, model.schema.computed, name)
        if suggestion != name and name.partition(".")[0] not in model.fields:
            hint = "Use the names of fields of type str, or of lists of str."
            raise model.error("an index names a field that does not exist", name, text, hint, suggestion)
    raise model.error(
        "a field of this type has no words",
        name,
        text,
        "The fields of a search index are of type str, or lists, sets or tuples of str, or None.",
    )


show_public_path(SearchIndex)

KIND: Final = SearchKind()
