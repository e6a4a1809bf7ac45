"""All states, by their templates."""

from tests.data.apart import (
    bookings,
    folders,
    fresh_documents,
    fresh_files,
    further,
    kit,
    office,
    pages,
    several,
    shell,
    texts,
    writing,
)

assert all((bookings, folders, further, office, pages, several, shell, texts, writing))
assert all((fresh_documents, fresh_files))
STATES, FRESH = kit.STATES, kit.FRESH
