"""Defaults that do not belong in a job: the store, the backend, places of secrets, prices, the image catalogue.

A field has the value of the first of these that sets it: the command line, SLIPWAY_* variables, the project's
slipway.yaml (in the working folder or a parent), the user's ($XDG_CONFIG_HOME/slipway/slipway.yaml). Within a file, a
named profile wins over the file's top level. The values that a run uses are written into the resolved job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from launcher.spec.backends import backends, traits
from launcher.spec.check.notify import NOTIFY, NoticeChannel
from launcher.spec.check.schema import BLOCKS, IMAGE
from launcher.spec.images.catalogue import REGISTRY, load, own_release, references, released
from launcher.spec.secrets.disclosure import OF_STORE, of_store
from launcher.spec.values.problems import Problems, near, show
from launcher.spec.values.source import Route, YamlDocument, read_file
from launcher.spec.values.structures import LABEL_KEY, LABEL_VALUE, PLACES, Field, Forms, MapOf, Struct
from launcher.spec.values.types import MONEY, Choice, Context, Text, refuse_nul, refuse_tokens

FILE: Final = "slipway.yaml"
_PINNED: Final = Text(
    "an image with a digest", IMAGE.pattern.replace(")?", ")"), "registry/name@sha256:<64 hex digits>"
)


class NoPrice(msgspec.Struct, frozen=True):
    """0, which needs no currency."""

    name: str = "0"

    def check(self, value: Any, route: Route, at: Context) -> Any:
        return value if value == 0 else MONEY.check(value, route, at)

    def schema(self) -> dict[str, Any]:
        return {"const": 0}


PRICE: Final = Forms(
    "an amount and a currency, or 0",
    {str: (MONEY, lambda money: money), int: (NoPrice(), lambda zero: (0.0, ""))},
    {},
)
_FIELDS: Final = (
    Field(
        "store",
        Text("a URL or a path", r".+"),
        "where every run is kept; a path is relative to this file",
        "in your home",
    ),
    Field("backend", Choice(tuple(backends())), "the backend of jobs that name none", "local"),
    Field("secrets", PLACES, "where secrets are kept: NAME: place", "`local`: launcher secrets set NAME"),
    Field("images", MapOf(Text(), _PINNED), "images of your own by name: registry/name@sha256:...", "none"),
    Field(
        "catalogue",
        Text("a release of Slipway", r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", "MAJOR.MINOR.PATCH"),
        "the release whose images jobs get by name. Keep it, and an upgrade of the launcher computes nothing again",
        "the installed launcher's",
    ),
    Field(
        "image_registry",
        Text("host/path", REGISTRY, "HOST[:PORT][/PATH]"),
        "a mirror of the releases' images: stands in place of their registry",
        "the releases' own registry",
    ),
    Field(
        "prices",
        MapOf(Text(), PRICE),
        "per hour: a GPU by name or `gpu`, a core (`cpu`), a rank (`node`), a machine by its type; for a month: a GiB "
        "(`storage`, `disk`)",
        "none",
    ),
    Field("labels", MapOf(LABEL_KEY, LABEL_VALUE), "labels of every job", "none"),
    Field("notify", NOTIFY, "who is told when runs end, fail, collapse or near their budget: NAME: channel", "nobody"),
    *(
        Field(name, each.settings or each.block, f"defaults for jobs on {name}", "none")
        for name, each in backends().items()
    ),
)
PROFILE: Final = Struct(
    "a profile",
    *_FIELDS,
    Field("profiles", MapOf(Text(), Struct("a profile", *_FIELDS)), "named profiles: --profile NAME", "none"),
)
_MERGED: Final = ("secrets", "images", "prices", "labels", "notify", *BLOCKS)  # mappings that are merged key by key
_PLAIN: Final = ("backend", "secrets", "images", "catalogue", "prices", "labels")  # as `Profile` has them
VARIABLES: Final = {"SLIPWAY_STORE": "store", "SLIPWAY_BACKEND": "backend"}


class LocalSettings(msgspec.Struct, frozen=True):
    """This machine's own settings, part of no job. None: everything that the machine has."""

    state: Path
    cpus: float | None = None
    memory: int | None = None
    gpus: int | None = None
    ignore: tuple[str, ...] = ()  # distributions that are no part of a run's environment
    python: str = ""  # the path of the Python that commands find; empty: the launcher's


