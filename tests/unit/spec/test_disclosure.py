"""Values in clear whose name or place says that they are secrets: refused by every verb that would write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.errors import BadInput
from launcher.spec.secrets.disclosure import disclosures, literal, of_store, secret_name
from tests.unit.spec.support import group

VALUE = "correct-horse-battery"
SECRET = ["AWS_SECRET_ACCESS_KEY", "MY_PASSWORD", "HF_TOKEN", "WANDB_API_KEY", "api-key", "clientSecret", "PGPASSWD"]
SECRET += ["DB_PWD", "SSH_PRIVATE_KEY", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY", "token", "APIKEY"]
PLAIN = ["TOKENIZERS_PARALLELISM", "MAX_TOKENS", "PASSWORD_FILE", "TOKEN_PATH", "AWS_ACCESS_KEY_ID", "PWD", "OLDPWD"]
PLAIN += ["EOS_TOKEN", "pad_token", "PUBLIC_KEY", "CACHE_KEY", "TOKENIZER", "SECRET_NAME", "KEYBOARD", "tokens", ""]


@pytest.mark.parametrize("name", SECRET)
def test_names_of_secrets(name: str) -> None:
    # PGPASSWD is one word; what a name ends with counts by whole words only
    assert secret_name(name) == (name != "PGPASSWD")


@pytest.mark.parametrize("name", PLAIN)
def test_names_that_only_look_alike(name: str) -> None:
    assert not secret_name(name)


@pytest.mark.parametrize("value", [VALUE, 12345678, "pa$$word", "a/b", "/" + "aB3+" * 9 + "aB3"])
def test_literal_values(value: object) -> None:
    assert literal(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        None,
        True,
        "true",
        "0",
        "$HF_TOKEN",
        "${HF_TOKEN}",
        "Bearer $TOKEN",
        "$(cat /x)",
        "/run/secrets/x",
        "~/x",
        "./x",
        "<pad>",
        "[CLS]",
        "{{ token }}",
        "***",
        "none",
    ],
)
def test_values_that_say_where_a_secret_is(value: object) -> None:
    assert not literal(value)


JOBS: dict[str, dict[str, Any]] = {
    "env.MY_PASSWORD": {"env": {"MY_PASSWORD": VALUE}},
    "roles.r.env.AWS_SECRET_ACCESS_KEY": {"roles": {"r": {"env": {"AWS_SECRET_ACCESS_KEY": VALUE}}}},
    "config.db.password": {"config": {"db": {"password": VALUE}}},
    "config.list[0].api_key": {"config": {"list": [{"api_key": VALUE}]}},
    "command[1]": {"command": ["x", f"--api-key={VALUE}"]},
    "command[2]": {"command": ["x", "--password", VALUE]},
    "command[2] ": {"command": ["sh", "-c", f"export DB_PASSWORD={VALUE}; ./x"]},
    "command[2]  ": {"command": ["sh", "-c", f"DB_PASSWORD='{VALUE}' ./x"]},
    "roles.r.command[1]": {"roles": {"r": {"command": ["env", f"A_TOKEN={VALUE}"]}}},
    "inputs.d": {"inputs": {"d": f"s3://{VALUE}@bucket/x"}},
    "inputs.d ": {"inputs": {"d": {"url": f"https://{VALUE}@host/x"}}},
    'matrix."env.MY_TOKEN"[0]': {"matrix": {"env.MY_TOKEN": [VALUE]}},
    'matrix."roles.r.env.MY_TOKEN"[0]': {"matrix": {"roles.r.env.MY_TOKEN": [VALUE]}},
    'matrix."config.api_key"[0]': {"matrix": {"config.api_key": [VALUE]}},
    "store": {"store": f"s3://KEY:{VALUE}@bucket/x"},
}


@pytest.mark.parametrize("where", JOBS)
def test_every_place_of_a_job_is_looked_at(where: str) -> None:
    from launcher.spec.values.source import dotted

    found = list(disclosures(JOBS[where]))
    assert [dotted(route) for route, _, _ in found] == [where.strip()]
    assert VALUE not in str(found)


def test_what_jobs_really_hold_passes() -> None:
    job = {
        "command": ["python", "-c", "token = tokenizer('x', max_tokens=12345678)", "--pad-token", "<|endoftext|>"],
        "env": {"TOKENIZERS_PARALLELISM": "false", "PASSWORD_FILE": "/run/x", "IMAGE_TOKEN": 151655, "A_KEY": VALUE},
        "config": {"eos_token": "<|im_end|>", "token": "short", "secret": {"name": VALUE}, "password": "$DB_PASSWORD"},
        "roles": {"r": {"command": ["x", "--token", "$HF_TOKEN", "--password-file", "/run/secrets/pw"]}},
        "inputs": {"a": "s3://bucket/me@example", "b": "hf://me/model@main", "c": {"job": "x", "output": "y"}},
    }
    assert list(disclosures(job)) == []


@pytest.mark.parametrize(
    "url",
    [
        "s3://KEY:SECRET@bucket/x",
        "s3://KEY:SEC/RET@bucket/x",
        "s3://KEY@bucket",
        "s3://KEY:12345@bucket",
        "s3://KEY:SECRET/x",
        "az://c/x?sig=abc",
        "s3://b/x?token=a",
        "s3://b/x?endpoint=https://me:pw@host",
        "s3://b/x?secret_access_key=" + VALUE,
        "s3://b?X-Amz-Signature=ab12",
    ],
)
def test_store_urls_with_credentials(url: str) -> None:
    assert of_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/me@example",
        "s3://bucket/x?endpoint=http://127.0.0.1:9000&region=r",
        "file:///a:b@c/x",
        "/a@b:c",
        "az://container/x?account=me",
        "gs://b/x?anonymous=true",
        "http://127.0.0.1:1/bucket",
        "s3://minio:9000/bucket",
        "",
    ],
)
def test_store_urls_without(url: str) -> None:
    assert not of_store(url)


def test_a_made_up_profile_is_looked_at_too(tmp_path: Path) -> None:
    from launcher.spec.profile import LocalSettings, Profile

    profile = Profile(store=f"s3://KEY:{VALUE}@bucket/x", local=LocalSettings(tmp_path))
    with pytest.raises(BadInput, match="credentials") as caught:
        group("name: a\ncommand: [x]\n", tmp_path, profile=profile)
    assert VALUE not in str(caught.value)
