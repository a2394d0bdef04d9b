"""The environment variables, and what counts as off."""

from __future__ import annotations

import pytest

from holdfast import options


@pytest.mark.parametrize("value", ["1", "true", "yes", "on", "YES", " 1 ", "2"])
def test_disable_is_on(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Any value that does not say no."""
    monkeypatch.setenv("HOLDFAST_DISABLE", value)
    assert options.is_disabled()


@pytest.mark.parametrize("value", [None, "", " ", "0", "false", "False", "no", "off", " OFF "])
def test_disable_is_off(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    """Not set, empty, or a word for no."""
    if value is None:
        monkeypatch.delenv("HOLDFAST_DISABLE", raising=False)
    else:
        monkeypatch.setenv("HOLDFAST_DISABLE", value)
    assert not options.is_disabled()


@pytest.mark.parametrize(("value", "expected"), [(None, None), ("", None), ("  ", None), ("linux", "linux")])
def test_the_forced_backend_is_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: str | None
) -> None:
    """An empty value is none."""
    monkeypatch.delenv("HOLDFAST_BACKEND", raising=False)
    if value is not None:
        monkeypatch.setenv("HOLDFAST_BACKEND", value)
    assert options.forced_backend() == expected


@pytest.mark.parametrize(("value", "expected"), [(None, None), ("", None), ("  ", None), (" /data/x ", "/data/x")])
def test_the_home_of_records_is_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: str | None
) -> None:
    """An empty value is none."""
    monkeypatch.delenv("HOLDFAST_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("HOLDFAST_HOME", value)
    assert options.home() == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(None, True), ("", True), (" ", True), ("1", True), ("0", False), ("off", False)]
)
def test_diagnosis_is_on_unless_the_environment_says_no(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool
) -> None:
    """An empty value is none."""
    monkeypatch.delenv("HOLDFAST_DIAGNOSIS", raising=False)
    if value is not None:
        monkeypatch.setenv("HOLDFAST_DIAGNOSIS", value)
    assert options.diagnoses() is expected


def test_the_environment_is_read_at_the_moment_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook changes it between two loaders."""
    monkeypatch.setenv("HOLDFAST_DISABLE", "1")
    assert options.is_disabled()
    monkeypatch.setenv("HOLDFAST_DISABLE", "0")
    assert not options.is_disabled()
