"""Text from outside never controls the terminal."""

from __future__ import annotations

import pytest

from onbeat.cli.terminal import clean, print_fields, print_json, print_table

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x1b[0m [bold]markup[/bold] a\x00b\x9bc\u202edcba\nnext"
HARMLESS = "red [bold]markup[/bold] abcdcba next"


def test_clean_takes_every_control_sequence_away() -> None:
    assert clean(HOSTILE) == HARMLESS


def test_tables_and_fields_show_text_as_it_is_without_controls(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name",), [(HOSTILE,)], empty="none")
    print_fields([("name", HOSTILE)])
    shown = capsys.readouterr().out
    assert shown.count(HARMLESS) == 2
    assert "\x1b" not in shown


def test_json_carries_no_raw_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": HOSTILE})
    assert all(character == "\n" or " " <= character <= "~" for character in capsys.readouterr().out)


def test_ids_are_never_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    run_id = "run_" + "a" * 26
    print_table(("id", "error"), [(run_id, "x" * 500)], empty="none")
    assert run_id in capsys.readouterr().out
