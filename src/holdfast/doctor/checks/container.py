"""Whether this runs in a container, and whether somebody in it buries the processes that lose their parent.

Runs in: main process.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.doctor import kernel_files
from holdfast.doctor.environment import variables
from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope

NAME = "container"
LIMIT_S = 10.0
_FILES = {".dockerenv": "Docker", "run/.containerenv": "Podman"}
_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "Kubernetes",
    "APPTAINER_CONTAINER": "Apptainer",
    "SINGULARITY_CONTAINER": "Singularity",
    "container": "systemd's kind",
}
_BURY = {"tini", "docker-init", "dumb-init", "systemd", "init", "s6-svscan", "catatonit", "pause", "supervisord"}


@dataclass(frozen=True, slots=True)
class Facts:
    kinds: tuple[str, ...] = ()
    first_process: str = ""
    """The name of process 1."""


def look(scope: Scope) -> Facts:
    kinds = [kind for path, kind in _FILES.items() if (scope.root / path).exists()]
    kinds += [kind for name, kind in _VARIABLES.items() if variables([name])]
    return Facts(tuple(dict.fromkeys(kinds)), kernel_files.text(scope.root / Path("proc/1/comm")) or "")


def judge(facts: Facts) -> list[Finding]:
    if not facts.kinds:
        return [ok(NAME, "no sign of one")]
    kinds = ", ".join(facts.kinds)
    if not facts.first_process or facts.first_process in _BURY:
        return [ok(NAME, f"{kinds}; its limits are in the checks above")]
    return [
        Finding(
            NAME,
            Level.NOTE,
            f"this container ({kinds}) has no init that is known: its first process is {facts.first_process}",
            evidence=(f"/proc/1/comm is {facts.first_process}",),
            consequence="processes that lose their parent may stay as zombies, and count against limits of processes",
            remedy=("docker run --init ...", "shareProcessNamespace: true  # in a pod of Kubernetes"),
        )
    ]
