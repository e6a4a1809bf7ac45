"""The monitor as an ASGI application."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from launcher.errors import SlipwayError
from launcher.monitor.server.blind_mode import BlindMode
from launcher.monitor.server.entry import EntryCodes
from launcher.monitor.server.pages.monitor_pages import MonitorPages
from launcher.monitor.server.security import RequestGuard


def application(pages: MonitorPages, token: str, codes: EntryCodes, port: int, behind: str = "") -> ASGIApp:
    trainings, verdicts, desktops = pages.trainings, pages.verdicts, pages.desktops
    comparisons, run_groups = pages.comparisons, pages.run_groups
    routes = [
        Route("/", pages.now),
        Route("/now/runs", pages.now_part),
        Route("/runs/{run}", pages.run),
        Route("/runs/{run}/facts", pages.run_facts),
        Route("/runs/{run}/parts", pages.run_parts),
        Route("/runs/{run}/outputs/{output}", pages.outputs.output),
        Route("/runs/{run}/outputs/{output}/file", pages.outputs.file),
        Route("/runs/{run}/log", pages.log),
        Route("/runs/{run}/job", pages.job),
        Route("/runs/{run}/metrics.json", pages.metrics),
        Route("/runs/{run}/metrics.csv", pages.metrics_csv),
        Route("/runs/{run}/desktops/{member}", desktops.desktop),
        Route("/runs/{run}/desktops/{member}/screen", desktops.screen),
        Route("/runs/{run}/desktops/{member}/{number}.png", desktops.picture),
        Route("/runs/{run}/{change}", pages.change, methods=["POST"]),
        Route("/run-groups/{group}/table", run_groups.table),
        Route("/run-groups/{group}/values", run_groups.values),
        Route("/run-groups/{group}/metrics.json", run_groups.metrics),
        Route("/run-groups/{group}", run_groups.group),
        Route("/evaluations", comparisons.evaluations),
        Route("/evaluations/{run}", pages.evaluation),
        Route("/evaluations/{run}/table", pages.evaluation_part),
        Route("/compare", comparisons.compare),
        Route("/pair", comparisons.pair),
        Route("/cost", pages.costs.cost),
        Route("/cost/table", pages.costs.table),
        Route("/trainings", trainings.trainings),
        Route("/trainings/{run}", trainings.training),
        Route("/trainings/{run}/line", trainings.training_part),
        Route("/trainings/{run}/{kind}/{step}", trainings.step),
        Route("/trainings/{run}/{kind}/{step}/groups", trainings.step_part),
        Route("/groups/{group}", trainings.group),
        Route("/verdicts", verdicts.verdicts),
        Route("/judge/{run}", verdicts.judge),
        Route("/blind", verdicts.blind, methods=["POST"]),
        Route("/rollouts/{rollout}", pages.rollout),
        Route("/rollouts/{rollout}/verdict", verdicts.give, methods=["POST"]),
        Route("/rollouts/{rollout}/{turn}.picture", pages.picture),
        Route("/search", pages.search),
        Route("/stream", pages.stream),
        Route("/static/{name:path}", pages.static),
    ]
    handlers = dict.fromkeys((HTTPException, SlipwayError, Exception), pages.failed)
    inside = BlindMode(Starlette(routes=routes, exception_handlers=handlers), bool(pages.changes))
    return RequestGuard(inside, token, codes, port, bool(pages.changes), behind)
