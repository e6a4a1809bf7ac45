"""All states, by their templates."""

from tests.data.apart import (
    after_documents,
    after_files,
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
assert all((fresh_documents, fresh_files, after_documents, after_files))
STATES, FRESH, AFTER = kit.STATES, kit.FRESH, kit.AFTER
