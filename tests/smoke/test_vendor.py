"""The editor that the studio's page brings is what its package.json says, and its licence is beside it."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VENDOR = ROOT / "src/fabula/apps/studio/page/vendor"


def test_the_licence_is_there() -> None:
    assert "Permission is hereby granted, free of charge" in (VENDOR / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.system
def test_the_bundle_is_built_from_the_named_versions(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm was not found")
    subprocess.run(["make", "vendor", f"OUT={tmp_path}"], cwd=ROOT, check=True, timeout=300)
    assert (tmp_path / "prosemirror.js").read_bytes() == (VENDOR / "prosemirror.js").read_bytes()
