"""Options of the command line, and settings that are options: fields of dataclasses with default, help and limits."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, NoReturn

from calopipe.errors import BAD_INPUT_EXIT_CODE, InputError

# By the annotation of a field: the type of its value.
_KINDS: Mapping[str, type] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "tuple[str, ...]": tuple,
    "Mapping[str, Any]": dict,
}
_METAVARS = {int: "N", float: "X", dict: "NAME=VALUE"}  # words for a value in the help; else NAME


def setting(
    default: Any = MISSING,
    *,
    help: str,  # noqa: A002  as argparse calls it
    known: Collection[str] = (),
    least: float | None = None,
    below: float | None = None,
    metavar: str = "",
    flag: str = "",
    each: Callable[[str], Any] = str,
) -> Any:
    """A field of a dataclass that is an option of the command line, with its `help`.

    A value must be one of the names in `known`, or a number of at least `least` and under `below`, where these are
    given. A field without a `default` must be given a value. The name of the option is `flag`, or the field's name.
    `metavar` stands for the value in the help. The option of a list or a table is given once for each element; `each`
    converts the text of an element.
    """
    form = {"metavar": metavar, "flag": flag, "each": each}
    metadata = {"help": help, "known": known, "least": least, "below": below, **form}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def settings_of(kind: Any) -> list[Field[Any]]:
    """The fields of a dataclass, or of one of its objects, that are options of the command line."""
    return [setting for setting in fields(kind) if "help" in setting.metadata]


def type_of(field: Field[Any]) -> type:
    """The type of the field's value: int, float, str, bool, tuple or dict."""
    text = field.type.__name__ if isinstance(field.type, type) else str(field.type)  # text if annotations are postponed
    if text not in _KINDS:
        raise InputError(f"{option(field.name)} is of the type {text}, expected one of: {', '.join(_KINDS)}")
    return _KINDS[text]


def default_of(field: Field[Any]) -> Any:
    """The field's default, in types of JSON (a list for a tuple); None if the field must be given a value."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    if field.default is MISSING:
        return None
    return list(field.default) if type_of(field) is tuple else field.default


def option(name: str, value: Any = True) -> str:
    """The option of the command line that sets the field `name`: `--no-NAME` if `value` is False, else `--NAME`."""
    return f"--{'' if value else 'no-'}{name.replace('_', '-')}"


def option_help(field: Field[Any], default: Any = None) -> str:
    """The help of a parameter, a sentence, in the form of an option's help, with `default` or the field's default."""
    text, default = field.metadata["help"], default or default_of(field)
    text = text[0].lower() + (text if text.endswith("...") else text.removesuffix("."))[1:].replace("%", "%%")
    if field.metadata["flag"]:
        text = text.partition(",")[0]  # the rest is the form of the parameter as a whole
    return text + (f" (default: {default})" if default else "")


def add_settings(
    group: Any,
    settings: Iterable[Field[Any]],
    help_of: Callable[[Field[Any]], str] = lambda field: field.metadata["help"].replace("%", "%%"),
) -> None:
    """Add an option for each of `settings`, with the help that `help_of` gives; an option that is not given is None."""
    for setting in settings:
        kind = type_of(setting)
        form: dict[str, Any] = {"metavar": setting.metadata["metavar"] or _METAVARS.get(kind, "NAME"), "type": kind}
        if kind is bool:
            form = {"action": argparse.BooleanOptionalAction}
        elif kind in (tuple, dict):
            form |= {"action": "append", "type": setting.metadata["each"]}
        flag = setting.metadata["flag"] or option(setting.name)
        group.add_argument(flag, dest=setting.name, default=None, help=help_of(setting), **form)


def given_values(kind: Any, options: Any) -> dict[str, Any]:
    """The values of the settings of `kind` in the command line's `options`; options not given are left out."""
    values = {setting.name: getattr(options, setting.name, None) for setting in settings_of(kind)}
    return {name: value for name, value in values.items() if value is not None}


def check_settings(config: Any) -> None:
    """Raise InputError unless every setting of `config` is what `setting` says of it."""
    for setting in settings_of(config):
        value = getattr(config, setting.name)
        known, least, below = (setting.metadata[name] for name in ("known", "least", "below"))
        if known and value not in known:
            raise InputError(f"{option(setting.name)} {value!r} is unknown; known: {', '.join(known)}")
        if (least is not None and not value >= least) or (below is not None and not value < below):  # NaN is neither
            under = f" and under {below}" if below is not None else ""
            raise InputError(f"{option(setting.name)} is {value}, expected at least {least}{under}")


class _Store(argparse.Action):
    """Store the value of an option. If an option of several values (`nargs="+"`) is repeated, the values add up."""

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: Any, _option: str | None = None) -> None:
        earlier = getattr(namespace, self.dest)
        again = self.nargs == "+" and earlier is not self.default
        setattr(namespace, self.dest, [*earlier, *values] if again else values)


class CommandParser(argparse.ArgumentParser):
    """An argument parser that reports bad arguments in one line, like all bad input.

    Options are not abbreviated. An option of several values may be repeated. The epilog, which holds examples, is
    printed as it is.
    """

    def __init__(self, **named: Any) -> None:
        form: dict[str, Any] = {"allow_abbrev": False}
        if "epilog" in named:
            form["formatter_class"] = argparse.RawDescriptionHelpFormatter
        super().__init__(**form | named)
        self.register("action", None, _Store)

    def refuse(self, options: argparse.Namespace, names: Collection[str], reason: str) -> None:
        """Raise InputError, with the `reason`, if one of the options of these `names` is given."""
        for action in self._actions:
            if action.dest in names and getattr(options, action.dest) != action.default:
                raise InputError(f"{action.option_strings[0]} {reason}; leave it out")

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT_EXIT_CODE, f"error: {message}; see {self.prog} --help\n")
