"""The two files of a scan: how far it is, and the bad samples for the loader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.loader.skips import SkippedFile
from holdfast.tasks.scan import skipped_file
from holdfast.tasks.scan.findings import Bad
from holdfast.tasks.scan.progress_file import InUse, NotKept, OfAnother, ProgressFile, Subject
from holdfast.tasks.scan.signature import Part

SUBJECT = Subject("data:train", 10)
ROW = (Part("", "int"),)
LIMIT_S = 60.0

HOLDER = """
import sys
from pathlib import Path
from holdfast.tasks.scan.progress_file import ProgressFile, Subject
with ProgressFile(Path(sys.argv[1]), Subject("data:train", 10), again=False):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "train.skipped.jsonl.scan"


def begin(path: Path) -> None:
    """A scan that found three samples, one of them bad, and was interrupted."""
    with ProgressFile(path, SUBJECT, again=False) as file:
        file.findings.note((0, 0), ROW, 5, 0.5)
        file.findings.note((0, 1), ROW, 5, 0.5)
        file.write()
        file.findings.note_bad(Bad((0, 2), "hang", "hung"))


def test_a_scan_is_taken_up_where_it_was(path: Path) -> None:
    """With what it had found, and what is left."""
    begin(path)
    with ProgressFile(path, SUBJECT, again=False) as file:
        assert (file.findings.loaded, [*file.findings.bad]) == (2, [(0, 2)])
        assert [*file.findings.left(range(10))] == [*range(3, 10)]


@pytest.mark.parametrize("torn", [1, 7, 40])
def test_a_torn_last_line_is_cut_off(path: Path, torn: int) -> None:
    """As a machine that went down leaves it. What it said is loaded again; what is written then can be read."""
    begin(path)
    path.write_bytes(path.read_bytes()[:-torn])
    with ProgressFile(path, SUBJECT, again=False) as file:
        assert (file.findings.loaded, file.findings.bad) == (2, {})
        file.findings.note((0, 3), ROW, 5, 0.5)
    with ProgressFile(path, SUBJECT, again=False) as file:
        assert file.findings.loaded == 3


@pytest.mark.parametrize("kept", [0, 5, 30])
def test_a_torn_first_line_is_a_new_scan(path: Path, kept: int) -> None:
    """Nothing had been found."""
    begin(path)
    path.write_bytes(path.read_bytes()[:kept])
    with ProgressFile(path, SUBJECT, again=False) as file:
        assert file.findings.done == 0
        file.findings.note((0, 3), ROW, 5, 0.5)
    with ProgressFile(path, SUBJECT, again=False) as file:
        assert file.findings.loaded == 1


def test_again_forgets_what_was_found(path: Path) -> None:
    """And the file is that of the new scan."""
    begin(path)
    with ProgressFile(path, Subject("data:test", 5), again=True) as file:
        assert file.findings.done == 0
    with ProgressFile(path, Subject("data:test", 5), again=False):
        pass


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (Subject("data:test", 10), "with target data:train"),
        (Subject("data:train", 11), "with length 10"),
        (Subject("data:train", 10, sample=5, seed=0), "with sample None, seed None"),
    ],
)
def test_a_scan_of_something_else_is_not_taken_up(path: Path, subject: Subject, words: str) -> None:
    """It says what differs, and the file stays as it is."""
    begin(path)
    before = path.read_bytes()
    with pytest.raises(OfAnother, match=words):
        ProgressFile(path, subject, again=False)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "text", ["notes\n", "notes", "{}\n", '{"holdfast":"scan","version":9}\n', '{"holdfast":"scan","version":1}\nx\n']
)
@pytest.mark.parametrize("again", [False, True])
def test_a_file_of_somebody_else_is_not_touched(path: Path, text: str, again: bool) -> None:
    """Not even to start over, unless it is one of ours."""
    path.write_text(text)
    if again and text.startswith('{"holdfast":"scan","version":9}'):
        ProgressFile(path, SUBJECT, again=True).__exit__(None, None, None)
        return
    with pytest.raises(OfAnother):
        ProgressFile(path, SUBJECT, again=again)
    assert path.read_text() == text


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_two_scans_do_not_write_to_one_file(path: Path) -> None:
    """The second is refused while the first runs, and not a moment longer, though that was killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with pytest.raises(InUse):
            ProgressFile(path, SUBJECT, again=False)
        child.kill()
        child.wait(LIMIT_S)
    with ProgressFile(path, SUBJECT, again=False):
        pass


def test_a_full_disk_leaves_whole_lines(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line is taken back; the error says so, and the scan can be continued from what was written before."""
    begin(path)
    before = path.read_bytes()
    whole = os.write
    with monkeypatch.context() as patch, ProgressFile(path, SUBJECT, again=False) as file:
        patch.setattr(os, "write", lambda fd, data: whole(fd, data[:9]))
        file.findings.note((0, 3), ROW, 5, 0.5)
        with pytest.raises(NotKept, match="No space left"):
            file.write()
    assert path.read_bytes() == before


