"""A studio and a real Chromium, one of each for all tests; a fresh page for every test."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import WAIT_MS, Desk, Watch
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from doors import Serving
from fabula.apps.studio.app import StudioSettings, create_app
from fabula.corpus.dataset import Corpus
from fabula.models.io import save
from fabula.training.loop import train
from fabula.training.recipe import recipe_from

NAMES = ("chromium", "chromium-browser", "google-chrome")
# For a machine without a network, where nothing may be asked for and nobody watches.
FLAGS = [
    *["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
    *["--disable-component-update", "--disable-sync"],
]
TINY = {
    "name": "tiny",
    "model": {
        "kind": "slds",
        "language": {"embedding": 24, "hidden": 48},
        "dynamics": {"latent": 4},
        "recognition": {"hidden": 16},
    },
    "train": {"epochs": 6, "batch": 24, "learning_rate": 1e-2},
}


@pytest.fixture(scope="session")
def small_model(toy_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the toy grammar, trained in seconds: quick to answer, and it knows the grammar's words."""
    folder = tmp_path_factory.mktemp("models") / "small"
    run = tmp_path_factory.mktemp("run")
    save(folder, train(recipe_from(TINY), Corpus.open(toy_corpus), run, device="cpu", bar=False))
    return folder


@pytest.fixture(scope="session")
def studio(serving: Serving, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a studio that all tests share; its stories are told apart by their titles."""
    db = tmp_path_factory.mktemp("studio") / "studio.db"
    with serving(create_app(StudioSettings(model=str(small_model), db=db))) as url:
        yield url


@pytest.fixture(scope="session")
def quick_studio(serving: Serving, random_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a studio with an untrained model that answers at once."""
    db = tmp_path_factory.mktemp("quick") / "studio.db"
    with serving(create_app(StudioSettings(model=str(random_models / "default"), db=db, workers=1))) as url:
        yield url


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = next((found for found in map(shutil.which, NAMES) if found), None)
    if path is None:
        pytest.skip("no chromium was found: run `make browser`")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser profile of its own, wide screen."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    context.set_default_timeout(WAIT_MS)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, watch: Watch) -> Iterator[Page]:
    """A blank page; at the end its console has nothing that the test did not expect."""
    page = context.new_page()
    page.on("console", watch.heard)
    page.on("pageerror", lambda error: watch.complaints.append(f"uncaught: {error}"))
    yield page
    assert not watch.unexpected


@pytest.fixture
def desk(page: Page, studio: str) -> Desk:
    """The studio's blank page."""
    return Desk(page, studio).open()
