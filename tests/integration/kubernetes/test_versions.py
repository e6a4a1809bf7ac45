"""Submitting to a cluster of another version than those that there are schemas of."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.backends.kubernetes import connection
from launcher.backends.kubernetes.backend import KubernetesBackend, close_all
from launcher.backends.kubernetes.objects import files
from launcher.backends.kubernetes.schemas import VERSIONS
from launcher.errors import BadInput
from tests.integration.kubernetes.speaker import Answer, refusal, speaking
from tests.integration.kubernetes.submitter import small


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((200, {"major": "1", "minor": "99+"}), f"newer than the schemas here ({VERSIONS[0]} to {VERSIONS[-1]})"),
        ((200, {"major": "1", "minor": "20"}), f"older than the schemas here ({VERSIONS[0]} to {VERSIONS[-1]})"),
        ((200, {"major": "1", "minor": VERSIONS[0].partition(".")[2]}), ""),
        (refusal(403, "Forbidden"), ""),
    ],
)
def test_it_is_asked_once_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: Answer, words: str
) -> None:
    monkeypatch.setattr(connection, "_versions", {})
    with speaking(lambda method, path, query: said if path == "/version" else (201, {})) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        backend = KubernetesBackend({})
        for one in (small("one", "n"), small("two", "n", secrets={"A": "b/c"})):
            made = files(backend.render([one]), "n")
            backend.creator.try_out(document for each in made.values() for document in each.documents)
        assert server.asked.count(("GET", "/version")) == 1
        assert sum(method == "POST" for method, _ in server.asked) == 2
        close_all()
    notes = capsys.readouterr().err
    assert notes.count("note:") == bool(words)
    assert words in notes


def test_what_is_wrong_by_its_schemas_never_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_versions", {})
    with speaking(lambda method, path, query: (200, {"major": "1", "minor": "33"})) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        backend = KubernetesBackend({})
        rendered = backend.render([small("one", "n")])
        spoiled = {name: text.replace("backoffLimit:", "backofLimit:") for name, text in rendered.documents.items()}
        (made,) = files(type(rendered)(spoiled, rendered.objects), "n").values()
        with pytest.raises(BadInput, match=r"spec\.backofLimit: unknown field \(did you mean `backoffLimit`\?\)"):
            backend.creator.try_out(made.documents)
        assert all(method == "GET" for method, _ in server.asked)
        close_all()
