"""The wheel, installed into an empty venv outside the repository, is all of Fabula: it prepares, trains and fills in.

Only Fabula itself is installed. The heavy packages are lent from the running interpreter by a .pth file, which does not
lend the editable install along: .pth files of a lent folder are not read.
"""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from small import TINY

REPOSITORY = Path(__file__).parents[2]


pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--quiet", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*words, str(REPOSITORY)], check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a venv in it that has the wheel, and nothing of the repository."""
    home = tmp_path_factory.mktemp("home")
    venv.create(home / "venv", with_pip=False)
    python = home / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    (site,) = (home / "venv" / "lib").glob("python*/site-packages")
    lent = {sysconfig.get_paths()[name] for name in ("purelib", "platlib")}
    (site / "lent.pth").write_text("".join(f"{path}\n" for path in sorted(lent)))
    return home


def run(home: Path, *words: str) -> str:
    """A program of the venv, in the venv's own folder, with nothing of ours in its environment."""
    program = str(home / "venv" / "bin" / words[0])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FABULA", "PYTHON"))}
    kept |= {"HOME": str(home), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([program, *words[1:]], cwd=home, env=kept, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    package = REPOSITORY / "src" / "fabula"
    listing = ["git", "ls-files", "--", "."]
    known = subprocess.run(listing, cwd=package, capture_output=True, text=True, check=False).stdout.split()
    expected = {f"fabula/{name}" for name in known if (package / name).exists()}
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert expected <= packed
    assert {"fabula/py.typed", "fabula/data/toy_grammar.toml"} <= packed
    assert not [name for name in packed if name.startswith(("tests", "recipes", "docs", "benchmarks"))]


def test_prepare_train_and_fill(home: Path) -> None:
    where = run(home, "python", "-c", "import fabula; print(fabula.__file__)")
    assert Path(where.strip()).is_relative_to(home / "venv")
    (home / "tiny.toml").write_text(TINY)
    report = json.loads(run(home, "fabula", "prepare", "--toy", "40", "--out", "toy", "--json"))
    assert report["splits"]["train"]["stories"] == 36
    outcome = json.loads(
        run(home, "fabula", "train", "tiny.toml", "--data", "toy", "--out", "run", "--quiet", "--json")
    )
    assert outcome["epoch"] == 1
    story = ["Tom rented an old boat for one day.", "_", "_", "After the storm Tom was safe and happy."]
    filled = json.loads(run(home, "fabula", "fill", *story, "--model", "run", "--samples", "4", "--json"))
    sentences = filled["candidates"][0]["sentences"]
    assert [sentence["written"] for sentence in sentences] == [False, True, True, False]
    assert [sentences[i]["text"] for i in (0, 3)] == [story[0], story[3]]
    assert all(sentence["text"] for sentence in sentences)
