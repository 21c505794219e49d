"""Builds a Maven project. Needs a JDK, Maven and, the first time, the network."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def build(project: Path, *settings: str) -> str:
    """Compile it, with these settings of Maven; the class path of what came of it."""
    target = project / "target"
    subprocess.run(
        [
            *("mvn", "-q", "-B", "-f", str(project / "pom.xml")),
            *("compile", "dependency:build-classpath"),
            f"-Dmdep.outputFile={target / 'classpath'}",
            *settings,
        ],
        check=True,
        timeout=900,
    )
    jars = (target / "classpath").read_text("utf-8").strip()
    return os.pathsep.join([str(target / "classes"), jars])
