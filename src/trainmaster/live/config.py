"""Settings of the command line and of services started by it: one tree, its doc beside each field.

A setting comes from the first of: a flag, `TRAINMASTER_NAME` in the environment, the user's file
(`$XDG_CONFIG_HOME/trainmaster/config.toml`), the site's file (`/etc/trainmaster/config.toml`), the default. Where each
came from is kept, because "why does it talk to that server" is the first question of a bad morning. Unknown keys in a
file are errors. Unknown variables are not: workers of a job have variables with our prefix too. Secrets are read from
files that the settings name and are never settings themselves: flags and variables show up in process lists.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from trainmaster.core.base.value import Value
from trainmaster.live.tomlfile import Document, Table

SITE_FILE: Final = Path("/etc/trainmaster/config.toml")
PREFIX: Final = "TRAINMASTER_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


def _doc(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


class Config(Value):
    """All settings, resolved."""

    server: Annotated[str, _doc("URL of the server; empty: the one that was started in run_dir.")] = ""
    token_file: Annotated[
        str, _doc("File with the token to show to the server; default: `tokens/operator.token` in run_dir.")
    ] = ""
    run_dir: Annotated[
        str, _doc("Directory of the log, sockets and crash reports; default: $XDG_STATE_HOME/trainmaster.")
    ] = ""
    output: Annotated[
        Literal["table", "wide", "json", "jsonl", "yaml", "name"],
        _doc("Form of what commands print, unless -o is given."),
    ] = "table"
    color: Annotated[
        Literal["auto", "always", "never"], _doc("Colour of states; auto: on a terminal, unless NO_COLOR is set.")
    ] = "auto"
    readonly: Annotated[bool, _doc("Refuse every command that changes hosts or jobs.")] = False
    insecure: Annotated[bool, _doc("Send the token over plain http to other machines, where others may read it.")] = (
        False
    )


_PATHS: Final = frozenset({"token_file", "run_dir"})


class Resolved(Value):
    """The settings, and for each where it came from."""

    config: Config
    origins: dict[str, str]


class SettingError(ValueError):
    """A flag or variable with a value that its setting cannot have. For the person who set it."""

    def __init__(self, origin: str, reason: str, fix: str) -> None:
        self.origin, self.reason, self.fix = origin, reason, fix
        super().__init__(f"{origin}: {reason}; {fix}")


def docs() -> dict[str, str]:
    """One line of documentation for each setting."""
    return {field.name: field.type.__metadata__[0].description for field in msgspec.structs.fields(Config)}


def resolve(flags: Mapping[str, object], environ: Mapping[str, str], site_file: Path = SITE_FILE) -> Resolved:
    """The settings from all sources. Raises `SettingError` or `trainmaster.live.tomlfile.FileError`."""
    values: dict[str, Any] = {"run_dir": str(_state_home(environ) / "trainmaster")}
    origins = {field.name: "default" for field in msgspec.structs.fields(Config)}
    for file in (site_file, _config_home(environ) / "trainmaster" / "config.toml"):
        if file.exists():
            for name, value in _from_file(file).items():
                values[name], origins[name] = _absolute(name, value, file.parent), f"file {file}"
    for name in origins:
        variable = PREFIX + name.upper()
        if variable in environ:
            origin = f"environment {variable}"
            values[name], origins[name] = _absolute(name, _convert(name, environ[variable], origin), Path.cwd()), origin
    for name, flag in flags.items():
        origin = f"flag --{name.replace('_', '-')}"
        values[name], origins[name] = _absolute(name, _convert(name, flag, origin), Path.cwd()), origin
    values["token_file"] = values.get("token_file") or str(Path(values["run_dir"]) / "tokens" / "operator.token")
    return Resolved(config=Config(**values), origins=origins)


def _convert(name: str, value: object, origin: str) -> object:
    """Text of a variable, or the value of a flag, as the setting's type."""
    kind = {field.name: field.type for field in msgspec.structs.fields(Config)}[name]
    if kind.__origin__ is bool and isinstance(value, str):
        if value.lower() not in (*_TRUE, *_FALSE):
            raise SettingError(origin, f"{value!r} is neither yes nor no", "set it to 1 or 0")
        value = value.lower() in _TRUE
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        allowed = ", ".join(str(item) for item in getattr(kind.__origin__, "__args__", ()))
        raise SettingError(origin, f"{value!r} is not a value of {name}", f"use one of {allowed}") from error


def _from_file(file: Path) -> dict[str, object]:
    document = Document(file, "config file")
    values = {
        field.name: _from_table(document.root, field.name, field.type.__origin__)
        for field in msgspec.structs.fields(Config)
    }
    document.root.finish()
    document.finish()
    return {name: value for name, value in values.items() if document.root.has(name)}


def _from_table(table: Table, name: str, kind: Any) -> object:
    if kind is bool:
        return table.flag(name)
    if kind is str:
        return table.text(name, "")
    return table.choice(name, kind.__args__[0], kind.__args__)


def _absolute(name: str, value: object, base: Path) -> object:
    if name in _PATHS and value:
        return str(base / Path(str(value)).expanduser())
    return value


def _config_home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or _home(environ) / ".config")


def _state_home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_STATE_HOME") or _home(environ) / ".local" / "state")


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or os.path.expanduser("~"))
