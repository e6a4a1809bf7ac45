"""The index by which tries are found: which of them may hold some words, without reading them all.

SQLite      `search`, a table of FTS5 that knows the trigrams of each rollout's texts and not the texts themselves;
            `searched` says whose a document is. A rollout that is written again gets a new document, and the old one is
            nobody's. `renew` makes the index anew once most documents are such.
PostgreSQL  indexes of pg_trgm on the columns, which the server keeps.

Either may be missing (SQLite without FTS5; no right to install the extension): then every text is read. An index is
never the last word: what it names is compared with the texts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    Table,
    column,
    false,
    or_,
    select,
    table,
    text,
    true,
    union,
)
from sqlalchemy.exc import DBAPIError

from launcher.monitor import tables as t

INDEX: Final = "search"
TERMS: Final = "search_terms"  # its trigrams
DOCUMENTS: Final = "searched"
TRIGRAM: Final = 3
MOST_TERMS: Final = 60  # trigrams that are asked for; the texts are compared anyway
MOST_SHORT: Final = 5000  # trigrams that begin with a shorter word
END: Final = "\n\n"
BATCH: Final = 200  # rollouts whose texts are read at once
NEWEST: Final = 400  # rollouts that are read before the index is asked
LEFT_OVER: Final = 10_000  # documents of nobody that are no reason to make the index anew
COLUMNS: Final = {
    "turns": ("answer", "thought", "error"),
    "rollouts": ("instruction", "error", "failure"),
    "tasks": ("task",),
}
# a number is never used again: an old document would become another rollout's
MADE: Final = (
    f"CREATE VIRTUAL TABLE {INDEX} USING fts5(texts, content='', tokenize='trigram case_sensitive 1', detail=none)",
    f"CREATE TABLE {DOCUMENTS} (document INTEGER PRIMARY KEY AUTOINCREMENT, "
    "rollout_id INTEGER NOT NULL UNIQUE REFERENCES rollouts (id) ON DELETE CASCADE)",
    f"CREATE VIRTUAL TABLE {TERMS} USING fts5vocab({INDEX}, row)",
)


def make(connection: Connection) -> bool:
    """Makes the index, with all that is in the database; False where there can be none."""
    try:
        with connection.begin_nested():
            if connection.dialect.name == "postgresql":
                connection.execute(text("CREATE EXTENSION IF NOT EXISTS pg_trgm"))
            else:
                for statement in MADE:
                    connection.execute(text(statement))
    except DBAPIError:
        return False
    if connection.dialect.name == "postgresql":
        for name, columns in COLUMNS.items():
            listed = ", ".join(f"{each} gin_trgm_ops" for each in columns)
            connection.execute(text(f"CREATE INDEX {_gin(name)} ON {name} USING gin ({listed})"))
    else:
        _fill(connection)
    return True


def drop(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":  # the extension may be others' too
        for name in COLUMNS:
            connection.execute(text(f"DROP INDEX IF EXISTS {_gin(name)}"))
        return
    for name in (TERMS, INDEX, DOCUMENTS):
        connection.execute(text(f"DROP TABLE IF EXISTS {name}"))


def renew(connection: Connection) -> None:
    """Makes the index of SQLite anew."""
    connection.execute(text(f"INSERT INTO {INDEX}({INDEX}) VALUES('delete-all')"))
    connection.execute(text(f"DELETE FROM {DOCUMENTS}"))
    _fill(connection)


def renew_if_worn(connection: Connection) -> bool:
    """Makes the index of SQLite anew if most of its documents are nobody's."""
    if connection.dialect.name == "postgresql" or not there(connection):
        return False
    query = f"SELECT (SELECT count(*) FROM {INDEX}_docsize), (SELECT count(*) FROM {DOCUMENTS})"
    made, used = connection.execute(text(query)).one()
    if int(made) <= 2 * int(used) + LEFT_OVER:
        return False
    renew(connection)
    return True


def there(connection: Connection) -> bool:
    """Whether the database has the index."""
    if connection.dialect.name == "postgresql":
        queries = [f"SELECT to_regclass('{_gin(name)}') IS NOT NULL" for name in COLUMNS]
    else:
        queries = [f"SELECT 1 FROM sqlite_master WHERE name = '{DOCUMENTS}'"]
    return all(connection.execute(text(query)).scalar() for query in queries)


def _gin(table: str) -> str:
    return f"ix_{table}_{INDEX}"


def _fill(connection: Connection) -> None:
    ids = [row.id for row in connection.execute(select(t.rollouts.c.id))]
    for at in range(0, len(ids), BATCH):
        add(connection, ids[at : at + BATCH])