class Profile(msgspec.Struct, frozen=True):
    """The settings that apply, merged from the project, the user and the environment."""

    store: str  # absolute URL, no slash at the end
    local: LocalSettings
    backend: str = "local"
    secrets: Mapping[str, str] = {}
    images: Mapping[str, str] = {}
    catalogue: str = ""  # the release that the images come from which nobody else names
    prices: Mapping[str, tuple[float, str]] = {}
    labels: Mapping[str, str] = {}
    blocks: Mapping[str, Mapping[str, Any]] = {}
    origins: Mapping[str, str] = {}  # "store", "secrets.HF_TOKEN" -> where it was set
    notify: Mapping[str, NoticeChannel] = {}
    read_in: tuple[str, str] = ("", "")  # the folder in which it was read, and the name that was asked for
    own_folders: tuple[Path, ...] = ()  # where the launcher keeps this user's cache, state and settings

    @property
    def local_state(self) -> Path:
        """The folder of the local backend's supervisor."""
        return self.local.state

    def backend_options(self, name: str) -> dict[str, Any]:
        """The `options` of `launcher.backends.base.backend(name, options)`: this machine's settings, never a job's."""
        if traits(name).on_this_machine:  # one supervisor, one queue
            own = self.local
            told = {"notify": self.read_in} if self.notify else {}  # who reads it there finds the same channels
            ignored: dict[str, Any] = {"ignore": own.ignore} if own.ignore else {}
            ignored |= {"python": own.python} if own.python else {}
            return {"state": own.state, "cpus": own.cpus, "memory": own.memory, "gpus": own.gpus, **ignored, **told}
        return dict(self.blocks.get(name, {}))


def load_profile(cwd: Path, name: str | None, environ: Mapping[str, str], store: str | None = None) -> Profile:
    """The profile that applies in a folder. `store` comes from the command line. Raises BadInput with every problem."""
    home = Path(environ.get("HOME") or Path.home())
    problems = Problems()
    settings: dict[str, Any] = {}
    origins: dict[str, str] = {}
    name = name or environ.get("SLIPWAY_PROFILE") or None
    known: set[str] = set()
    # from the weakest to the strongest
    if (listed := _catalogue(cwd)) is not None:
        _read_catalogue(listed, cwd, settings, origins)
    for path in (_user_file(environ, home), project_file(cwd)):
        if path is not None:
            known |= _read(path, name, cwd, home, problems, settings, origins)
    if name is not None and name not in known and not problems.found:
        problems.add("--profile", 0, 0, name, f"no such profile{near(name, known)}", ", ".join(sorted(known)) or "none")
    for variable, key in VARIABLES.items():
        if environ.get(variable):
            settings[key], origins[key] = environ[variable], variable
    if store:
        settings["store"], origins["store"] = store, "--store"
    if "backend" in settings and settings["backend"] not in backends():
        what = f"`{settings['backend']}` is not a backend{near(settings['backend'], backends())}"
        problems.add(origins["backend"], 0, 0, "backend", what, ", ".join(backends()))
    _read_release(settings, origins, problems)
    unknown = _unknown_store(settings["store"]) if "store" in settings else None
    if credentials := of_store(settings.get("store", "")):
        problems.add(origins["store"], 0, 0, "store", credentials, OF_STORE)
    elif unknown is not None:
        problems.add(origins["store"], 0, 0, "store", unknown, "file://, s3://, gs://, az:// or a path")
    problems.check()
    state = Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "slipway"
    settings.setdefault("store", f"file://{state / 'store'}")
    local = {"state": state / "local", **settings.get("local", {})}
    return Profile(
        store=absolute_store(settings["store"], cwd, home),
        local=LocalSettings(**{**local, "ignore": tuple(local.get("ignore", ()))}),
        blocks={
            name: settings[name] for name, each in backends().items() if each.settings is None and name in settings
        },
        origins=origins,
        notify=msgspec.convert(settings.get("notify", {}), dict[str, NoticeChannel]),
        read_in=(os.path.abspath(cwd), name or ""),  # noqa: PTH100 - as absolute_store
        own_folders=own_folders(home, environ),
        **{key: settings[key] for key in _PLAIN if key in settings},
    )


