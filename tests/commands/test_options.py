from dataclasses import dataclass, fields
from typing import Annotated

from cyclopts import App, Parameter

from steinscope.commands.options import given_options, optional
from steinscope.settings import FitSettings, RunSettings


@dataclass(frozen=True)
class Settings:
    """Some settings.

    Arguments:
        steps: How many `steps`
            are made.
        pair: Two numbers.
        is_on: What is on by default.
        name: Left out.
    """

    steps: int = 3
    pair: tuple[float, float] = (0.5, 0.9)
    is_on: bool = True
    name: str = "x"


Options = optional(Settings, leave_out=("name",), texts={"pair": "Other words."})
NOTHING = Options()


def parse(*arguments):
    """What a command with these options is given."""
    app = App(result_action="return_value")

    @app.default
    def command(settings: Annotated[Options, Parameter(name="*")] = NOTHING):
        return given_options(settings)

    return app(arguments)


def test_only_what_was_given_is_passed_on():
    assert parse() == {}
    assert parse("--steps", "5") == {"steps": 5}
    assert parse("--pair", "0.1", "0.2", "--no-is-on") == {"pair": (0.1, 0.2), "is_on": False}


def test_help_is_that_of_the_settings(capsys):
    parse("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "How many steps are made." in text and "[default: 3]" in text and "[default: 0.5 0.9]" in text
    assert "Other words." in text and "Two numbers." not in text and "--name" not in text and "[default: on]" in text


def test_every_setting_of_the_library_is_an_option():
    for settings in (FitSettings, RunSettings):
        made = optional(settings)
        assert [field.name for field in fields(made)] == [field.name for field in fields(settings)]
        assert given_options(made()) == {}
