"""The command line as a whole: help pages, exit codes, version; every option says what it does."""

import re
import subprocess
import sys

import pytest

import fabula
from doors import pages
from fabula import cli
from fabula.errors import UserError

READ_BY_PROGRAMS = ("prepare", "train", "evaluate likelihood", "fill", "write", "tag", "score", "models")


PAGES = dict(pages(cli.build_parser()))


def test_the_core_commands_come_first() -> None:
    shown = tuple(PAGES[""]._subparsers._group_actions[0].choices or ())  # type: ignore[union-attr]
    assert shown == (*cli.COMMANDS, *cli.further_commands())


@pytest.mark.parametrize("name", PAGES)
def test_every_page_describes_shows_and_explains_every_option(name: str) -> None:
    page = PAGES[name].format_help()  # completes the help of settings, whose defaults are the model's
    assert PAGES[name].description
    assert not name or f"examples:\n  fabula {name}" in page
    assert name not in READ_BY_PROGRAMS or "--json" in page
    for action in PAGES[name]._actions:
        assert action.help or action.dest in ("command", "what"), action.option_strings or action.dest
        assert all(option in page for option in action.option_strings)


@pytest.mark.parametrize("name", PAGES)
def test_defaults_in_help_are_the_defaults(name: str) -> None:
    """Where a help text says (default: x), or ends in a number in brackets, that is what the parser fills in.

    A default of None is settled after parsing, so it is not the parser's to state.
    """
    for action in PAGES[name]._actions:
        told = (action.help or "") % {"default": action.default}
        stated = re.search(r"\(default: ([^;,()]+)", told) or re.search(r"\(([\d.]+)\)$", told)
        if stated and action.default is not None:
            is_number = re.fullmatch(r"-?[\d.]+", stated[1])
            assert (float(stated[1]) if is_number else stated[1]) == action.default


WRONG = (
    "",
    "sing",
    "fill --sing",
    "fill --seed seven A. _",
    "evaluate",
    "evaluate likelihood",
    "prepare",
)


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_call_is_one_line_and_two(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(words.split())
    told = capsys.readouterr().err
    assert stopped.value.code == 2
    assert re.fullmatch(r"fabula[^\n]*\n", told), told
    assert "--help" in told


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (UserError("the kettle\nis cold"), 2, "fabula models: the kettle is cold\n"),
        (KeyboardInterrupt(), 130, "fabula models: stopped\n"),
    ],
)
def test_how_a_command_may_end(
    raised: BaseException, code: int, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop() -> None:
        raise raised

    monkeypatch.setattr("fabula.catalogue.installed", stop)
    assert cli.main(["models"]) == code
    assert capsys.readouterr().err == told


@pytest.mark.system
@pytest.mark.parametrize(
    ("fault", "code", "told"),
    [
        ("BrokenPipeError()", 0, ""),
        ("OSError(28, 'No space left on device')", 2, "fabula models: cannot write: No space left on device\n"),
        ("TypeError()", 1, "Traceback"),
    ],
)
def test_how_a_command_ends_that_cannot_print_or_has_a_fault(fault: str, code: int, told: str) -> None:
    """In a process of its own, because standard output is given up."""
    program = (
        "import sys, fabula.cli, fabula.catalogue\n"
        f"def stop(): raise {fault}\n"
        "fabula.catalogue.installed = stop\n"
        "sys.exit(fabula.cli.main(['models']))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert ended.stderr.startswith(told)
    assert bool(ended.stderr) == bool(told)


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["fill", "A.", "_", "--arc", "-+"], ["fill", "A.", "_", "--arc=-+"]),
        (["write", "--arc", "--", "--json"], ["write", "--arc=--", "--json"]),
        (["write", "--arc", "- +"], ["write", "--arc", "- +"]),
        (["write", "--arc", "--json"], ["write", "--arc", "--json"]),
    ],
)
def test_an_arc_may_begin_with_a_minus(words: list[str], read: list[str]) -> None:
    assert cli.arcs(words) == read


def test_python_m_fabula_is_the_command() -> None:
    ended = subprocess.run([sys.executable, "-m", "fabula", "--version"], capture_output=True, text=True, check=True)
    assert ended.stdout == f"fabula {fabula.__version__}\n"