def own_folders(home: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    places = (
        ("XDG_CACHE_HOME", ".cache"),
        ("XDG_STATE_HOME", ".local/state"),
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_DATA_HOME", ".local/share"),
    )
    return tuple(Path(environ.get(variable) or home / below) / "slipway" for variable, below in places)


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of slipway.yaml."""
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "title": "Slipway profile", **PROFILE.schema()}


def _unknown_store(text: str) -> str | None:
    """What is wrong with a store's URL; None for a good one."""
    scheme, separator, rest = text.partition("://")
    if separator and scheme not in ("file", "s3", "gs", "az"):
        return f"`{scheme}://` is not known"
    if not text or (separator and not rest.strip("/")):
        return f"{show(text)} names no place"
    return None


def absolute_store(text: str, base: Path, home: Path) -> str:
    """A path or a file:// URL as an absolute URL; any other URL without slashes at its end."""
    if "://" in text and not text.startswith("file://"):
        return text.rstrip("/")
    path = text.removeprefix("file://")
    full = home / path[2:] if path.startswith("~/") else base / path
    return f"file://{os.path.abspath(full)}"  # noqa: PTH100 - resolve() would follow symbolic links


def _user_file(environ: Mapping[str, str], home: Path) -> Path | None:
    path = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "slipway" / FILE
    return path if path.is_file() else None


def project_file(cwd: Path) -> Path | None:
    """The slipway.yaml that applies in a folder besides the user's own; None without one."""
    for folder in (cwd, *cwd.parents):
        if (folder / FILE).is_file():
            return folder / FILE
    return None


def _catalogue(cwd: Path) -> Path | None:
    """images/catalogue.yaml in the nearest folder, from `cwd` upwards, that has one; None without one."""
    paths = (folder / "images" / "catalogue.yaml" for folder in (cwd, *cwd.parents))
    return next((path for path in paths if path.is_file()), None)


def _read_catalogue(path: Path, cwd: Path, settings: dict[str, Any], origins: dict[str, str]) -> None:
    shown = os.path.relpath(path, cwd) if path.is_relative_to(cwd) else str(path)
    settings["images"] = {name: entry.reference for name, entry in load(path).items()}
    origins.update({f"images.{name}": shown for name in settings["images"]})


def _read_release(settings: dict[str, Any], origins: dict[str, str], problems: Problems) -> None:
    """Puts the images of a release below those that are named in any other way."""
    version = settings["catalogue"] = settings.get("catalogue") or own_release()
    if not version:
        return
    if version not in (known := released()):
        file, _, line = origins["catalogue"].rpartition(":")
        allowed = ", ".join(known) or "none: this launcher has no images of a release"
        problems.add(file, int(line), 1, "catalogue", f"this launcher knows no release `{version}`", allowed)
        return
    listed = references(known[version], settings.get("image_registry", ""))
    settings["images"] = {**listed, **settings.get("images", {})}
    for name in listed:
        origins.setdefault(f"images.{name}", f"the catalogue of {version}")


def _read(
    path: Path,
    name: str | None,
    cwd: Path,
    home: Path,
    problems: Problems,
    settings: dict[str, Any],
    origins: dict[str, str],
) -> set[str]:
    """Merges one file into the settings; returns the names of its profiles."""
    shown = os.path.relpath(path, cwd) if path.is_relative_to(cwd) else str(path)
    documents = read_file(path, shown, problems)
    if len(documents) > 1:
        problems.add(shown, 0, 0, "", "several documents", "one")
    known: set[str] = set()
    for document in documents[:1]:
        before = len(problems.found)
        at = Context(document, problems)
        values = PROFILE.check(document.value, (), at)
        refuse_tokens(at, document.value)
        refuse_nul(at, document.value)
        if len(problems.found) > before:
            profiles = document.value.get("profiles") if type(document.value) is dict else None
            known |= set(profiles) if type(profiles) is dict else set()
            continue
        named = values.pop("profiles", {})
        known |= set(named)
        _merge(values, (), document, path.parent, home, settings, origins)
        if name is not None and name in named:
            _merge(named[name], ("profiles", name), document, path.parent, home, settings, origins)
    return known


def _merge(
    values: dict[str, Any],
    route: tuple[str, ...],
    document: YamlDocument,
    base: Path,
    home: Path,
    settings: dict[str, Any],
    origins: dict[str, str],
) -> None:
    for key, value in values.items():
        if key in _MERGED:
            settings[key] = {**settings.get(key, {}), **value}
            for name in value:
                origins[f"{key}.{name}"] = _origin(document, (*route, key, name))
        else:
            settings[key] = value
            origins[key] = _origin(document, (*route, key))
    if "store" in values:
        # made absolute here, because the path is relative to this file
        settings["store"] = absolute_store(values["store"], base, home)
    for field, kind in (("state", Path), ("python", str)):
        if field in values.get("local", {}):
            path = values["local"][field]
            settings["local"][field] = kind(home / path[2:] if path.startswith("~/") else base / path)


def _origin(document: YamlDocument, route: tuple[str, ...]) -> str:
    file, line, _ = document.place(route)
    return f"{file}:{line}"