def add(connection: Connection, ids: Sequence[int]) -> None:
    """Adds rollouts that have just been written to the index of SQLite."""
    texts = texts_of(connection, ids)
    if not texts:
        return
    connection.execute(text(f"INSERT INTO {DOCUMENTS} (rollout_id) VALUES (:id)"), [{"id": key} for key in texts])
    owners = table(DOCUMENTS, column("document"), column("rollout_id"))
    made = connection.execute(select(owners).where(owners.c.rollout_id.in_(list(texts))))
    # the end makes a trigram of the last letter, too
    documents = [{"document": row.document, "texts": folded("\n".join(texts[row.rollout_id]) + END)} for row in made]
    connection.execute(text(f"INSERT INTO {INDEX} (rowid, texts) VALUES (:document, :texts)"), documents)


def folded(words: str) -> str:
    """In small letters, each by itself: `lower` writes a sigma in two ways."""
    return words.replace("\u03a3", "\u03c3").lower()


def texts_of(connection: Connection, ids: Sequence[int]) -> Mapping[int, list[str]]:
    """Rollout -> the texts that a search reads."""
    found: dict[int, list[str]] = {}
    heads = select(t.rollouts.c.id, t.tasks.c.task, *(t.rollouts.c[name] for name in COLUMNS["rollouts"]))
    heads = heads.join(t.groups, t.groups.c.id == t.rollouts.c.group_id).join(
        t.tasks, t.tasks.c.id == t.groups.c.task_id
    )
    for key, *texts in connection.execute(heads.where(t.rollouts.c.id.in_(ids))):
        found[key] = texts
    turns = select(t.turns.c.rollout_id, *(t.turns.c[name] for name in COLUMNS["turns"]))
    for key, *texts in connection.execute(turns.where(t.turns.c.rollout_id.in_(ids))):
        if key in found:
            found[key] += texts
    return found


def holding(connection: Connection, words: str, most: int, run: int | None = None) -> list[int]:
    """Rollouts one of whose texts has the words in it, in small or capital letters: those of the newest runs first, at
    most `most`."""
    wanted, found, seen = folded(words), list[int](), set[int]()
    everything = select(t.rollouts.c.id).join(t.runs, t.runs.c.id == t.rollouts.c.run_id)
    everything = everything.order_by(t.runs.c.created.desc(), t.rollouts.c.id)
    if run is not None:
        everything = everything.where(t.rollouts.c.run_id == run)
    # words that many tries have are among the newest, and an index would name all of them
    for query in (everything.limit(NEWEST), everything.where(_candidate(connection, words))):
        for part in _parts(connection, query):
            new = [key for key in part if key not in seen]
            seen.update(new)
            texts = texts_of(connection, new)
            found += [key for key in new if any(wanted in folded(each) for each in texts.get(key, ()))]
            if len(found) >= most:
                return found[:most]
        if len(seen) < NEWEST:  # there are no more
            break
    return found


def _parts(connection: Connection, query: Select[Any]) -> Iterator[Sequence[int]]:
    ids: list[int] = [row[0] for row in connection.execute(query)]
    for at in range(0, len(ids), BATCH):
        yield ids[at : at + BATCH]


def _candidate(connection: Connection, words: str) -> ColumnElement[bool]:
    """True of every rollout that has the words, and of some others."""
    if connection.dialect.name == "postgresql":
        return t.rollouts.c.id.in_(_like(words))
    if not there(connection):
        return true()
    wanted = folded(words)
    if len(wanted) >= TRIGRAM:
        terms = [wanted[at : at + TRIGRAM] for at in range(len(wanted) - TRIGRAM + 1)]
        asked = " AND ".join(map(_quoted, dict.fromkeys(terms[:MOST_TERMS])))
    else:
        query = text(f"SELECT term FROM {TERMS} WHERE term >= :first AND term < :after LIMIT :most")
        after = wanted[:-1] + chr(min(ord(wanted[-1]) + 1, sys.maxunicode))
        asked_for = {"first": wanted, "after": after, "most": MOST_SHORT}
        terms = list(connection.execute(query, asked_for).scalars())
        if len(terms) == MOST_SHORT:
            return true()
        asked = " OR ".join(map(_quoted, terms))
        if not terms:
            return false()
    documents = text(f"SELECT rowid FROM {INDEX} WHERE {INDEX} MATCH :asked").bindparams(asked=asked)
    owners = table(DOCUMENTS, column("document"), column("rollout_id"))
    return t.rollouts.c.id.in_(
        select(owners.c.rollout_id).where(owners.c.document.in_(documents.columns(column("rowid"))))
    )


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _like(words: str) -> CompoundSelect[Any]:
    pattern = "%" + words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"

    def has(of: Table) -> ColumnElement[bool]:
        return or_(*(of.c[name].ilike(pattern, escape="\\") for name in COLUMNS[of.name]))

    tasks = select(t.rollouts.c.id).join(t.groups, t.groups.c.id == t.rollouts.c.group_id)
    tasks = tasks.where(t.groups.c.task_id.in_(select(t.tasks.c.id).where(has(t.tasks))))
    return union(
        select(t.turns.c.rollout_id).where(has(t.turns)), select(t.rollouts.c.id).where(has(t.rollouts)), tasks
    )
