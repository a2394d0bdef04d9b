"""Where records lie: the right place, private, and not where somebody else wants them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import HoldfastWarning
from holdfast.records import home, reader
from holdfast.records.writer import RunRecord
from unit.records import FACTS, next_line, writer_process

is_root = os.geteuid() == 0
needs_root = pytest.mark.skipif(not is_root, reason="needs root, to be another user for a moment")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HOLDFAST_HOME, which is not there yet. And nobody has been warned."""
    monkeypatch.setattr(home, "_has_warned", False)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refused(words: str) -> None:
    """A record cannot be begun: one warning says why, and everything goes on."""
    with pytest.warns(HoldfastWarning, match=words):
        record = RunRecord.open(FACTS)
    again = RunRecord.open(FACTS)  # a second warning would be an error here
    assert (record.id, record.path, again.id) == (None, None, None)
    assert record.note_incident({"cause": "hung"}) is None
    record.close({})


# --- the place ----------------------------------------------------------------------------------------------------


def test_records_lie_where_the_environment_says(place: Path) -> None:
    """In a directory of their own, in a file that is named by time and id."""
    record = RunRecord.open(FACTS)
    assert record.path is not None
    assert record.path.parent == place / "runs"
    assert record.path.name.endswith(f"Z-{record.id}.jsonl")
    assert home.run_id_of(record.path.name) == record.id
    record.close()


def test_records_lie_in_the_state_directory_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the environment says nothing."""
    monkeypatch.delenv("HOLDFAST_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert home.runs_directory() == tmp_path / "state" / "holdfast" / "runs"


def test_a_home_that_is_relative_or_begins_with_a_tilde_is_made_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the directory of now, and by HOME."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("HOLDFAST_HOME", "here")
    assert home.runs_directory() == tmp_path / "here" / "runs"
    monkeypatch.setenv("HOLDFAST_HOME", "~/there")
    assert home.runs_directory() == tmp_path / "me" / "there" / "runs"


def test_dev_null_as_home_keeps_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says nothing about it: somebody wanted that."""
    monkeypatch.setenv("HOLDFAST_HOME", "/dev/null")
    record = RunRecord.open(FACTS)
    assert record.id is None
    assert list(reader.all_runs()) == []


def test_a_user_without_home_has_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a number without an entry: platformdirs raises."""
    for name in ("HOLDFAST_HOME", "HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    refused("home directory")
    assert list(reader.all_runs()) == []


def test_a_tilde_that_was_not_expanded_is_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As older versions of platformdirs leave it: nothing is made in a directory called "~"."""
    monkeypatch.delenv("HOLDFAST_HOME")
    monkeypatch.setattr(home, "user_state_path", lambda *_, **__: Path("~/.local/state/holdfast"))
    refused("no home directory")
    assert list(reader.all_runs()) == []


def test_the_home_of_a_user_who_does_not_exist_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong HOLDFAST_HOME is a warning, no error."""
    monkeypatch.setenv("HOLDFAST_HOME", "~nobody-of-this-name/x")
    refused("determine home directory")


# --- private ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("umask", [0, 0o022, 0o077], indirect=True, ids=oct)
def test_whatever_the_umask_records_are_private(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directories that are made on the way, too."""
    monkeypatch.setenv("HOLDFAST_HOME", str(place / "deep"))
    record = RunRecord.open(FACTS)
    assert record.path is not None
    assert mode(record.path) == 0o600
    assert mode(place) == mode(place / "deep") == mode(place / "deep" / "runs") == 0o700
    record.close()


def test_a_directory_that_others_can_read_is_closed(place: Path) -> None:
    """The one for runs, which is ours alone; not the one that the user named."""
    (place / "runs").mkdir(parents=True)
    place.chmod(0o755)
    (place / "runs").chmod(0o777)
    RunRecord.open(FACTS).close()
    assert (mode(place), mode(place / "runs")) == (0o755, 0o700)


def test_a_link_in_place_of_the_directory_is_refused(place: Path, tmp_path: Path) -> None:
    """Whoever made it: nothing is written where it leads."""
    place.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (place / "runs").symlink_to(tmp_path / "elsewhere")
    refused("link or a file")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@needs_root
