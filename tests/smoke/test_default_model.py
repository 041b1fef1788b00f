"""The model that ships: within its size, offline, and able to fill in a story."""

from fabula import api

MIB = 2**20


def test_it_is_within_its_size_and_has_a_card() -> None:
    files = list((api.PACKAGED / "default").iterdir())
    assert sum(file.stat().st_size for file in files) <= 24 * MIB
    assert max(file.stat().st_size for file in files) <= 16 * MIB
    assert (api.PACKAGED / "default" / "CARD.md").exists()


def test_it_fills_in_a_story() -> None:
    """Damaged weights or a broken decoder show: a trained model is far from chance."""
    narrator = api.load(api.PACKAGED / "default")
    best = narrator.fill(["Tom lost his keys.", None, "Tom found them."], samples=10, candidates=1, seed=1).candidates[
        0
    ]
    written = best.sentences[1]
    assert written.text.endswith((".", "!", "?", '"'))
    # Chance is log 15,603 = 9.7 nats a word; the model's perplexity is about 19.
    assert written.log_p / (len(written.text.split()) + 2) > -5
    assert narrator.tag(["She was happy.", "He cried."]).tags == ("positive", "negative")
