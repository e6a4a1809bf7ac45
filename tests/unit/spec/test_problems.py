"""What counts as a secret, and that it is never shown."""

from __future__ import annotations

import pytest

from launcher.spec.secrets.tokens import has_token, mask
from launcher.spec.values.problems import Problems, near, show

SECRETS = [
    "hf_" + "aB3" * 8,
    "sk-" + "abc123" * 5,
    "sk-ant-" + "api03-abcdef" * 3,
    "AKIA" + "A1B2" * 4,
    "ASIA" + "A1B2" * 4,
    *(f"gh{kind}_" + "a1B2" * 6 for kind in "pousr"),
    "github_pat_" + "a1B2" * 6,
    "glpat-" + "a1B2" * 6,
    "xoxb-" + "123456-abcdef",
    "AIza" + "a" * 35,
    "eyJ" + "a" * 12 + ".eyJ" + "b" * 12 + ".c",
    "-----BEGIN EC " + "PRIVATE KEY-----",
    "npm_" + "aB3" * 12,
    "pypi-" + "AgEIcHlwaS5vcmc" * 4,
    "sk_live_" + "aB3" * 8,
]
HARMLESS = [
    "sk-learn-pipelines-for-everybody",
    "disk-0123456789abcdef0123456789",
    "chf_abcdefghijklmnopqrstuvw",
    "sha256:" + "0123456789abcdef" * 4,
    "hf://Qwen/Qwen3-VL-2B-Instruct@0123456789abcdef0123456789abcdef01234567",
    "https://host/path?x=1",
    "s3://bucket/me@example",
    "registry/name@sha256:" + "1" * 64,
    "-----BEGIN CERTIFICATE-----",
    "git@github.com:org/repo.git",
    "ssh://git@github.com:22/org/repo.git",
    "http://host:8080/model@v1",
    "http://[::1]:8080/model@v1",
    "https://$USER:$PASSWORD@host",
    "https://user:{password}@host",
    "s3://bucket/a:b@c",
    "https://h/x?page_token=2&sig=no",
]
IN_URLS = {
    "https://me:hunter2@host/x": "hunter2",
    "https://h/x?sig=" + "Ab%2B" * 8: "Ab%2B" * 8,
    "https://h/x?a=1&X-Amz-Signature=" + "0a" * 32: "0a" * 32,
    "https://h/x?X-Goog-Signature=" + "0a" * 64: "0a" * 64,
    "https://h/x?Key-Pair-Id=K&Signature=" + "aB3~" * 10: "aB3~" * 10,
    "https://h/x?X-Amz-Security-Token=" + "aB3" * 10: "aB3" * 10,
    "https://h/x?access_token=" + "aB3" * 10: "aB3" * 10,
    "https://me:hun/ter:2@host/x": "hun/ter:2",
    "https://:hunter2@host/x": "hunter2",
}


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_are_known_and_masked_wherever_they_stand(secret: str) -> None:
    for text in (secret, f"--token={secret}", f"a {secret} b", f"'{secret}'"):
        assert has_token(text)
        assert secret not in mask(text)
        assert secret not in show(text)


@pytest.mark.parametrize("text", IN_URLS)
def test_credentials_in_urls_are_known(text: str) -> None:
    assert has_token(text)
    assert IN_URLS[text] not in mask(text)
    assert mask(text).startswith("https://")


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_alike_is_left_alone(text: str) -> None:
    assert not has_token(text)
    assert mask(text) == text


def test_no_problem_shows_a_secret() -> None:
    problems = Problems()
    problems.add("f", 1, 1, f"config.{SECRETS[0]}", f"{SECRETS[1]} is wrong", SECRETS[3])
    assert [str(problem) for problem in problems.found] == ["f:1:1: config.***: *** is wrong; allowed: ***"]


def test_hints_name_the_nearest_whatever_its_case() -> None:
    assert near("Deadlin", ["deadline", "retries"]) == " (did you mean `deadline`?)"
    assert near("h100", ["H100", "A100"]) == " (did you mean `H100`?)"
    assert near("zzz", ["deadline"]) == ""
