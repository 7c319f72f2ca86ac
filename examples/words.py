"""490 words and their meanings: the most similar ones of a topic, by word vectors of a real model.

``words.tsv``, beside this file, has a topic, a word and its 50 numbers in each row. The numbers are those of GloVe 6B
50d, word vectors of the Stanford NLP Group from Wikipedia 2014 and Gigaword 5, in the public domain under the PDDL 1.0.
Topics and words were chosen by hand; ``tools/word_vectors.py`` wrote the table once.
The index needs numpy: ``pip install 'kvmodels[vector]'``.

Rules of this module: mypy and pyright accept it in strict mode, without a cast and without an ignored line; a test
runs both of them, and compares every line that it prints.
"""

from __future__ import annotations

from math import dist, hypot
from pathlib import Path

from kvmodels import Database, Indexed, KvModel, PrimaryKey, Q, Vector, VectorIndex

TABLE = Path(__file__).with_name("words.tsv")
BATCH = 100
COMPARED = 20
"""The answers for every 20th word are compared with a look at all others."""
COUNTRIES = ("italy", "japan", "poland", "kenya")


def show(what: str, found: object) -> None:
    """One line of the output: what was asked, and what came out."""
    print(f"{what:<28} {found}")


class Word(KvModel, collection="words"):
    """A word of one topic; the vectors of similar words point in similar directions."""

    text: PrimaryKey[str]
    topic: Indexed[str]
    meaning: Vector

    class Meta:
        indexes = (
            VectorIndex("meaning", dim=50, store="int8", name="by_meaning"),
            VectorIndex("meaning", dim=50, metric="l2", group="topic", name="in_topic"),
        )


def table() -> list[Word]:
    """Return the words of the table."""
    rows = [line.split("\t") for line in TABLE.read_text("utf-8").splitlines()]
    return [
        Word(text=text, topic=topic, meaning=Vector([float(one) for one in numbers.split()]))
        for topic, text, numbers in rows
    ]


def enter(db: Database) -> None:
    """Store the words."""
    words = table()
    for start in range(0, len(words), BATCH):
        db[Word].bulk_create(words[start : start + BATCH])


def meaning(db: Database, text: str) -> Vector:
    """Return the vector of a word."""
    return db[Word].get(text).meaning


def similar(db: Database, vector: Vector, number: int, condition: Q | None = None) -> list[str]:
    """Return the most similar of all words, or of those that meet a condition."""
    ranked = db[Word].similar("by_meaning", vector)
    return [hit.record.text for hit in (ranked if condition is None else ranked.filter(condition))[:number]]


def replaced(db: Database, text: str, left: str, entered: str) -> Vector:
    """Return the vector of a word, less another one, plus a third: paris, less france, plus italy."""
    vectors = [meaning(db, one) for one in (text, left, entered)]
    return Vector([one - less + more for one, less, more in zip(*vectors, strict=True)])


def one_topic(db: Database) -> None:
    """Find similar words, and those of one topic: a full list, however far away they are."""
    show("like tea", similar(db, meaning(db, "tea"), 4))
    show("like piano", similar(db, meaning(db, "piano"), 4))
    show("persons like piano", similar(db, meaning(db, "piano"), 4, Q(topic="profession")))
    show("animals like milk", similar(db, meaning(db, "milk"), 4, Q(topic="animal")))
    show("sports like snow", similar(db, meaning(db, "snow"), 4, Q(topic="sport")))
    chosen = Q(topic__in=["food", "drink"], text__gte="s")
    show("late in the alphabet", similar(db, meaning(db, "wine"), 4, chosen))
    for hit in db[Word].filter(topic="feeling").similar("in_topic", meaning(db, "storm"))[:2]:
        show("feelings like storm", [hit.record.text, round(hit.distance, 3)])


def countries(db: Database) -> None:
    """Find a capital by another one; only the rows of the capitals are read."""
    for country in COUNTRIES:
        guessed = replaced(db, "paris", "france", country)
        show(f"the paris of {country}", similar(db, guessed, 1, Q(topic="capital")))
    ranked = db[Word].filter(topic="capital").similar("by_meaning", replaced(db, "paris", "france", "italy"))
    analysis = ranked[:1].explain(analyze=True).analysis
    assert analysis is not None
    show("keys and vectors read", analysis.rows)


def angle(one: Vector, other: Vector) -> float:
    """Return the distance of two directions."""
    lengths = hypot(*one), hypot(*other)
    return dist([number / lengths[0] for number in one], [number / lengths[1] for number in other])


def tour(url: str = "memory://words") -> None:
    """Ask one store for similar words, and compare the answers with a look at every word."""
    with Database(url, models=[Word]) as db:
        enter(db)
        one_topic(db)
        countries(db)
        with db.transaction() as tx:
            made = replaced(db, "king", "man", "woman")
            tx[Word].create(text="king - man + woman", topic="person", meaning=made)
            near = tx[Word].filter(topic="person").similar("by_meaning", made)
            show("in the transaction", [hit.record.text for hit in near[:3]])
        stored = db[Word].to_list()
        equal = True
        for word in stored[::COMPARED]:
            nearest = sorted(stored, key=lambda one: angle(one.meaning, word.meaning))
            equal = equal and similar(db, word.meaning, 5) == [one.text for one in nearest[:5]]
        show(f"{len(stored[::COMPARED])} answers equal a look", equal)
        show("consistent", db.check().ok)


if __name__ == "__main__":
    tour()
