"""Runs of a matrix in one Job, and where jobs travel that are too big for the environment."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.check.carried import inspect
from launcher.backends.kubernetes.render.manifests import objects
from launcher.reasons import EXIT_NEVER, MAX_INFRASTRUCTURE_ATTEMPTS
from launcher.spec.hashing import run_id, work_hash
from launcher.spec.model import Input, ResolvedJob
from tests.unit.kubernetes.controllers import ENDS, children, pod_failed
from tests.unit.kubernetes.support import chain, container, environment, job, only, pods, refused


def seeds(count: int, **changes: Any) -> list[ResolvedJob]:
    options = {"array": True, **changes.pop("options", {})}
    return [job("seeds", config={"seed": seed}, options=options, **changes) for seed in range(count)]


def test_a_matrix_is_one_indexed_job_whose_index_is_the_order_of_the_ids() -> None:
    runs = seeds(3)
    made = only(runs[::-1])
    spec = made.main["spec"]
    assert (made.main["kind"], made.array) == ("Job", True)
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert list(made.runs) == sorted(run_id(one) for one in runs)
    (held,) = made.documents[:-1]
    assert held["immutable"] is True
    for seed, run in enumerate(runs):
        assert f'"seed":{seed}}}' in held["data"][f"{list(made.runs).index(run_id(run))}.json"]
    found = environment(made.main["spec"]["template"], {names.COMPLETION_INDEX: "2"}, podIP="1", name="p")
    assert found["SLIPWAY_JOB_FILE"] == "/etc/slipway/2.json"
    assert not {"SLIPWAY_RUN", "SLIPWAY_JOB"} & set(found)


@pytest.mark.parametrize(("code", "disrupted"), ENDS)
def test_one_run_of_an_array_never_ends_another(code: int, disrupted: bool) -> None:
    spec = only(seeds(3)).main["spec"]
    ended = pod_failed(spec, code, disrupted)[0]
    assert ended == ("index fails" if code == EXIT_NEVER else "again" if disrupted else "again, counted")
    assert spec["backoffLimitPerIndex"] > MAX_INFRASTRUCTURE_ATTEMPTS
    assert not {"backoffLimit", "maxFailedIndexes"} & set(spec)


def test_runs_that_need_other_pods_are_another_array() -> None:
    runs = [*seeds(2), *seeds(3, secrets={"A": "a/b"})]
    assert sorted(len(one.runs) for one in objects(runs)) == [2, 3]
    first = seeds(2, options={"queue": "a"})
    assert sorted(
        len(one.runs) for one in objects([*first, *seeds(3, options={"queue": "a", "queue_priority": "x"})])
    ) == [
        2,
        3,
    ]


def test_an_array_of_one_is_a_plain_job() -> None:
    made = only(seeds(1))
    assert made.name == run_id(seeds(1)[0])
    assert len(made.documents) == 1


def test_an_array_has_one_rank_for_each_run() -> None:
    assert "seeds has several ranks" in refused(*seeds(2, replicas=2))


def test_many_big_jobs_are_spread_over_config_maps_that_apply_can_hold() -> None:
    runs = [job("big", config={"seed": n, "text": "x" * 60_000}, options={"array": True}) for n in range(8)]
    made = only(runs)
    maps = made.documents[:-1]
    assert len(maps) == 4
    assert sorted(key for one in maps for key in one["data"]) == [f"{number}.json" for number in range(8)]
    # kubectl keeps the whole object in an annotation, which may have 256 KiB
    assert all(len(msgspec.json.encode(one)) < 250_000 for one in maps)
    (volume,) = [v for v in made.main["spec"]["template"]["spec"]["volumes"] if v["name"] == "jobs"]
    assert [source["configMap"]["name"] for source in volume["projected"]["sources"]] == sorted(
        one["metadata"]["name"] for one in maps
    )


def test_more_than_an_annotation_holds_are_several_arrays() -> None:
    made = objects(seeds(1001))
    assert sorted(len(one.runs) for one in made) == [1, 500, 500]
    assert len({one.name for one in made}) == 3


def test_a_report_over_an_array_waits_for_one_stage() -> None:
    runs = seeds(7)
    report = job(
        "report", inputs={"all": Input(works={str(n): work_hash(one) for n, one in enumerate(runs)}, output="o")}
    )
    made = children(only([*runs, report]).main)
    assert list(made) == ["seeds", "report"]
    assert made["report"]["dependsOn"] == [{"name": "seeds", "status": "Complete"}]
    assert made["seeds"]["template"]["spec"]["completions"] == 7


# where the job travels


def test_a_job_stands_in_the_environment_until_it_is_too_big_for_it() -> None:
    small = only([job(config={"text": "x" * (95 * 1024)})])
    big = only([job(config={"text": "x" * (97 * 1024)})])
    assert len(small.documents) == 1
    (held, _) = big.documents
    assert held["kind"] == "ConfigMap"
    assert held["immutable"] is True
    mount = container(pods(big.main)[0])["volumeMounts"][-1]
    assert mount == {"name": "jobs", "mountPath": "/etc/slipway", "readOnly": True}


def test_another_content_is_another_config_map() -> None:
    one = only([job(config={"text": "x" * (97 * 1024)})]).documents[0]
    other = only([job(config={"text": "y" * (97 * 1024)})]).documents[0]
    assert one["metadata"]["name"] != other["metadata"]["name"]


def test_the_jobs_of_an_object_count_together() -> None:
    parts = chain("a", "b", "c", env={"TEXT": "x" * (40 * 1024)})
    assert [document["kind"] for document in only(parts).documents] == ["ConfigMap"] * 3 + ["JobSet"]


def test_a_job_that_no_config_map_holds_is_refused() -> None:
    assert "a ConfigMap takes" in refused(job(config={"text": "x" * (1 << 20)}))


def test_an_object_never_asks_to_be_suspended_or_named_by_the_server() -> None:
    for one in (only([job()]), only([job(replicas=2)]), only(seeds(2))):
        text = msgspec.json.encode(one.documents).decode()
        assert '"suspend"' not in text
        assert '"generateName"' not in text


def test_an_array_may_start_in_part_where_kueue_has_no_room_for_all() -> None:
    """Kueue 0.14, pkg/controller/jobs/job: JobMinParallelismAnnotation. Its webhook takes it from 1
    to one less than the parallelism."""
    options = {"queue": "a", "min_parallelism": 2}
    made = only(seeds(5, options=options)).main
    assert made["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] == "2"
    assert (made["spec"]["completions"], made["spec"]["parallelism"]) == (5, 5)
    few = only(seeds(2, options=options)).main
    assert "kueue.x-k8s.io/job-min-parallelism" not in few["metadata"]["annotations"]
    assert "allowed: with `array: true`" in refused(job(options=options))
    assert "allowed: with `queue`" in refused(*seeds(3, options={"min_parallelism": 2}))


@pytest.mark.parametrize(
    ("there", "queue", "least", "faulty"),
    [(3, "a", 2, False), (2, "a", 2, False), (1, "a", 2, True), (6, "a", 2, True), (3, "a", None, True)],
)
def test_only_what_kueue_may_lower_is_taken_for_its_own(
    there: int, queue: str, least: int | None, faulty: bool
) -> None:
    options = {"queue": queue, **({"min_parallelism": least} if least else {})}
    documents = [dict(document) for document in only(seeds(5, options=options)).documents]
    documents[-1] = msgspec.json.decode(msgspec.json.encode(documents[-1]))
    documents[-1]["spec"]["parallelism"] = there
    maps = {each["metadata"]["name"]: each for each in documents[:-1]}
    errors = [fault.message for fault in inspect(documents[-1], maps, served=True).faults if fault.level == "error"]
    assert bool(errors) == faulty, errors
