"""One variant of one job and a profile -> a ResolvedJob, but for its inputs from other jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from launcher.errors import BadInput
from launcher.spec.backends import merged, portable, traits, without_defaults
from launcher.spec.check.schema import JOB
from launcher.spec.model import (
    Alternative,
    Budget,
    Code,
    Image,
    Limits,
    Output,
    Ready,
    ResolvedJob,
    Resources,
    Role,
    Timing,
    named_backends,
)
from launcher.spec.profile import Profile
from launcher.spec.read.load import LoadedJob, Variant
from launcher.spec.resolve.matrix_inputs import plain_input
from launcher.spec.values.problems import Problems, near
from launcher.spec.values.source import Route
from launcher.spec.values.structures import LOCAL_PLACE
from launcher.spec.values.types import Context

if TYPE_CHECKING:
    from launcher.spec.code.venv import VenvArchive

MAIN: Final = "main"
# Fields of a job that `Resolver.job` changes. Any other field of both the schema and ResolvedJob is copied as written,
# so a new field needs no line here.
CHANGED: Final = frozenset(
    ("name", "backend", "code", "inputs", "outputs", "secrets", "limits", "labels", "roles", "fresh", "timing")
)
PLAIN: Final = tuple(name for name in ResolvedJob.__struct_fields__ if name in JOB.fields and name not in CHANGED)


class Resolver:
    """Resolves one variant of one job, except its inputs from other jobs."""

    def __init__(
        self,
        loaded: LoadedJob,
        variant: Variant,
        profile: Profile,
        environment: str,
        backend: str | None,
        fresh: int,
        problems: Problems,
    ) -> None:
        self.loaded = loaded
        self.values = variant.values
        # problems of resolving are collected apart from those of loading
        self.at = Context(variant.at.document, problems, variant.at.sources)
        self.profile = profile
        self.environment = environment
        names = (backend,) if backend else named_backends(self.values.get("backend")) or (profile.backend,)
        self.backend, self.others = names[0], names[1:]
        self.traits = traits(self.backend)
        self.fresh = fresh
        self.environments: list[VenvArchive] = []

    def job(self) -> ResolvedJob:
        values = self.values
        outputs = {
            name: Output(**{"match": "checkpoint-*", **output} if output.get("kind") == "checkpoints" else output)
            for name, output in values.get("outputs", {}).items()
        }
        roles = self.roles()
        others = [self.alternative(index, roles) for index in range(1, 1 + len(self.others))]
        # a budget holds wherever the run goes, so it counts at the price of the dearest backend
        limits = [self.limits(roles), *(each for _, each in others)]
        return ResolvedJob(
            name=values["name"],
            roles=roles,
            store=self.profile.store,
            backend=self.backend,
            code=Code(self.loaded.code.digest()) if self.loaded.code is not None else None,
            inputs={name: plain_input(i) for name, i in values.get("inputs", {}).items() if "job" not in i},
            outputs=outputs,
            secrets=self.secrets(),
            limits=max(limits, key=lambda each: each.budget.price if each.budget is not None else 0.0),
            labels={**self.profile.labels, **values.get("labels", {})},
            options=self.options(),
            alternatives=tuple(alternative for alternative, _ in others),
            fresh=self.fresh or values.get("fresh", 0),
            timing=Timing(**values.get("timing", {})),
            **{name: values[name] for name in PLAIN if name in values},
        )

    def alternative(self, index: int, roles: Mapping[str, Role]) -> tuple[Alternative, Limits]:
        """The job's backend of that place in its list, and the limits with its price. What it computes there must be
        the same work."""
        there, names = copy(self), (self.backend, *self.others)
        there.backend = self.others[index - 1]
        there.traits = traits(there.backend)
        if there.traits.runs_images != self.traits.runs_images:
            without = there.backend if self.traits.runs_images else self.backend
            message = f"a run can't move between {self.backend} and {there.backend}: {without} runs no images"
            self.at.problem(("backend", index), message, "backends that compute the same")
        elif there.traits.on_this_machine and any(traits(name).on_this_machine for name in names[:index]):
            message = f"{there.backend} shares this machine's queue with another backend of the list"
            self.at.problem(("backend", index), message, "one backend of this machine")
        elif there.roles() != roles:
            message = f"{there.backend} would run another image than {self.backend}"
            self.at.problem(("backend", index), message, "an image with a digest")
        return Alternative(there.backend, there.options(), there.secrets()), there.limits(roles)

    def options(self) -> dict[str, Any]:
        """The options of the backend's block; the job's override the profile's. `secrets` reads the places of
        secrets."""
        merged = self.merged()
        merged.pop("secrets", None)
        return portable(self.backend, without_defaults(self.backend, merged))

    def merged(self) -> dict[str, Any]:
        return merged(self.backend, self.profile.blocks.get(self.backend, {}), self.values.get(self.backend, {}))

    def environment_of_lock(self) -> str:
        """`sha256:...` of the archive that the block's `venv` names; empty, with problems, where it cannot be used. A
        path of the profile is relative to the profile's file."""
        from launcher.spec.code.venv import archive, lock_faults

        given, route = self.merged()["venv"], (self.backend, "venv", "lock")
        folder, at = self.loaded.folder, self.at
        file, line, column = at.place(route)
        if "venv" not in self.values.get(self.backend, {}):
            origin = self.profile.origins.get(f"{self.backend}.venv", "")
            file, _, number = origin.rpartition(":")
            folder, line, column = Path(self.profile.read_in[0], file).parent, int(number or 0), 1
        made = archive(folder / given["lock"], given["python"])
        try:
            faults = lock_faults(made.text)
            for fault in faults:
                shown = os.path.relpath(made.lock) if made.lock.is_relative_to(Path.cwd()) else str(made.lock)
                place = (shown, fault.line, 1) if fault.line else (file, line, column)
                at.problems.add(*place, ".".join(route), fault.message, fault.allowed)
            if not faults:
                self.environments.append(made)
                return f"sha256:{made.digest()}"
        except BadInput as error:
            at.problems.add(
                file, line, column, ".".join(route), str(error), "a file of `uv pip compile --generate-hashes`"
            )
        return ""

    def secrets(self) -> dict[str, str]:
        own = self.values.get(self.backend, {}).get("secrets", {})
        block = self.profile.blocks.get(self.backend, {}).get("secrets", {})
        places = {**self.profile.secrets, **block, **own}
        out = {}
        for index, name in enumerate(self.values.get("secrets", ())):
            place = places.get(name) or (LOCAL_PLACE if self.traits.on_this_machine else None)
            if place is None:
                message = f"nothing says where `{name}` is kept on {self.backend}"
                self.at.problem(
                    ("secrets", index), message, f"`{self.backend}: {{secrets: {{{name}: ...}}}}` or the profile"
                )
            else:
                out[name] = place
        return out

    def roles(self) -> dict[str, Role]:
        values = self.values
        declared: Mapping[str, Any] = values.get("roles") or {MAIN: {}}
        single = "roles" not in values
        out = {}
        for name, role in declared.items():
            resources = {**values.get("resources", {}), **role.get("resources", {})}
            nodes = resources.pop("nodes", 1)
            if "gpu" in resources:
                resources.setdefault("gpus", 1)
            out[name] = Role(
                command=tuple(role.get("command") or values.get("command") or ()),
                image=self.image(name, role),
                leader=len(declared) > 1 and role.get("leader", False),
                replicas=nodes if single else role.get("replicas", 1),
                env={**values.get("env", {}), **role.get("env", {})},
                resources=Resources(**resources),
                ports=role.get("ports", {}),
                ready=Ready(**role["ready"]) if "ready" in role else None,
                needs=tuple(role.get("needs", ())),
                restarts=role.get("restarts", 0),
            )
        return out

    def image(self, name: str, role: Mapping[str, Any]) -> Image:
        text: str = role.get("image") or self.values.get("image") or ""
        route: Route = ("roles", name, "image") if "image" in role else ("image",)
        if not self.traits.runs_images:
            return Image(reference=text, environment=self.environment)
        reference, _, digest = text.partition("@")
        if not digest and text in self.profile.images:
            reference, _, digest = self.profile.images[text].partition("@")
        if not text:
            if self.traits.venv and "venv" in self.merged():
                return Image(environment=self.environment_of_lock())
            route = ("roles", name) if "roles" in self.values else ()
            allowed = f"an image, or `{self.backend}: {{venv: {{lock: ..., python: ...}}}}`" if self.traits.venv else ""
            self.at.problem((*route, "image"), f"is missing: {self.backend} runs images", allowed)
        elif not digest and self.traits.needs_digest:
            bare = "/" not in text and ":" not in text
            known = self.profile.images
            message = f"`{text}` is not in the catalogue{near(text, known)}" if bare else f"`{text}` has no digest"
            listed = "".join(f"{entry}, " for entry in sorted(known))
            self.at.problem(route, message, f"{listed}registry/name@sha256:<64 hex digits>")
        elif not digest:
            from launcher.spec.images.definition import own_version

            reference = f"{text}:{version}" if (version := own_version(text)) else text
        return Image(reference=reference, digest=digest)

    def limits(self, roles: Mapping[str, Role]) -> Limits:
        limits = dict(self.values.get("limits", {}))
        if self.traits.bills and "deadline" not in limits:
            self.at.problem(
                ("limits", "deadline"), f"is missing: {self.backend} bills until a run ends", "a duration: 6h"
            )
        if "budget" in limits:
            amount, currency = limits["budget"]
            limits["budget"] = self.budget(roles, amount, currency, limits.get("grace", Limits().grace))
        if "retry_on" in limits:
            limits["retry_on"] = tuple(limits["retry_on"])
        return Limits(**limits)

    def budget(self, roles: Mapping[str, Role], amount: float, currency: str, grace: float) -> Budget:
        """The budget with the price of the whole run per hour; where the job allows several machines, of the
        dearest."""
        before = len(self.at.problems.found)
        budget = self.machine_budget(roles, amount, currency)
        if budget is None:
            budget = Budget(amount, currency, self.price(roles, currency))
        paid = Limits(budget=budget, grace=grace).paid_seconds
        if paid is not None and paid <= 0 and len(self.at.problems.found) == before:
            whole = amount / budget.price * 3600
            message = f"pays for {whole:.0f} s of this run, at {budget.price:g} {currency} per hour"
            self.at.problem(("limits", "budget"), message, f"more than {whole - paid:.0f} s, which are kept to stop it")
        return budget

    def machine_budget(self, roles: Mapping[str, Role], amount: float, currency: str) -> Budget | None:
        """The budget of a run on machines that a provider bills; None on another backend."""
        if self.traits.machines is None:
            return None
        from launcher.spec.prices.missing import example, units  # reads the table, for these backends only
        from launcher.spec.prices.rates import PricedRun, rate

        job = ResolvedJob(self.values["name"], dict(roles), self.profile.store, self.backend, options=self.options())
        run = PricedRun.of(job)
        hourly, listed = rate(run, self.profile.prices), rate(run, {})
        if hourly.missing:
            for what, keys in [(what, keys) for _, what, keys in units(run, self.profile.prices)] or [
                (f"what an hour costs is not known: {', '.join(hourly.missing)}", ())
            ]:
                self.at.problem(("limits", "budget"), what, example(keys, currency) if keys else "")
            return Budget(amount, currency)
        if hourly.currency != currency:
            told = f"the price of the run is in {hourly.currency}, the budget in {currency}"
            self.at.problem(("limits", "budget"), told)
        if hourly == listed:
            return Budget(amount, currency, listed=float(listed.high))
        return Budget(amount, currency, hourly=float(hourly.high))

    def price(self, roles: Mapping[str, Role], currency: str) -> float:
        """The price of the whole run per hour, by the profile's prices of GPUs and cores."""
        from launcher.spec.prices.missing import example
        from launcher.spec.prices.rates import unit_price

        total = 0.0
        for role in roles.values():
            price = unit_price(self.backend, role.resources, self.profile.prices)
            if isinstance(price, str):
                what = f"the price of `{price}` is not known"
                self.at.problem(("limits", "budget"), what, example([price], currency))
                return 0.0
            unit, count = price
            if unit.amount and unit.currency != currency:
                name = unit.origin.removeprefix("prices: ").removesuffix(" in the profile")
                self.at.problem(
                    ("limits", "budget"), f"the price of `{name}` is in {unit.currency}, the budget in {currency}"
                )
            # floats, as ever: the product is part of the run's hash
            total += float(unit.amount) * count * role.replicas
        return total
