"""All templates, in the order in which tasks are taken from them."""

from __future__ import annotations

import itertools
from typing import Final

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.template import Instance
from eval.benchmarks.linux_desktop.templates import (
    calc,
    calc_looks,
    calc_sheets,
    editor_documents,
    editor_lines,
    editor_more,
    galculator,
    mousepad,
    settings,
    thunar,
    thunar_files,
    thunar_order,
    together,
    together_numbers,
    together_pictures,
    together_terminal,
    viewer,
    web_board,
    web_forms,
    web_mail,
    web_pages,
    web_rooms,
    web_shop,
    web_table,
    writer,
    xterm,
    xterm_files,
    xterm_texts,
)
from eval.environments.splits import Split

MODULES: Final = (
    mousepad,
    galculator,
    thunar,
    xterm,
    viewer,
    calc,
    editor_lines,
    settings,
    thunar_files,
    thunar_order,
    xterm_files,
    xterm_texts,
    calc_sheets,
    together,
    together_terminal,
    together_pictures,
    together_numbers,
    editor_more,
    editor_documents,
    calc_looks,
    writer,
    web_shop,
    web_mail,
    web_pages,
    web_board,
    web_forms,
    web_rooms,
    web_table,
)
# one of each module in turn, so that a few tasks are of many programs
_TURNS: Final = itertools.zip_longest(*(module.TEMPLATES for module in MODULES))
TEMPLATES: Final[dict[str, type[Instance]]] = {
    template.about.name: template for turn in _TURNS for template in turn if template is not None
}


def instance(name: str, split: Split, seed: int) -> Instance:
    """The instance of a template that is drawn from a seed."""
    return TEMPLATES[name].draw(WordPool(name, split, seed))
