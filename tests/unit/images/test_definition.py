"""An image's version is a hash of what the builder gets, and of nothing else."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

import pytest

from launcher.errors import BadInput, NotFound
from launcher.images.build import BuildOptions, context_folder, context_tar
from launcher.spec.images import catalogue
from launcher.spec.images.definition import Definition, argument, copied, instructions, project_root, select
from tests.unit.images.project import BASE, project

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def tiny(tmp_path: Path) -> Definition:
    (found,) = select(project(tmp_path), ["tiny"])
    return found


def test_the_context_is_what_the_dockerfile_copies_and_the_dockerfile(tiny: Definition) -> None:
    assert list(tiny.context()) == [
        "images/tiny/Dockerfile",
        "images/tiny/requirements.lock",
        "settings.txt",
        "source/deep/more.py",
        "source/main.py",
    ]


def test_the_version_has_the_projects_and_eight_digits_and_is_the_same_elsewhere(
    tiny: Definition, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (twin,) = select(project(tmp_path / "elsewhere"), [])
    assert tiny.version() == twin.version()
    assert re.fullmatch(r"[0-9.]+-[0-9a-f]{8}", tiny.version())


@pytest.mark.parametrize("path", ["source/main.py", "settings.txt", "images/tiny/Dockerfile"])
def test_each_file_that_goes_in_changes_the_version(tiny: Definition, path: str) -> None:
    before = tiny.version()
    with (tiny.root / path).open("a") as file:
        file.write("# more\n")
    assert tiny.version() != before


def test_what_does_not_go_in_changes_nothing(tiny: Definition) -> None:
    before, tar = tiny.version(), context_tar(tiny)
    (tiny.root / "unrelated.txt").write_text("changed")
    (tiny.root / "source" / ".hidden").write_text("changed")
    (tiny.root / "source" / "main.py").touch()  # another time
    assert tiny.version() == before
    assert context_tar(tiny) == tar


def test_no_catalogue_goes_in_so_that_the_images_of_a_tag_can_come_first(tiny: Definition) -> None:
    before = tiny.version()
    entry = catalogue.CatalogueEntry(before, f"registry.example/tiny@sha256:{'1' * 64}")
    (tiny.root / "images" / catalogue.RELEASES).mkdir()
    for file in (f"{catalogue.RELEASES}/0.1.0.yaml", catalogue.FILE):
        catalogue.save(tiny.root / "images" / file, {"tiny": entry})
    assert tiny.version() == before
    for definition in select(ROOT, []):
        assert [path for path in definition.context() if path.startswith("images/catalogue")] == []


def test_no_label_says_the_commit_or_where_the_sources_are(tiny: Definition) -> None:
    """An image's id follows from its files; the pushed index says the commit (tools/release_images.py)."""
    for definition in select(ROOT, []):
        labels = set(re.findall(r"org\.opencontainers\.image\.(\w+)", definition.text()))
        assert labels == {"title", "description", "licenses", "version", "created"}


def test_the_mode_and_another_base_are_part_of_it(tiny: Definition) -> None:
    before = tiny.version()
    assert tiny.version(base=BASE) == before
    assert tiny.version(base="test.local/base:1") != before
    (tiny.root / "source" / "main.py").chmod(0o755)
    assert tiny.version() != before


def test_build_arguments_that_change_what_is_in_the_image_change_its_version(tiny: Definition) -> None:
    """A variant must not take the name of the image without it."""
    before = tiny.version()
    assert tiny.version(arguments={"VARIANT": "cpu"}) != before
    assert tiny.version(arguments={"VARIANT": "cpu"}) != tiny.version(arguments={"VARIANT": "gpu"})
    assert tiny.version(arguments={"https_proxy": "http://proxy:1"}) == before


@pytest.mark.parametrize("name", ["SLIPWAY_SOURCE", "SLIPWAY_REVISION", "SLIPWAY_CREATED", "SOURCE_DATE_EPOCH"])
def test_labels_and_times_that_a_user_gives_change_the_version_because_they_change_the_digest(
    tiny: Definition, name: str
) -> None:
    assert tiny.version(arguments={name: "7"}) != tiny.version()


