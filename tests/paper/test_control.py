"""Tags in, tags out: the macro-F1 of stories that follow their tags, and of some that do not."""

import numpy as np
import pytest

from fabula.corpus.taggers.sentiment import VaderTagger
from fabula_paper.scoring import macro_f1

GLAD, PLAIN, SAD = "She was happy and glad.", "He opened the door.", "It was a terrible disaster."


def test_f1_by_hand() -> None:
    S = np.array([[2, 1, 0], [2, 1, 0]])
    right = [[GLAD, PLAIN, SAD], [GLAD, PLAIN, SAD]]
    # One of the sad sentences comes out plain: F1 of sad 2/3, of plain 4/5, of glad 1.
    wrong = [[GLAD, PLAIN, SAD], [GLAD, PLAIN, PLAIN]]
    f1, (low, high) = macro_f1([right, wrong], S, VaderTagger(), draws=200, seed=0)
    assert f1.tolist() == pytest.approx([100, 100 * (2 / 3 + 4 / 5 + 1) / 3])
    assert low is not None
    assert high is not None
    assert low <= f1.mean() <= high == 100
