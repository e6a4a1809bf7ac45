"""All states, by their templates."""

from tests.data.apart import bookings, folders, kit, office, pages, several, shell, texts, writing

assert all((bookings, folders, office, pages, several, shell, texts, writing))
STATES = kit.STATES
