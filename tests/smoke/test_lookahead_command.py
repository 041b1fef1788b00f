"""The look-ahead benchmark from the command line at toy size: a record, a table, and texts without the corpus's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from fabula.corpus.dataset import Corpus
from fabula.corpus.prepare import prepare_stories
from fabula.corpus.tokenize import detokenise
from fabula.corpus.toy import toy_splits
from fabula.models.build import build
from fabula.models.settings import DynamicsSettings, LanguageSettings, ModelSettings, RecognitionSettings
from fabula.training.checkpoint import Checkpoint, save
from fabula.training.recipe import Recipe

ROOT = Path(__file__).parents[2]


def checkpoint(folder: Path, kind: str, corpus: Corpus, seed: int) -> Path:
    """An untrained model."""
    torch.manual_seed(seed)
    settings = ModelSettings(
        kind=kind,
        language=LanguageSettings(embedding=8, hidden=12),
        dynamics=DynamicsSettings(latent=3),
        recognition=RecognitionSettings(hidden=6),
    )
    recipe = Recipe(name=f"untrained-{kind}", model=settings)
    K = len(corpus.labels)
    model = build(settings, len(corpus.vocabulary), torch.full((K,), 1 / K), torch.full((K, K), 1 / K))
    made = Checkpoint(
        model=model, vocabulary=corpus.vocabulary, labels=corpus.labels, recipe=recipe, corpus_hash=corpus.hash
    )
    save(folder / f"{kind}-{seed}", made)
    return folder / f"{kind}-{seed}"


def test_the_benchmark_leaves_a_record_and_no_sentence_of_the_corpus(tmp_path: Path) -> None:
    prepare_stories(toy_splits(400, 0), tmp_path / "corpus", provenance={"toy": 400, "seed": 0}, jobs=1, progress=False)
    corpus = Corpus.open(tmp_path / "corpus")
    runs = [checkpoint(tmp_path, kind, corpus, seed) for kind, seed in (("slds", 0), ("lm", 1), ("lm", 2))]
    command = [sys.executable, str(ROOT / "benchmarks" / "lookahead.py"), "--data", str(corpus.folder)]
    command += ["--model", str(runs[0]), "--judge", str(runs[1]), "--split", "test", "--stories", "5", "--samples", "4"]
    command += ["--chains", "2", "--plain", "2", "--reranked", "3", "--device", "cpu"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *more], capture_output=True, text=True, env=environment, timeout=120)

    out, texts = tmp_path / "record.json", tmp_path / "texts.txt"
    done = run("--lm", str(runs[2]), "--out", str(out), "--texts", str(texts))
    assert done.returncode == 0, done.stderr
    record = json.loads(out.read_text())
    assert record["recipe"] == "untrained-slds"
    assert record["data_hash"] == corpus.hash
    assert (record["n"], record["split"], record["seed"], record["kind"]) == (5, "test", 0, "estimate")
    assert record["commit"]
    assert set(record["systems"]) <= {line.split()[0] for line in done.stdout.splitlines()}
    assert record["systems"]["human"]["score"] == 1
    written = texts.read_text(encoding="utf-8")
    stories = corpus.split("test")
    assert sum(line.startswith("# ") for line in written.splitlines()) == 5
    assert "bridge: " in written
    assert "human" not in written
    for story in range(len(stories)):
        for sentence in stories.sentences(story):
            assert detokenise(corpus.vocabulary.decode(sentence.tolist())) not in written

    refused = run("--lm", str(runs[1]))
    assert refused.returncode != 0
    assert refused.stderr.strip() == "lookahead: --lm is the judge: what ranks stories must not judge them"
