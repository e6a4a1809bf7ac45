"""Run by the system's Python on a desktop: prints its accessibility tree as pyatspi, the public library, reads it."""

import json

import pyatspi


def look(node):
    states = sorted(
        pyatspi.stateToString(state).replace("-", "_").replace(" ", "_") for state in node.getState().getStates()
    )
    out = {"role": node.getRoleName(), "name": node.name, "states": states, "children": []}
    if {"showing", "visible"} <= set(states):
        try:
            place = node.queryComponent().getExtents(pyatspi.XY_SCREEN)
            # an object without a place has the size -1
            shown = place.width > 0 and place.height > 0
            out["bounds"] = [place.x, place.y, place.width, place.height] if shown else None
        except NotImplementedError:
            out["bounds"] = None
    try:
        out["text"] = node.queryText().getText(0, -1)
    except NotImplementedError:
        out["text"] = None
    try:
        value = node.queryValue()
        out["value"] = [value.currentValue, value.minimumValue, value.maximumValue, value.minimumIncrement]
    except NotImplementedError:
        out["value"] = None
    out["attributes"] = dict(entry.split(":", 1) for entry in node.getAttributes())
    out["children"] = [look(node.getChildAtIndex(index)) for index in range(node.childCount)]
    return out


print(json.dumps([look(program) for program in pyatspi.Registry.getDesktop(0)]))
