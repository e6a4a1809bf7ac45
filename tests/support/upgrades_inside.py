"""What the modules of a commit say of a store beside them. tests/support/upgrades.py runs it with the Python of another
commit's environment, so it imports no more of ours than all of them have.

strict    class.field of stored records -> the values that its decoder takes, where it takes no others
profile   how it read slipway.yaml
database  the views of its monitor's database, which is monitor.sqlite then; null where it had no monitor
"""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

STORED = (
    "launcher.protocol.records",
    "launcher.spec.model",
    "launcher.results.read",
    "eval.episodes.episode",
    "training.data.pairs.store",
    "training.rl.records.entries",
)
VIEWS = ("v_runs", "v_rollouts", "v_verdicts")


def taken(kind: Any) -> set[str]:
    if isinstance(kind, inspect.LiteralType):
        return {value for value in kind.values if isinstance(value, str)}
    if isinstance(kind, inspect.EnumType):
        lenient = "_missing_" in vars(kind.cls)
        return set() if lenient else {member.value for member in kind.cls}
    nested = [getattr(kind, name, ()) for name in ("types", "item_types", "item_type", "key_type", "value_type")]
    found = [part for each in nested for part in (each if isinstance(each, tuple) else (each,))]
    return {value for part in found for value in taken(part)}


def strict() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for module in STORED:
        with suppress(ModuleNotFoundError):
            for kind in vars(importlib.import_module(module)).values():
                if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module:
                    fields = inspect.type_info(kind).fields
                    sets = {f"{kind.__name__}.{field.encode_name}": sorted(taken(field.type)) for field in fields}
                    found.update({name: values for name, values in sets.items() if values})
    return found


def profile() -> Any:
    from launcher.spec.profile import load_profile

    return json.loads(msgspec.json.encode(load_profile(Path.cwd(), None, os.environ), enc_hook=str))


def database() -> dict[str, list[dict[str, Any]]] | None:
    try:
        from launcher.monitor.database import open_database
    except ModuleNotFoundError:
        return None
    from sqlalchemy import text

    from launcher.monitor.ingest import StoreFollower
    from launcher.store.file import FileStore

    engine = open_database("sqlite:///large.sqlite")
    StoreFollower(engine, FileStore(Path("store").resolve())).once(everything=True)
    with engine.connect() as connection:
        asked = {view: connection.execute(text(f"SELECT * FROM {view}")).mappings() for view in VIEWS}
        rows = {view: [dict(row) for row in found] for view, found in asked.items()}
    engine.dispose()
    with closing(sqlite3.connect("large.sqlite")) as connection:
        connection.execute("VACUUM INTO 'monitor.sqlite'")
    return rows


if __name__ == "__main__":
    print(json.dumps({"strict": strict(), "profile": profile(), "database": database()}))
