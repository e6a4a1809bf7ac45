"""The client of Lambda's API: what it says of failures, and what it never shows."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable
from typing import ClassVar

import pytest

from launcher.backends.lambda_labs.api import EffectUnknown, LambdaApi, LambdaRefused
from launcher.backends.lambda_labs.diagnosis import diagnose
from launcher.backends.lambda_labs.wire import CloudInstance, InstancesAnswer
from launcher.errors import Unreachable
from launcher.spec.profile import load_profile
from tests.fakes.lambda_cloud.running import KEY
from tests.integration.lambda_labs.conftest import Account

Settings = Callable[..., object]


def test_without_a_key_it_says_where_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAMBDA_API_KEY", "LAMBDA_CLOUD_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Unreachable, match="LAMBDA_API_KEY"):
        LambdaApi()


def test_a_wrong_key_is_refused_and_never_shown(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", "secret_wrong_key")
    with pytest.raises(LambdaRefused, match="global/invalid-api-key") as refused:
        LambdaApi(interval=0.006).instances()
    assert "wrong_key" not in str(refused.value)


def test_reads_are_repeated_and_launches_are_not(account: Account, settings: Settings) -> None:
    api = LambdaApi(interval=0.006)
    settings(faults=[{"on": "list", "kind": kind, "times": 1} for kind in ("drop_before", "500", "429", "unknown")])
    assert api.instances() == []
    settings(faults=[{"on": "launch", "kind": "500", "times": 1}])
    body = {"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "ssh_key_names": ["laptop"]}
    with pytest.raises(EffectUnknown):
        api.launch(body)
    assert account.launches() == []


def test_what_lambda_added_since_is_read(account: Account) -> None:
    """A status and fields that no document had when this was written."""
    import msgspec

    text = b'{"data": [{"id": "a", "status": "migrating", "last_seen": 1, "new": {}, "jupyter_token": "hidden"}]}'
    (instance,) = msgspec.json.decode(text, type=InstancesAnswer).data
    assert instance == CloudInstance("a", "migrating")
    assert instance.living  # billed, as far as anybody knows
    assert "hidden" not in repr(instance)


def test_secrets_are_cut_out_of_messages(account: Account) -> None:
    api = LambdaApi(interval=0.006)
    text = api._clean(f"at https://x/?token=abc123 with Bearer {KEY}, jupyter_token: deadbeef")
    assert not any(secret in text for secret in ("abc123", KEY, "deadbeef"))


def test_doctor_says_whether_reap_has_its_second_witness(account: Account, settings: Settings) -> None:
    settings(limits=False)
    profile = load_profile(account.path, None, {"HOME": str(account.path)}, account.store.url)
    assert [(each.state, each.detail) for each in diagnose(profile)] == [
        ("ok", "0 machines are billed, 0 of them Slipway's")
    ]
    settings(audit_refused=True)
    _, warning = diagnose(profile)
    assert warning.state == "warning"
    assert "cannot read the account's audit events" in warning.detail


class Page(http.server.BaseHTTPRequestHandler):
    """What a firewall answers in place of the API."""

    asked: ClassVar[list[str]] = []
    status: ClassVar[int] = 403

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(self.status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Access denied</title>")

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("status", "said"), [(403, "answers 403 with text/html"), (200, "answers with a page")])
def test_who_stands_in_between_is_told_at_once(monkeypatch: pytest.MonkeyPatch, status: int, said: str) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    monkeypatch.setattr(Page, "status", status)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        api = LambdaApi(f"http://127.0.0.1:{server.server_port}", interval=0.006)
        Page.asked.clear()
        with pytest.raises(
            Unreachable, match=f"{said}, not as its API does: a proxy or a firewall in between"
        ) as caught:
            api.instances()
        assert len(Page.asked) == 1
        assert KEY not in str(caught.value)
        with pytest.raises(EffectUnknown):  # whether the launch went through, nobody knows
            api.launch({})
        server.shutdown()


def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    monkeypatch.setenv("http_proxy", "http://me:hidden@127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr("launcher.backends.lambda_labs.api.PATIENCE", 0.0)
    with pytest.raises(Unreachable, match=r"through the proxy 127.0.0.1:9 does not answer: .*refused") as caught:
        LambdaApi("http://lambda.example.com", interval=0.006).instances()
    assert "hidden" not in str(caught.value)
