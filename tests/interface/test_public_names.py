"""Everything public is in `fabula.__all__`, is found, has a docstring; and the examples in docstrings run."""

import doctest
import inspect
from concurrent.futures import ThreadPoolExecutor

import pytest

import fabula
from fabula import api, completion, loaded, reading, results
from fabula.sampling import text


def test_all_is_complete_and_every_name_says_what_it_is() -> None:
    for name in fabula.__all__:
        assert name == "__version__" or inspect.getdoc(getattr(fabula, name)), name
    kinds = {
        name for name, kind in vars(results).items() if inspect.isclass(kind) and kind.__module__ == results.__name__
    }
    assert kinds - {"Answer"} <= set(fabula.__all__)
    assert set(fabula.__all__) <= set(dir(fabula))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        fabula.nothing  # noqa: B018
    for name, method in inspect.getmembers(fabula.StoryModel, inspect.isfunction):
        assert name.startswith("_") or method.__doc__, name


@pytest.mark.parametrize(
    "module", [api, completion, loaded, reading, results, text], ids=lambda module: module.__name__
)
def test_the_examples_of_docstrings_run(module: object) -> None:
    with ThreadPoolExecutor(1) as pool:  # a browser's event loop may be running in this thread
        examples = pool.submit(doctest.testmod, module, extraglobs={"fabula": fabula}).result()  # type: ignore[arg-type]
    assert examples.attempted >= (2 if module is text else 1)
    assert not examples.failed
