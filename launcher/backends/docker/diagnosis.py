"""What `launcher doctor` says of the docker backend."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.backends.base import CheckResult
from launcher.errors import SlipwayError
from launcher.spec.profile import Profile
from launcher.trees import document


def diagnose(profile: Profile) -> Iterator[CheckResult]:
    """Whether the Docker engine answers."""
    page = document("docs/howto/containers.md")
    fix = f"`launcher submit FILE --backend docker` needs it; {page} says how to install it"
    try:
        from launcher.images.engine import Engine

        engine = Engine()
        built = bool(engine.images("slipway-cpu"))
    except (SlipwayError, ModuleNotFoundError) as error:
        yield CheckResult("docker", "failed", str(error), fix, 4)
        return
    yield CheckResult(
        "docker", "ok", f"engine {engine.about['Version']}; slipway-cpu is {'' if built else 'not '}built here"
    )