@pytest.mark.parametrize("depth", ["", "a/b"])
def test_a_link_of_another_user_on_the_way_is_refused(
    place: Path, tmp_path: Path, depth: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As somebody could put it in /tmp, where the victim's HOLDFAST_HOME is to be."""
    monkeypatch.setenv("HOLDFAST_HOME", str(place / depth))
    (tmp_path / "elsewhere" / depth).mkdir(parents=True)
    place.symlink_to(tmp_path / "elsewhere")
    os.lchown(place, 12345, 12345)
    refused("another user made")
    assert not (tmp_path / "elsewhere" / depth / "runs").exists()


def test_a_link_of_the_user_on_the_way_is_followed(place: Path, tmp_path: Path) -> None:
    """State directories are moved to larger disks so."""
    (tmp_path / "large").mkdir()
    place.symlink_to(tmp_path / "large")
    RunRecord.open(FACTS).close()
    assert len(list((tmp_path / "large" / "runs").iterdir())) == 1


@needs_root
def test_a_directory_of_another_user_is_refused(place: Path) -> None:
    """Its owner could put anything in it."""
    (place / "runs").mkdir(parents=True)
    os.chown(place / "runs", 12345, 12345)
    refused("belongs to another user")


def test_a_link_with_the_name_of_a_record_is_not_written_through(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor removed, nor read: another name is taken."""
    ids = iter(["aaaa" + "0" * 28, "b" * 32])
    monkeypatch.setattr("secrets.token_hex", lambda _: next(ids))
    monkeypatch.setattr("time.time", lambda: 1.7e9)
    (place / "runs").mkdir(parents=True)
    trap = place / "runs" / home.file_name("aaaa", 1.7e9)
    trap.symlink_to(tmp_path / "victim")
    monkeypatch.setattr(home, "run_files", lambda _: [])  # it was put there after the look at what is taken
    record = RunRecord.open(FACTS)
    monkeypatch.undo()
    assert record.id == "bbbbbb"
    assert trap.is_symlink()
    assert not (tmp_path / "victim").exists()
    with pytest.raises(OSError, match="symbolic links"):
        reader.read(trap)
    record.close()


# --- places that cannot be written --------------------------------------------------------------------------------


@pytest.mark.skipif(is_root, reason="root may write everywhere; the next test has a file system that is read-only")
def test_a_directory_without_permission_to_write_gives_one_warning(place: Path) -> None:
    """And no record."""
    place.mkdir(mode=0o500)
    refused("Permission denied")


@pytest.mark.parametrize("below", ["", "x/y"])
def test_a_file_in_place_of_the_home_gives_one_warning(
    place: Path, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the file is left alone."""
    monkeypatch.setenv("HOLDFAST_HOME", str(place / below))
    place.write_text("mine")
    refused("Not a directory|directory")
    assert place.read_text() == "mine"


def in_own_mounts(place: Path, options: str) -> list[str]:
    """What goes before a command, so that it has a small file system at `place`. Nobody else sees it."""
    place.mkdir()
    mount = f"mount -t tmpfs -o size=64k,mode=0700 tmpfs {place}"
    then = f"mount -o remount,{options} {place}" if options else "true"
    command = ["unshare", "--mount", "sh", "-c", f'{mount} && {then} && exec "$@"', "sh"]
    probe = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=30, check=False)
    if probe.returncode != 0:
        pytest.skip(f"needs root and `unshare --mount` to mount a small file system: {probe.stderr.strip()}")
    return command


@pytest.mark.root
def test_a_disk_that_is_full_ends_the_record_with_one_warning(place: Path) -> None:
    """What was written before is there, at most the last line is torn, and the next run leaves no empty file."""
    with writer_process(place, "fill", in_own_mounts(place, "")) as process:
        result = json.loads(next_line(process))
    assert result["noted"] == result["incidents"] > 0
    assert result["damaged"] <= 1
    assert result["second"] is None
    assert result["files"] == 1
    assert len(result["warnings"]) == 1
    assert "No space left on device" in result["warnings"][0]


@pytest.mark.root
def test_a_file_system_that_is_read_only_gives_one_warning(place: Path) -> None:
    """And no record."""
    with writer_process(place, "fill", in_own_mounts(place, "ro")) as process:
        result = json.loads(next_line(process))
    assert (result["noted"], result["second"]) == (0, None)
    assert len(result["warnings"]) == 1
    assert "Read-only file system" in result["warnings"][0]


def test_a_warning_that_is_an_error_leaves_the_record_off(place: Path) -> None:
    """Who asks for errors gets one, from `open`, and may go on."""
    place.write_text("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(HoldfastWarning):
            RunRecord.open(FACTS)
    assert RunRecord.open(FACTS).id is None