def test_what_a_build_is_told_follows_from_the_version_alone(
    tiny: Definition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from the clock, the commit or the environment: they would give one version other digests."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "99")
    assert BuildOptions(logs=tmp_path).build_arguments(tiny, "1-ab") == {
        "SLIPWAY_VERSION": "1-ab",
        "SLIPWAY_CREATED": "1970-01-01T00:00:07Z",
        "SOURCE_DATE_EPOCH": "7",
    }


def test_a_time_that_is_none_is_refused(tiny: Definition) -> None:
    text = tiny.text().replace("SOURCE_DATE_EPOCH=7", "SOURCE_DATE_EPOCH=today")
    tiny.dockerfile.write_text(text)
    with pytest.raises(BadInput, match="images/tiny/Dockerfile: ARG SOURCE_DATE_EPOCH: `today`; allowed: seconds"):
        _ = tiny.epoch
    tiny.dockerfile.write_text(text.replace("ARG SOURCE_DATE_EPOCH=today\n", ""))
    assert tiny.epoch == 0


def test_the_tar_holds_the_files_with_one_time_and_no_owner(tiny: Definition) -> None:
    with tarfile.open(fileobj=io.BytesIO(context_tar(tiny))) as tar:
        members = tar.getmembers()
    assert [one.name for one in members] == list(tiny.context())
    assert {(one.mtime, one.uid, one.gid) for one in members} == {(7, 0, 0)}


def test_the_folder_holds_the_same_files_and_a_time_that_tells_contents_of_equal_length_apart(
    tiny: Definition, tmp_path_factory: pytest.TempPathFactory
) -> None:
    times = []
    for text in ("print(1)\n", "print(2)\n", "print(1)\n"):
        (tiny.root / "source" / "main.py").write_text(text)
        folder = tmp_path_factory.mktemp("context")
        context_folder(tiny, folder)
        assert sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()) == list(
            tiny.context()
        )
        times.append((folder / "source" / "main.py").stat().st_mtime_ns)
    assert times[0] == times[2] != times[1]
    assert {time // 10**9 for time in times} == {7}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("COPY $THING /", r"`\$THING` must be a plain path"),
        ("COPY source/*.py /", "must be a plain path"),
        ("COPY ../other /", "must be a plain path"),
        ("ADD source /", "use COPY"),
        ("COPY nowhere /", "there is no `nowhere`"),
    ],
)
def test_a_source_that_can_not_be_known_is_refused_with_its_line(tiny: Definition, line: str, says: str) -> None:
    with tiny.dockerfile.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(BadInput, match=says):
        tiny.version()


def test_a_base_without_a_digest_is_refused(tiny: Definition) -> None:
    tiny.dockerfile.write_text("ARG BASE=debian:latest\nFROM ${BASE}\n")
    with pytest.raises(BadInput, match="@sha256"):
        _ = tiny.base


def test_an_unknown_image_is_named_with_what_is_near(tiny: Definition) -> None:
    with pytest.raises(BadInput, match=r"did you mean `tiny`.*allowed: tiny"):
        select(tiny.root, ["tiyn"])


def test_the_project_is_found_from_below_and_missed_outside(
    tiny: Definition, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert project_root(tiny.root / "source" / "deep") == tiny.root
    with pytest.raises(NotFound, match="clone of Slipway"):
        project_root(tmp_path_factory.mktemp("outside"))


def test_instructions_are_joined_over_lines_and_comments() -> None:
    text = "# first\nARG A=1\nRUN one \\\n  # in between\n  two\nFROM x\n"
    assert [(one.line, one.name, one.value) for one in instructions(text)] == [
        (2, "ARG", "A=1"),
        (3, "RUN", "one  two"),
        (6, "FROM", "x"),
    ]
    assert argument(text, "A") == "1"
    assert argument(text, "B") is None


def test_the_json_form_of_copy_is_read() -> None:
    assert copied('COPY ["a b", "c", "/to/"]\n', "x") == ["a b", "c"]