# -- the file for the loader -------------------------------------------------------------------------------------------


def test_the_loader_reads_what_is_written(tmp_path: Path) -> None:
    """And we read what the loader writes."""
    path = tmp_path / "bad.jsonl"
    skipped_file.write(path, 10, {3: "ValueError: ä", 7: "hung"})
    theirs = SkippedFile(path, 10)
    assert theirs.read() == {3: "ValueError: ä", 7: "hung"}
    theirs.append(8, "worker was killed")
    assert skipped_file.read(path, 10) == {3: "ValueError: ä", 7: "hung", 8: "worker was killed"}
    assert [each.name for each in tmp_path.iterdir()] == ["bad.jsonl"]


def test_what_a_loader_has_withdrawn_is_not_listed(tmp_path: Path) -> None:
    """A scan would otherwise write it down for good."""
    path = tmp_path / "bad.jsonl"
    skipped_file.write(path, 10, {3: "hung"})
    theirs = SkippedFile(path, 10)
    theirs.append(8, "FileNotFoundError")
    theirs.withdraw()
    assert skipped_file.read(path, 10) == {3: "hung"}


@pytest.mark.timeout(30)
def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """To open it would wait for a writer."""
    path = tmp_path / "bad.jsonl"
    os.mkfifo(path)
    with pytest.raises(skipped_file.NotOurs, match="it is a FIFO"):
        skipped_file.read(path, 10)


def test_a_missing_or_empty_file_lists_nothing(tmp_path: Path) -> None:
    """Nor does a line that was torn."""
    path = tmp_path / "bad.jsonl"
    assert skipped_file.read(path, 10) == {}
    path.touch()
    assert skipped_file.read(path, 10) == {}
    path.write_text('{"holdfast":"skipped samples","version":1,"dataset_length":10}\n{"index":4}\n{"ind')
    assert skipped_file.read(path, 10) == {4: ""}


def test_a_file_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    """Of another dataset, or of something else."""
    path = tmp_path / "bad.jsonl"
    skipped_file.write(path, 10, {})
    with pytest.raises(skipped_file.OfAnotherLength, match="of 10 samples, and this one has 11"):
        skipped_file.read(path, 11)
    path.write_text("[1]\n")
    with pytest.raises(skipped_file.NotOurs, match="not a file of skipped samples"):
        skipped_file.read(path, 10)


def test_what_can_be_loaded_now_is_no_longer_listed() -> None:
    """Unless it is odd, and odd ones are to be listed; what was not loaded now stays."""
    old = {1: "was bad", 2: "was bad", 3: "is bad", 4: "was not tried"}
    entries = skipped_file.merged(old, {3: "hung", 9: "hung"}, {2: "odd"}, lambda index: index in (1, 2))
    assert [*entries.items()] == [(2, "odd"), (3, "hung"), (4, "was not tried"), (9, "hung")]
