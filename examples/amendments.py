"""The Bill of Rights in a search box: words, phrases and parts of titles, the best match first.

Rules of this module: mypy and pyright accept it in strict mode, without a cast and without an ignored line; a test
runs both of them, and compares every line that it prints. Whatever a user types is a search, and never an error.
"""

from __future__ import annotations

import re

from kvmodels import Database, F, KvModel, PrimaryKey, RankedQuery, Search, SearchHit, SearchIndex, TrigramIndex

TEXTS = {
    "Religion, speech, press, assembly, petition": (
        "Congress shall make no law respecting an establishment of religion, or prohibiting the free exercise "
        "thereof; or abridging the freedom of speech, or of the press; or the right of the people peaceably "
        "to assemble, and to petition the Government for a redress of grievances."
    ),
    "Right to bear arms": (
        "A well regulated Militia, being necessary to the security of a free State, the right of the people "
        "to keep and bear Arms, shall not be infringed."
    ),
    "Quartering of soldiers": (
        "No Soldier shall, in time of peace be quartered in any house, without the consent of the Owner, nor "
        "in time of war, but in a manner to be prescribed by law."
    ),
    "Search and seizure": (
        "The right of the people to be secure in their persons, houses, papers, and effects, against "
        "unreasonable searches and seizures, shall not be violated, and no Warrants shall issue, but upon "
        "probable cause, supported by Oath or affirmation, and particularly describing the place to be "
        "searched, and the persons or things to be seized."
    ),
    "Grand jury, double jeopardy, due process": (
        "No person shall be held to answer for a capital, or otherwise infamous crime, unless on a "
        "presentment or indictment of a Grand Jury, except in cases arising in the land or naval forces, or "
        "in the Militia, when in actual service in time of War or public danger; nor shall any person be "
        "subject for the same offence to be twice put in jeopardy of life or limb; nor shall be compelled in "
        "any criminal case to be a witness against himself, nor be deprived of life, liberty, or property, "
        "without due process of law; nor shall private property be taken for public use, without just "
        "compensation."
    ),
    "Criminal trial": (
        "In all criminal prosecutions, the accused shall enjoy the right to a speedy and public trial, by an "
        "impartial jury of the State and district wherein the crime shall have been committed, which district "
        "shall have been previously ascertained by law, and to be informed of the nature and cause of the "
        "accusation; to be confronted with the witnesses against him; to have compulsory process for "
        "obtaining witnesses in his favor, and to have the Assistance of Counsel for his defence."
    ),
    "Civil trial by jury": (
        "In Suits at common law, where the value in controversy shall exceed twenty dollars, the right of "
        "trial by jury shall be preserved, and no fact tried by a jury, shall be otherwise re-examined in any "
        "Court of the United States, than according to the rules of the common law."
    ),
    "Bail, fines, punishments": (
        "Excessive bail shall not be required, nor excessive fines imposed, nor cruel and unusual punishments "
        "inflicted."
    ),
    "Rights of the people": (
        "The enumeration in the Constitution, of certain rights, shall not be construed to deny or disparage "
        "others retained by the people."
    ),
    "Powers of the states": (
        "The powers not delegated to the United States by the Constitution, nor prohibited by it to the "
        "States, are reserved to the States respectively, or to the people."
    ),
}
"""The text of each amendment by its title."""
TYPED = (
    "trial jury",
    '"due process of law"',
    "people -arms",
    "search* OR seiz*",
    "title:rights",
    'jury OR "cruel and unusual',
    '((?!"-*:',
)
"""Texts that users type into the search box, the last one by mistake."""


def show(what: str, found: object) -> None:
    """One line of the output: what was asked, and what came out."""
    print(f"{what:<28} {found}")


class Amendment(KvModel, collection="amendments"):
    """One amendment. A word in the title counts three times as much as one in the text."""

    number: PrimaryKey[int]
    title: str
    text: str
    reads: int = 0

    class Meta:
        indexes = (
            SearchIndex("title", "text", weights={"title": 3}, name="words"),
            TrigramIndex("title", name="titles"),
        )


def enter(db: Database) -> None:
    """Store the amendments."""
    found = [Amendment(number=number, title=title, text=text) for number, (title, text) in enumerate(TEXTS.items(), 1)]
    db[Amendment].bulk_create(found)


def searched(db: Database, typed: str) -> RankedQuery[SearchHit[Amendment]]:
    """Return the ranked query for a text from the search box; nothing is read before it is asked for something."""
    return db[Amendment].search("words", typed)


def numbers(found: list[Amendment]) -> list[int]:
    """Return the numbers of amendments."""
    return [one.number for one in found]


def box(db: Database) -> None:
    """Answer what users type."""
    for typed in TYPED:
        show(typed, [(hit.record.number, round(hit.score, 2)) for hit in searched(db, typed)[:3]])
    best = searched(db, "unreasonable searches").first()
    if best is not None:
        show("the best as HTML", best.highlight("text", words=8))
    first = searched(db, "people").page(2)
    show("two a page", [[hit.record.number for hit in first], first.has_more])
    second = searched(db, "people").page(2, after=first.next_cursor)
    show("the next two", [[hit.record.number for hit in second], second.has_more])


def others(db: Database) -> None:
    """Use words as a condition beside others, and find parts of titles."""
    amendments = db[Amendment]
    jury = amendments.filter(words__search="jury")
    show("raised the reads of", jury.update(reads=F("reads") + 1).written)
    show("read, without 'trial'", numbers(amendments.filter(words__search="jury -trial", reads__gt=0).to_list()))
    show("composed by a program", numbers(amendments.filter(words__search=Search.phrase("common law")).to_list()))
    show("a part of a title", numbers(amendments.filter(title__icontains="EECH").to_list()))
    show("the end of a title", numbers(amendments.filter(title__endswith="jury").to_list()))
    show("its cost", amendments.filter(title__icontains="jeopardy").explain(analyze=True).analysis)


def tour(url: str = "memory://amendments") -> None:
    """Search one store, and compare what words find with a look at every text."""
    with Database(url, models=[Amendment]) as db:
        enter(db)
        box(db)
        others(db)
        with db.transaction() as tx:
            tx[Amendment].create(number=27, title="Pay of Congress", text="No law, varying the compensation...")
            show("in the transaction", [hit.record.number for hit in tx[Amendment].search("words", "compensation")])
        stored = db[Amendment].to_list()
        texts = {one.number: set(re.findall(r"\w+", f"{one.title} {one.text}".casefold())) for one in stored}
        words = sorted(set[str]().union(*texts.values()))
        for_each = [(word, {hit.record.number for hit in searched(db, word)}) for word in words]
        equal = all(found == {number for number, has in texts.items() if word in has} for word, found in for_each)
        show(f"{len(words)} words equal a look", equal)
        show("consistent", db.check().ok)


if __name__ == "__main__":
    tour()
