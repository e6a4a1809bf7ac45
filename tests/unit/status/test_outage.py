"""A store that fails while `status` completes a run's record: an outage is told, a user who may only read is not."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from launcher.errors import Unreachable
from launcher.store.base import Store
from launcher.verbs import status
from tests.support.fakerun import FakeAttempt, fake_job, write_run


@pytest.mark.parametrize("cause", [ConnectionError("gone"), PermissionError("not yours")])
def test_only_an_outage_is_raised(file_store: Store, monkeypatch: pytest.MonkeyPatch, cause: OSError) -> None:
    run = write_run(file_store, fake_job("one"), [FakeAttempt()])

    def fails(*_: Any, **__: Any) -> NoReturn:
        raise Unreachable("the store does not take it") from cause

    def backend(*_: Any) -> NoReturn:
        pytest.fail("a run that has ended asks no backend")

    monkeypatch.setattr(status, "finish", fails)
    monkeypatch.setattr(status, "_incomplete", lambda *_: True)  # its record of work is missing
    if isinstance(cause, PermissionError):
        assert status.read_line(file_store, run, backend)[1].state == "succeeded"
    else:
        with pytest.raises(Unreachable, match="does not take it"):
            status.read_line(file_store, run, backend)
