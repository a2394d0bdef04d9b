"""Which backend runs the workers: by argument, by environment, by platform, or out of another package."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from holdfast import DataLoader
from holdfast.workers import backends
from holdfast.workers.linux import Crew
from holdfast.workers.portable import PortableCrew


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_BACKEND", raising=False)
    monkeypatch.delenv("HOLDFAST_DISABLE", raising=False)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Another package, installed, with a backend called "elsewhere"."""
    metadata = tmp_path / "elsewhere-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[holdfast.backends]\nelsewhere = elsewhere_backend:Elsewhere\n")
    (tmp_path / "elsewhere_backend.py").write_text("class Elsewhere: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "elsewhere"
    sys.modules.pop("elsewhere_backend", None)


def test_none_is_what_fits_the_platform() -> None:
    """On Linux, ours."""
    assert backends.find(None) is Crew


@pytest.mark.parametrize("missing", ["pidfd_open", "P_PIDFD"])
def test_a_linux_without_pidfds_gets_the_portable_backend(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels before 5.4, and some sandboxes."""

    def refuse(*_: object) -> None:
        raise OSError("not implemented")

    if missing == "pidfd_open":
        monkeypatch.setattr(os, "pidfd_open", refuse)
    else:
        monkeypatch.setattr(os, "waitid", refuse)
    backends._has_pidfds.cache_clear()
    try:
        assert backends.find(None) is PortableCrew
    finally:
        monkeypatch.undo()
        backends._has_pidfds.cache_clear()


def test_a_name_of_ours_is_found() -> None:
    """By argument."""
    backends.check_name("linux")
    assert backends.find("linux") is Crew


def test_the_environment_decides_where_the_argument_does_not(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """HOLDFAST_BACKEND is for loaders that name none; one that does is not overruled."""
    monkeypatch.setenv("HOLDFAST_BACKEND", package)
    assert backends.find(None).__name__ == "Elsewhere"  # type: ignore[attr-defined]
    assert backends.find("linux") is Crew


def test_a_backend_of_another_package_is_found_by_its_entry_point(package: str) -> None:
    """An installed package adds one without a line of ours."""
    backends.check_name(package)
    assert backends.find(package).__name__ == "Elsewhere"  # type: ignore[attr-defined]


def test_the_package_is_not_imported_before_it_is_used(package: str) -> None:
    """Checking the name at construction reads metadata only."""
    backends.check_name(package)
    assert "elsewhere_backend" not in sys.modules
    backends.find(package)
    assert "elsewhere_backend" in sys.modules


@pytest.mark.parametrize("name", ["unknown", "", "Linux"])
def test_an_unknown_name_is_a_value_error_that_names_the_argument(name: str) -> None:
    """With what there is to choose from."""
    with pytest.raises(ValueError, match=r"backend='.*' is not known: use None .* or one of \['linux', 'portable'\]"):
        backends.check_name(name)


def test_the_choices_include_those_of_other_packages(package: str) -> None:
    """The message lists every name that would work."""
    with pytest.raises(ValueError, match=r"one of \['elsewhere', 'linux', 'portable'\]"):
        backends.check_name("unknown")


def test_an_unknown_name_in_the_environment_is_a_value_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a fall back to something else."""
    monkeypatch.setenv("HOLDFAST_BACKEND", "unknown")
    with pytest.raises(ValueError, match="unknown"):
        backends.find(None)


def test_a_platform_without_a_backend_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch that gives torch's own loader."""
    monkeypatch.setattr(sys, "platform", "plan9")
    with pytest.raises(ValueError, match=r"no backend for this platform \(plan9\) yet: set HOLDFAST_DISABLE=1"):
        backends.find(None)


def test_the_loader_refuses_an_unknown_name_at_construction() -> None:
    """Not in the first epoch."""
    with pytest.raises(ValueError, match="backend='unknown' is not known"):
        DataLoader(torch.arange(3), backend="unknown")  # type: ignore[arg-type]


def test_a_disabled_loader_ignores_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """HOLDFAST_DISABLE=1: our arguments do not count, wrong or right."""
    monkeypatch.setenv("HOLDFAST_DISABLE", "1")
    loader = DataLoader(torch.arange(3), backend="unknown")  # type: ignore[arg-type]
    assert loader.backend == "unknown"
