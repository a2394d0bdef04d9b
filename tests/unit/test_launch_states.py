"""Which rank of a group was the first to fail, and how all of them are told. No process is started."""

from __future__ import annotations

import pytest

from holdfast.diagnosis.evidence import Confidence, Diagnosis
from holdfast.launch import telling
from holdfast.launch.states import End, RankState, first_to_fail, is_about_a_peer


def failed(rank: int, at: float, *, is_consequence: bool = False, words: str = "failed") -> RankState:
    return RankState(rank, 100 + rank, End.FAILED, words, at, is_consequence)


def test_the_earliest_failure_is_the_first() -> None:
    """Whatever the order of ranks."""
    states = [failed(0, 12.0), RankState(1, end=End.FINISHED), failed(2, 11.5), failed(3, 11.6)]
    assert first_to_fail(states) == states[2]


def test_what_says_that_a_peer_has_gone_comes_after_all_others() -> None:
    """A large process is gone for its peers some time before it is gone for the kernel."""
    states = [failed(0, 11.0, is_consequence=True), failed(1, 11.4)]
    assert first_to_fail(states) == states[1]


def test_where_all_say_so_the_earliest_counts() -> None:
    states = [failed(0, 11.2, is_consequence=True), failed(1, 11.0, is_consequence=True)]
    assert first_to_fail(states) == states[1]


@pytest.mark.parametrize("end", [End.NONE, End.FINISHED, End.INTERRUPTED, End.ENDED])
def test_who_has_not_failed_is_not_blamed(end: End) -> None:
    assert first_to_fail([RankState(0, end=end, at=1.0)]) is None


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("RuntimeError", "[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242"),
        ("torch.distributed.DistNetworkError", "anything"),
        ("RuntimeError", "Socket Timeout"),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer"),
        ("EOFError", ""),
        ("DistBackendError", "NCCL error: remote process exited or there was a network error"),
    ],
)
def test_exceptions_about_peers_are_known(kind: str, message: str) -> None:
    assert is_about_a_peer(kind, message)


@pytest.mark.parametrize(("kind", "message"), [("ValueError", "bad header"), ("RuntimeError", "CUDA out of memory")])
def test_others_are_not(kind: str, message: str) -> None:
    assert not is_about_a_peer(kind, message)


# --- the message --------------------------------------------------------------------------------------------------

DIAGNOSIS = Diagnosis(
    cause="killed by another process",
    confidence=Confidence.LIKELY,
    summary="was killed by SIGKILL",
    because="somebody sent it",
    advice=('DataLoader(..., multiprocessing_context="spawn")   new processes', "DataLoader(..., on_error='skip')"),
)


def test_a_group_is_told_by_its_first_rank_then_the_others_then_last_words() -> None:
    first = RankState(1, 41, End.FAILED, "was killed by SIGKILL", 10.0, stderr_tail="one\ntwo\n")
    others = [
        RankState(0, 40, End.FAILED, "raised RuntimeError: Connection closed by peer", 10.12, True),
        RankState(2, 42, End.FINISHED, "finished", 9.0, stderr_tail="done\n"),
    ]
    account = telling.account_of(DIAGNOSIS, first, "the other ranks were ended")
    assert telling.render(account, first, [others[0], first, others[1]]).splitlines() == [
        "rank 1 (pid 41) was killed by SIGKILL",
        "",
        "  cause      somebody sent it (likely)",
        "  done       the other ranks were ended",
        '  try        holdfast.spawn(..., start_method="spawn")   new processes',
        "  ranks      rank 0 raised RuntimeError: Connection closed by peer, 0.1 s later",
        "             rank 2 finished",
        "",
        "rank 1, last on its stderr:",
        "    one",
        "    two",
        "",
        "rank 2, last on its stderr:",
        "    done",
    ]


def test_a_traceback_stands_where_torch_has_it() -> None:
    """After torch's own words, which other programs may look for."""
    first = RankState(1, 41, End.FAILED, "raised ValueError: bad", 10.0)
    account = telling.account_of(DIAGNOSIS, first, "")
    text = telling.render(account, first, [first], "Traceback (most recent call last):\nValueError: bad\n")
    assert text.endswith(
        "\n\n-- Process 1 terminated with the following error:\nTraceback (most recent call last):\nValueError: bad"
    )


def test_long_words_and_many_lines_are_cut() -> None:
    """A rank may have anything to say."""
    first = RankState(0, 1, End.FAILED, "x", 1.0, stderr_tail="\n".join(map(str, range(100))))
    other = RankState(1, 2, End.FAILED, "raised ValueError: " + "long " * 200, 1.0)
    text = telling.render(telling.account_of(DIAGNOSIS, first, ""), first, [first, other])
    assert all(len(line) <= 120 for line in text.splitlines())
    assert "    99" in text
    assert "    0\n" not in text
