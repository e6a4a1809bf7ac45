"""Finds the runs of all names on a command line, with the display names and edges of their groups."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import msgspec

from launcher import safe_text
from launcher.errors import BadInput, NotFound
from launcher.selection.naming import Found, find
from launcher.store.base import Store


class Selection(msgspec.Struct, frozen=True):
    """The selected runs, each once, in the order of the names. `groups` are the groups among the names."""

    runs: tuple[str, ...]
    names: Mapping[str, str] = {}  # run -> its display name in the group
    edges: Mapping[str, tuple[str, ...]] = {}
    groups: tuple[str, ...] = ()
    group_of: Mapping[str, str] = {}  # run -> the group through which the user named it

    def only(self, name: str) -> str:
        """The run, for a verb that takes exactly one. Raises BadInput that lists the runs when `name` means several."""
        if len(self.runs) == 1:
            return self.runs[0]
        known = [f"{called} ({run})" if (called := self.names.get(run, run)) != run else run for run in self.runs]
        raise BadInput(
            safe_text.line(f"{name} is {len(self.runs)} runs and this verb takes one; name one of: {', '.join(known)}")
        )


def say(text: str) -> None:
    """Prints a line for the user on standard error."""
    print(safe_text.line(f"launcher: {text}"), file=sys.stderr)


def select(store: Store, wanted: Sequence[str], *, say: Callable[[str], None] = say) -> Selection:
    """Returns the runs of all names. A name is a run, a group, a job (its newest run, or all runs of its matrix), the
    unique beginning of a run's or a group's id, or `GROUP/NAME` for a job of a group. `say` gets one line for each name
    where the launcher chose among several.

    Raises NotFound or BadInput.
    """
    runs: list[str] = []
    names: dict[str, str] = {}
    edges: dict[str, tuple[str, ...]] = {}
    groups: list[str] = []
    group_of: dict[str, str] = {}
    for name in wanted:
        head, slash, member = name.partition("/")
        lookup = find(store, head)
        if slash:
            chosen = _members(head, member, lookup)
        else:
            chosen = lookup.runs
            if lookup.told:
                say(lookup.told)
        # a run named by its id is displayed by its id, unless a group has a name for it
        names |= {run: called for run, called in lookup.names.items() if lookup.group is not None or "[" in called}
        if lookup.group is not None:
            group_of |= dict.fromkeys(chosen, lookup.group.id)
        if lookup.group is not None and lookup.whole:
            edges |= lookup.group.edges
            groups.append(lookup.group.id)
        runs += chosen
    return Selection(tuple(dict.fromkeys(runs)), names, edges, tuple(dict.fromkeys(groups)), group_of)


def _members(group: str, member: str, found: Found) -> tuple[str, ...]:
    if found.group is None or not found.whole:
        raise BadInput(f"{group} is not a group, so it has no job `{member}`")
    chosen = found.group.members(member)
    if not chosen:
        known = ", ".join(sorted(found.names.get(run, run) for run in found.runs))
        raise NotFound(f"{group} has no job `{member}`; it has {known}")
    return chosen
