"""Who starts first, and what a run that waits is told of its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.backends.local.queue import ordinal, priority
from launcher.errors import BadInput
from launcher.spec.hashing import encode_job, work_hash
from launcher.verbs.retry import again
from tests.support.jobs import job
from tests.unit.spec.support import group


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"),
                         (112, "112th")]
)  # fmt: skip
def test_ordinals(number: int, text: str) -> None:
    assert ordinal(number) == text


@pytest.mark.parametrize("backend", ["local", "docker"])
def test_a_priority_is_a_field_and_its_default_moves_no_hash(tmp_path: Path, backend: str) -> None:
    text = "name: a\ncommand: [x]\nimage: b\n"
    bare, default, high = (
        group(text + more, tmp_path, backend=backend).runs[0]
        for more in ("", f"{backend}: {{queue_priority: 0}}\n", f"{backend}: {{queue_priority: 7}}\n")
    )
    assert encode_job(bare) == encode_job(default)
    assert (priority(bare), priority(high)) == (0, 7)
    assert work_hash(bare) == work_hash(high)
    with pytest.raises(BadInput, match=rf"job\.yaml:4:{len(backend) + 20}: {backend}\.queue_priority: "):
        group(f"{text}{backend}: {{queue_priority: soon}}\n", tmp_path, backend=backend)


def test_a_retry_may_set_another_priority() -> None:
    one = job("a", options={"queue_priority": 3})
    assert again(one, "a-0123456789ab", ["local.queue_priority=9"]).options == {"queue_priority": 9}
    assert again(one, "a-0123456789ab", ["local.queue_priority=0"]).options == {}
