"""All states, by their templates."""

from tests.data.apart import bookings, folders, further, kit, office, pages, several, shell, texts, writing

assert all((bookings, folders, further, office, pages, several, shell, texts, writing))
STATES = kit.STATES
