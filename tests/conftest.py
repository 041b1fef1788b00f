"""What several folders of tests share: a small toy corpus and a recipe small enough to train in a second."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from fabula.corpus.prepare import prepare_stories
from fabula.corpus.toy import toy_splits
from fabula.models.decoders.adapter import Adapter, AdapterConfig, shapes
from fabula.models.decoders.bases import CACHE_VARIABLE, read_base
from fabula.models.io import save
from fabula.models.io.pretrained import save_adapter
from gguf_writer import write_tiny_base
from small import small_checkpoint

# A busy machine makes the first example slow (18 s instead of 0.1 were seen); time is not what these tests are about.
settings.register_profile("fabula", deadline=None)
settings.load_profile("fabula")

STORIES = 240
WORDS = [
    *[".", "!", "?", ",", "'s", "Mia", "Tom", "car", "would", "not", "start", "made", "it", "to", "work", "on", "time"],
    *["He", "She", "was", "sad", "glad", "the", "a", "dog"],
]


@pytest.fixture(scope="session")
def toy_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared folder of toy stories: 216 to train on, 12 to validate, 12 to test. Do not write into it."""
    folder = tmp_path_factory.mktemp("toy") / "corpus"
    provenance = {"toy": STORIES, "seed": 1}
    prepare_stories(toy_splits(STORIES, 1), folder, provenance=provenance, progress=False)
    return folder


@pytest.fixture
def tiny_recipe() -> dict[str, Any]:
    """Our SLDS with everything that makes it ours switched on, at sizes of a second; the test may change it."""
    return {
        "name": "tiny",
        "model": {
            "kind": "slds",
            "language": {"embedding": 12, "hidden": 16, "dropout": 0.2},
            "dynamics": {"latent": 3},
            "recognition": {"hidden": 8, "dropout": 0.1},
        },
        "objective": {
            "posterior": "smoothing",
            "evidence_dropout": 0.5,
            "target_kl": 1.0,
        },
        "train": {"epochs": 2, "batch": 32, "learning_rate": 5e-3, "average": 0.9},
    }


@pytest.fixture(scope="session")
def to_toml() -> Callable[[dict[str, Any]], str]:
    """Writes nested tables of numbers, strings and booleans as TOML."""

    def table(content: dict[str, Any], path: str = "") -> str:
        lines = [f"[{path}]"] if path else []
        inner = {key: value for key, value in content.items() if isinstance(value, dict)}
        for key, value in content.items():
            if key not in inner:
                lines.append(f"{key} = {json.dumps(value)}")
        return "\n".join([*lines, *(table(value, f"{path}.{key}".lstrip(".")) for key, value in inner.items())]) + "\n"

    return table


@pytest.fixture(scope="session")
def random_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of untrained models that answer at once: `default` (slds), `lds`, `lm`, `s2s`. Do not write into it."""
    root = tmp_path_factory.mktemp("random-models")
    for kind in ("slds", "lds", "lm", "s2s"):
        save(root / ("default" if kind == "slds" else kind), small_checkpoint(kind, words=WORDS))
    return root


@pytest.fixture
def tiny_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A random base of two layers, with a cache of its own."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return write_tiny_base(tmp_path / "tiny.gguf")


@pytest.fixture
def tiny_narrator(tiny_base: Path, tmp_path: Path) -> Path:
    """The folder of a random narrator on the tiny base."""
    base = read_base(tiny_base)
    config = AdapterConfig(base_sha256=base.sha256, rank=2, scale=2.0, labels=("bad", "good"), tagger="none")
    generator = torch.Generator().manual_seed(4)
    tensors = {name: torch.randn(*shape, generator=generator) / 5 for name, shape in shapes(base.sizes, 2).items()}
    save_adapter(Adapter(config, tensors), tmp_path / "narrator")
    return tmp_path / "narrator"


@pytest.fixture(scope="session")
def serving() -> Callable[..., AbstractContextManager[str]]:
    """Serves an app on a port of its own, by the real server in a thread: `with serving(app) as url`."""
    import uvicorn

    from fabula.apps.web.serve import bind

    class Server(uvicorn.Server):
        ready = threading.Event()

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            self.ready.set()

    @contextmanager
    def served(app: Any, **settings: Any) -> Iterator[str]:
        listening = bind("127.0.0.1", 0)
        server = Server(uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=1, **settings))
        server.ready = threading.Event()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        assert server.ready.wait(60)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(60)
        listening.close()

    return served
