"""What a bare machine needs: a prepared corpus is trained on and measured without the packages that read raw text."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fabula.corpus.prepare import prepare_stories
from fabula.corpus.toy import toy_splits
from small import TINY

HIDDEN = (
    *("spacy", "vaderSentiment", "tokenizers", "transformers", "huggingface_hub", "sklearn", "scipy", "matplotlib"),
    *("fastapi", "uvicorn", "sse_starlette", "pydantic", "mcp", "krippendorff", "PIL"),
    *("beartype", "pytest", "hypothesis", "httpx", "fabula_paper"),
)

HIDE = """
import sys
from importlib.machinery import PathFinder
class Bare(PathFinder):
    names = set({names!r})
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in cls.names else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Bare
"""


def bare(program: str, folder: Path, *further: str) -> str:
    text = HIDE.format(names=(*HIDDEN, *further)) + program
    ended = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    prepare_stories(toy_splits(60, 0), folder / "toy", provenance={"toy": 60, "seed": 0}, progress=False)
    for kind in ("slds", "s2s"):
        (folder / f"{kind}.toml").write_text(f'model.kind = "{kind}"\n' + TINY)
    return folder


@pytest.mark.system
def test_a_prepared_corpus_is_trained_on_and_measured(folder: Path) -> None:
    program = """
from fabula.cli import main
for kind in ("slds", "s2s"):
    assert main(["train", f"{kind}.toml", "--data", "toy", "--out", kind, "--device", "cpu", "--quiet"]) == 0
    words = ["evaluate", "likelihood", "--model", kind, "--data", "toy", "--split", "test", "--samples", "2", "--json"]
    assert main([*words, "--device", "cpu"]) == 0
"""
    printed = bare(program, folder).splitlines()
    records = [json.loads(line) for line in printed if line.startswith("{")]
    assert [record["recipe"] for record in records] == ["slds", "s2s"]
    assert all(record["ppl"] > 1 for record in records)


def test_reading_a_prepared_corpus_needs_numpy_alone(toy_corpus: Path) -> None:
    program = """
import fabula.corpus.read, fabula.corpus.taggers.sentiment, fabula.corpus.toy
from fabula.corpus.dataset import Corpus
from fabula.corpus.tokenize import detokenise
corpus = Corpus.open(".")
print(detokenise(corpus.vocabulary.decode(corpus.split("train").sentences(0)[0])))
"""
    assert bare(program, toy_corpus, "torch", "tqdm").rstrip().endswith(".")


def test_importing_fabula_and_asking_for_help_is_light(tmp_path: Path) -> None:
    """Neither may wait for torch or numpy, of which the second alone takes a tenth of a second."""
    program = """
import sys
import fabula
assert fabula.__version__
alone = {name.partition(".")[0] for name in sys.modules}
assert not alone & {"torch", "numpy", "spacy", "tqdm"}, alone
from fabula.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
for command in ("fill", "prepare", "train", "studio"):
    try:
        main([command, "--help"])
    except SystemExit:
        pass
heavy = {"torch", "numpy", "spacy", "vaderSentiment", "safetensors", "fastapi", "tqdm"} & set(sys.modules)
print(sorted(heavy), file=sys.stderr)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "[]\n")
    assert "write the missing sentences of a story" in ended.stdout


@pytest.mark.system
def test_filling_in_imports_no_server_and_no_tagger_before_the_first_draw(tmp_path: Path) -> None:
    program = """
import sys
from fabula import filling
from fabula.cli import main
def stop(*arguments):
    heavy = {"vaderSentiment", "fastapi", "uvicorn", "transformers", "sklearn", "scipy", "matplotlib"}
    print(sorted(heavy & set(sys.modules)))
    raise SystemExit(0)
filling.fill_stories = stop
main(["fill", "Tom was sad.", "_", "Tom smiled."])
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "[]\n"), ended.stderr
