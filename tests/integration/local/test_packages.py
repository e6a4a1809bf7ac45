"""The packages of this machine are a part of what a local run is: changed while it waits, it never starts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from launcher.cli import main
from launcher.reasons import Reason
from launcher.spec.code.environment import LocalEnvironment, local_environment, store_environment
from launcher.spec.hashing import run_id
from launcher.spec.model import Output, ResolvedJob
from tests.integration.local.machine import Machine, wait_for
from tests.support.jobs import OUT, reads


def named_for(job: ResolvedJob, environment: LocalEnvironment) -> ResolvedJob:
    image = msgspec.structs.replace(job.roles["main"].image, environment=environment.digest)
    return msgspec.structs.replace(job, roles={"main": msgspec.structs.replace(job.roles["main"], image=image)})


def test_what_a_retry_says_to_type_goes_on_from_the_checkpoint(
    here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/mine.py").write_text("VALUE = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.chdir(tmp_path)
    write = (
        "out = pathlib.Path(E['SLIPWAY_OUTPUTS'], 'ckpt', 'checkpoint-3'); out.mkdir(); (out / 'a').write_text('1')\n"
    )
    outputs = {"ckpt": Output(kind="checkpoints")}
    job = named_for(here.job("one", f"{write}sys.exit(1)", outputs=outputs), local_environment())
    here.submit(job)
    assert here.wait(job)[0].outcome == "failed"
    (tmp_path / "lib/mine.py").write_text("VALUE = 2\n")
    more = ["--dry-run", "--store", here.store.url]
    assert main(["retry", run_id(job), *more]) == 0
    said = capsys.readouterr().err
    assert "it starts from the beginning" in said
    typed = said.partition("from its checkpoint: `launcher ")[2].partition("`")[0].split()
    assert typed == ["retry", run_id(job), "--resume"]
    assert main([*typed, *more]) == 0
    assert "it goes on from its checkpoint all the same" in capsys.readouterr().err


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_whose_packages_change_while_it_waits(
    here: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/mine.py").write_text("VALUE = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    environment = local_environment()
    store_environment(environment)
    wait = "while not (here / 'go').exists(): time.sleep(0.02)\n"
    write = "out = pathlib.Path(E['SLIPWAY_OUTPUTS'], 'out'); out.mkdir(exist_ok=True); (out / 'a').write_text('1')"
    first = named_for(here.job("first", wait + write, outputs=OUT), environment)
    second = named_for(
        here.job("second", "import mine; say('ran', mine.VALUE)", inputs={"x": reads(first)}), environment
    )
    here.submit(first, second)
    wait_for(lambda: bool(here.runtimes()), explain=here.explain)
    wait_for(lambda: "command:" in here.log(first), explain=here.explain)
    if changed:
        (tmp_path / "lib/mine.py").write_text("VALUE = 2\n")
    (here.path / "go").touch()
    before, after = here.wait(first, second)
    assert before.reason is Reason.SUCCEEDED
    if not changed:
        assert (after.reason, here.lines("ran")) == (Reason.SUCCEEDED, ["1"])
        return
    assert (after.reason, here.lines("ran")) == (Reason.CONFIG_ERROR, [])
    assert "the packages here are not those that this run is named for (PYTHONPATH[0] " in after.message
    assert "submit the job again" in after.message
