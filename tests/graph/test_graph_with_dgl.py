"""The tests that have something stand for DGL, again with DGL itself: `make more` installs it in a folder of its own.

It wants another torch than there is, so it is installed without what it asks for, and is seen by this test alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv-dgl"
FILES = ("test_graph_dgl.py", "test_graph_user_samplers.py")


@pytest.mark.long
@pytest.mark.timeout(500)
@pytest.mark.skipif(not (FOLDER / "dgl").is_dir(), reason="needs DGL: make .venv-dgl")
def test_dgls_own_graphs_and_blocks() -> None:
    """All of them pass, and DGL is what they import."""
    environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
    imported = "import warnings; warnings.simplefilter('ignore'); import dgl; print(dgl.__version__)"
    subprocess.run([sys.executable, "-c", imported], env=environment, check=True, timeout=60)
    files = [str(Path(__file__).with_name(name)) for name in FILES]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "long or not long", *files]
    ran = subprocess.run(
        command,
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=450,
        start_new_session=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    assert " skipped" not in ran.stdout
