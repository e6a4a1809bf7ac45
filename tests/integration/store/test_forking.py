"""An object store and processes that fork, as Python's multiprocessing does by default."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from launcher.store.base import Store

FORKS = 20
# The children end by os._exit, as multiprocessing's do, and say through a pipe what they met
SCRIPT = """
import json, multiprocessing, os, sys, time
from launcher.errors import SlipwayError
from launcher.store.opening import open_store

def met(url):
    began = time.monotonic()
    try:
        open_store(url).get("key")
        said = "read"
    except SlipwayError as error:
        said = "spawn" if "spawn" in str(error) else str(error)
    return said, time.monotonic() - began

def read(url):
    return open_store(url).get("key").decode()

def read_from(store):
    return store.get("key").decode()

def forked(url):
    here, there = os.pipe()
    child = os.fork()
    if not child:
        os.write(there, json.dumps(met(url)).encode())
        os._exit(0)
    os.close(there)
    with os.fdopen(here) as stream:
        said = json.loads(stream.read())
    os.waitpid(child, 0)
    return said

if __name__ == "__main__":
    url, forks = sys.argv[1], int(sys.argv[2])
    before = forked(url)  # from a process that has used no store
    store = open_store(url)
    store.put("key", b"body")
    children = [forked(url) for _ in range(forks)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        try:
            pool.map(read, [url] * 4)
            pooled = "read"
        except SlipwayError as error:
            pooled = str(error)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spawned = pool.map(read, [url]) + pool.map(read_from, [store])
    print(json.dumps([before, children, pooled, spawned, store.get("key").decode()]))
"""


def test_a_forked_child_is_told_at_once_and_its_parent_goes_on(s3_store: Store, tmp_path: Any) -> None:
    (tmp_path / "forks.py").write_text(SCRIPT)
    s3_store.put("key", b"body")
    done = subprocess.run(
        [sys.executable, "forks.py", s3_store.url, str(FORKS)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, children, pooled, spawned, after = json.loads(done.stdout)
    assert before[0] == "read"
    assert [said for said, _ in children] == ["spawn"] * FORKS
    assert max(seconds for _, seconds in children) < 5  # one that waits, waits for ever
    assert 'multiprocessing.get_context("spawn")' in pooled
    assert (spawned, after) == (["body"] * 2, "body")


WRITERS = 4
FOLDER_SCRIPT = """
import multiprocessing, sys
from launcher.store.opening import open_store

def write(number):
    for key in range(200):
        store.put(f"{number}/{key}", bytes([number]) * 20_000)

def read(given):
    return [given.get(f"{number}/199")[:1] for number in range(int(sys.argv[2]))]

if __name__ == "__main__":
    store = open_store(sys.argv[1])
    store.put("key", b"body")  # so that the children have its state
    with multiprocessing.get_context("fork").Pool(int(sys.argv[2])) as pool:
        pool.map(write, range(int(sys.argv[2])), chunksize=1)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(read, [store]) == [[bytes([number]) for number in range(int(sys.argv[2]))]]
"""


def test_forked_children_write_into_one_folder_and_a_spawned_one_is_given_the_store(tmp_path: Any) -> None:
    (tmp_path / "writers.py").write_text(FOLDER_SCRIPT)
    done = subprocess.run(
        [sys.executable, "writers.py", (tmp_path / "store").as_uri(), str(WRITERS)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
