"""AT-SPI's numbers and their names, as libatspi gives them (`switch` came after 2.46): a position is a number."""

from __future__ import annotations

from typing import Final

# one a line would be 130 lines; the order is that of AtspiRole
_ROLES: Final = """
invalid, accelerator label, alert, animation, arrow, calendar, canvas, check box, check menu item, color chooser,
column header, combo box, date editor, desktop icon, desktop frame, dial, dialog, directory pane, drawing area,
file chooser, filler, focus traversable, font chooser, frame, glass pane, html container, icon, image, internal frame,
label, layered pane, list, list item, menu, menu bar, menu item, option pane, page tab, page tab list, panel,
password text, popup menu, progress bar, push button, radio button, radio menu item, root pane, row header, scroll bar,
scroll pane, separator, slider, spin button, split pane, status bar, table, table cell, table column header,
table row header, tearoff menu item, terminal, text, toggle button, tool bar, tool tip, tree, tree table, unknown,
viewport, window, extended, header, footer, paragraph, ruler, application, autocomplete, editbar, embedded, entry,
chart, caption, document frame, heading, page, section, redundant object, form, link, input method window, table row,
tree item, document spreadsheet, document presentation, document text, document web, document email, comment, list box,
grouping, image map, notification, info bar, level bar, title bar, block quote, audio, video, definition, article,
landmark, log, marquee, math, rating, timer, static, math fraction, math root, subscript, superscript,
description list, description term, description value, footnote, content deletion, content insertion, mark, suggestion,
push button menu, switch
"""
ROLES: Final = tuple(" ".join(_ROLES.split()).split(", "))
_STATES: Final = """
invalid active armed busy checked collapsed defunct editable enabled expandable expanded focusable focused
has_tooltip horizontal iconified modal multi_line multiselectable opaque pressed resizable selectable selected
sensitive showing single_line stale transient vertical visible manages_descendants indeterminate required
truncated animated invalid_entry supports_autocompletion selectable_text is_default visited checkable has_popup
read_only
"""
STATES: Final = tuple(_STATES.split())
PASSWORD: Final = "password text"
APPLICATION: Final = "application"


def role_name(number: int) -> str:
    """The role's name; "unknown" for a number that is none."""
    return ROLES[number] if 0 <= number < len(ROLES) else "unknown"


def state_names(words: list[int]) -> tuple[str, ...]:
    """The names of a state set, which comes as 32-bit words, the lowest first."""
    bits = sum((word & 0xFFFFFFFF) << (32 * place) for place, word in enumerate(words[:2]))
    return tuple(name for number, name in enumerate(STATES) if bits >> number & 1)
