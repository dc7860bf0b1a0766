"""The daemon's settings: one struct, one name per setting (docs/reference/settings.md, generated from here).

A setting `drain` is the TOML key `drain = 4`, `RELAYD_DRAIN=4` in the environment and `--drain 4` on the command
line. Later ones win: default, file, environment, flag. Sizes end in `_bytes`; times are seconds.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, cast

import msgspec

from relayd.protocol.address import default_socket
from relayd.protocol.errors import RelaydError
from relayd.protocol.limits import FRAME_BYTES_MAX, KIB, MIB

GIB: Final = 1024 * MIB
SOCKET_PATH_BYTES_MAX: Final = 107
"""What the kernel's sockaddr_un takes, without the final zero."""

_RELOADABLE: Final = {"reloadable": True}
_PATH: Final = {"path": True}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an administrator may choose. Paths are absolute; sizes are bytes, times seconds."""

    state: Annotated[
        str, msgspec.Meta(min_length=1, extra=_PATH, description="The state directory: everything relayd keeps.")
    ]
    socket: Annotated[str, msgspec.Meta(min_length=1, extra=_PATH, description="The Unix socket that clients use.")]
    socket_mode: Annotated[
        str,
        msgspec.Meta(pattern=r"^0?[0-7]{3}$", description="Octal mode of the socket: who may connect."),
    ] = "0600"
    connections: Annotated[
        int,
        msgspec.Meta(ge=1, le=65_536, extra=_RELOADABLE, description="Connections at once; further ones are refused."),
    ] = 4096
    in_flight: Annotated[
        int,
        msgspec.Meta(ge=1, le=65_536, description="Unanswered requests of a connection; past it reading stops."),
    ] = 1024
    in_flight_bytes: Annotated[
        int,
        msgspec.Meta(
            ge=FRAME_BYTES_MAX,
            le=GIB,
            description="Bytes of unanswered requests of a connection; past it reading stops.",
        ),
    ] = 16 * MIB
    waiting: Annotated[
        int,
        msgspec.Meta(ge=1, le=65_536, description="Requests of a connection that wait; past it `overloaded`."),
    ] = 256
    consumers: Annotated[
        int, msgspec.Meta(ge=1, le=1024, description="Consumers that a relay remembers; past it `overloaded`.")
    ] = 64
    queue: Annotated[
        int,
        msgspec.Meta(ge=1, le=15_000, description="Commands of a relay that have not ended; past it `overloaded`."),
    ] = 10_000
    lease: Annotated[
        float,
        msgspec.Meta(
            ge=0.1,
            le=86_400,
            extra=_RELOADABLE,
            description="How long a worker whose connection ended may come back for what it held.",
        ),
    ] = 30.0
    barrier: Annotated[
        float,
        msgspec.Meta(
            ge=0.1, le=86_400, extra=_RELOADABLE, description="How long a checkpoint may stand, from its acceptance."
        ),
    ] = 600.0
    segment_bytes: Annotated[
        int, msgspec.Meta(ge=4 * KIB, le=GIB, description="Size at which the active segment is rotated.")
    ] = 8 * MIB
    snapshot_bytes: Annotated[
        int, msgspec.Meta(ge=4 * KIB, le=GIB, description="Bytes of events after which a snapshot is written.")
    ] = 4 * MIB
    snapshot_events: Annotated[
        int, msgspec.Meta(ge=1, le=10_000_000, description="Number of events after which a snapshot is written.")
    ] = 20_000
    idle_relay: Annotated[
        float,
        msgspec.Meta(ge=0.1, le=86_400, extra=_RELOADABLE, description="How long a relay nobody uses stays open."),
    ] = 60.0
    pending_bytes: Annotated[
        int,
        msgspec.Meta(
            ge=FRAME_BYTES_MAX,
            le=GIB,
            description="Bytes of a relay's events that may wait for the disk; past it recording is `overloaded`.",
        ),
    ] = 64 * MIB
    tail_bytes: Annotated[
        int, msgspec.Meta(ge=0, le=GIB, description="Newest records that a relay keeps in memory for its readers.")
    ] = 2 * MIB
    tails_bytes: Annotated[int, msgspec.Meta(ge=0, le=64 * GIB, description="The same, all relays together.")] = (
        64 * MIB
    )
    page_cache_bytes: Annotated[
        int, msgspec.Meta(ge=0, le=64 * GIB, description="Unpacked history kept in memory, all relays together.")
    ] = 8 * MIB
    file_threads: Annotated[int, msgspec.Meta(ge=1, le=256, description="Threads that read and write files.")] = 8
    drain: Annotated[
        float,
        msgspec.Meta(
            ge=0, le=3600, extra=_RELOADABLE, description="How long a clean stop may take to finish requests."
        ),
    ] = 4.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        msgspec.Meta(extra=_RELOADABLE, description="The least that is logged."),
    ] = "info"
    log_format: Annotated[
        Literal["auto", "json", "console"],
        msgspec.Meta(description="`auto`: for people on a terminal, JSON lines elsewhere."),
    ] = "auto"
    log_file: Annotated[
        str | None,
        msgspec.Meta(
            extra=_RELOADABLE | _PATH,
            description="Where the log goes, opened anew at SIGHUP; standard error without it.",
        ),
    ] = None

    @property
    def socket_mode_bits(self) -> int:
        """`socket_mode` as the number that chmod takes."""
        return int(self.socket_mode, 8)


class SettingsError(RelaydError):
    """A setting that is not known, or a value that does not belong there."""

    code = "invalid_settings"


class Origin(NamedTuple):
    """Where a setting's value came from; `where` is the file, the variable or the flag, empty for a default."""

    source: Literal["default", "file", "environment", "flag"]
    where: str = ""

    def __str__(self) -> str:
        return self.source if not self.where else f"{self.source} {self.where}"


class Loaded(NamedTuple):
    """Settings, and for each its origin, in the struct's order."""

    settings: Settings
    origins: dict[str, Origin]


@dataclass(frozen=True)
class Setting:
    """One setting as the command line and the manual need it; `default` is None where it depends on the machine."""

    name: str
    type: object
    default: str | int | float | None
    description: str
    expected: str
    reloadable: bool
    path: bool

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return f"RELAYD_{self.name.upper()}"

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return "--" + self.name.replace("_", "-")

    def convert(self, value: object, *, text: bool) -> object:
        """`value` as the setting's type; `text` where it was written as a string whatever it means.

        Raises ValueError where it does not belong here.
        """
        if self.name.endswith("_bytes") and isinstance(value, str):
            value = _parse_size(value)
        return msgspec.convert(value, self.type, strict=not text)


_UNITS: Final = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB}
_SIZE: Final = re.compile(r"([0-9]{1,15}) ?([a-zA-Z]*)", re.ASCII)


def _parse_size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError(text)
    return int(found[1]) * _UNITS[found[2].lower()]


def format_size(size_bytes: int) -> str:
    """A size as `_bytes` settings are written by people: `8 MiB`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return str(size_bytes)


def _expected(name: str, kind: msgspec.inspect.Type) -> str:
    match kind:
        case msgspec.inspect.IntType(ge=low, le=high) if name.endswith("_bytes"):
            return f"a size from {format_size(low or 0)} to {format_size(high or 0)} (bytes, or with KiB, MiB, GiB)"
        case msgspec.inspect.IntType(ge=low, le=high):
            return f"a whole number from {low} to {high}"
        case msgspec.inspect.FloatType(ge=low, le=high):
            return f"seconds, from {low:g} to {high:g}"
        case msgspec.inspect.LiteralType(values=values):
            return "one of " + ", ".join(map(str, values))
        case _ if name == "socket_mode":
            return 'three octal digits in quotes, like "0600"'
        case _:
            return "a path"


def _read_struct() -> Iterator[Setting]:
    described = msgspec.inspect.type_info(Settings)
    assert isinstance(described, msgspec.inspect.StructType)
    for field, kind in zip(msgspec.structs.fields(Settings), (f.type for f in described.fields), strict=True):
        assert isinstance(kind, msgspec.inspect.Metadata)
        # msgspec types both as bare dicts.
        extra = cast("dict[str, object]", kind.extra or {})  # pyright: ignore[reportUnknownMemberType]
        schema = cast("dict[str, str]", kind.extra_json_schema)  # pyright: ignore[reportUnknownMemberType]
        yield Setting(
            field.name,
            field.type,
            None if field.default is msgspec.NODEFAULT else field.default,
            schema["description"],
            _expected(field.name, kind.type),
            reloadable="reloadable" in extra,
            path="path" in extra,
        )


SETTINGS: Final[dict[str, Setting]] = {setting.name: setting for setting in _read_struct()}

OTHER_VARIABLES: Final = frozenset(
    {"RELAYD_CONFIG", "RELAYD_CLIENT", "RELAYD_ASKER", "RELAYD_AUTHOR", "RELAYD_WORKER", "RELAYD_TRACEBACK"}
)
"""Variables that are no settings of the daemon: what the clients and the command line read."""


def default_state(environ: Mapping[str, str]) -> str:
    """The state directory of who names none: the machine's for root, else the user's own."""
    if os.geteuid() == 0:
        return "/var/lib/relayd"
    home = environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return str(Path(home) / "relayd")


def load_settings(
    *, config: str | None = None, environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
) -> Loaded:
    """Reads the settings: defaults, then the file `config` (or `RELAYD_CONFIG`), then `environ`, then `flags`.

    `flags` is keyed by settings' names; None values count as not given, as empty variables do. Relative paths of the
    file start at the file's directory, others at the working directory. Raises SettingsError.
    """
    environ = os.environ if environ is None else environ
    config = config or environ.get("RELAYD_CONFIG") or None
    values: dict[str, object] = {"state": default_state(environ), "socket": default_socket(environ)}
    values |= {name: setting.default for name, setting in SETTINGS.items() if name not in values}
    origins = dict.fromkeys(SETTINGS, Origin("default"))
    for setting, origin, value in _given(config, environ, flags or {}):
        values[setting.name] = _convert(setting, origin, value)
        origins[setting.name] = origin
    settings = msgspec.convert(values, Settings)
    _check_together(settings, origins)
    return Loaded(settings, origins)


def _given(
    config: str | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> Iterator[tuple[Setting, Origin, object]]:
    if config is not None:
        for key, value in _read_file(config).items():
            yield _find(key, SETTINGS, f"{config}: "), Origin("file", config), value
    variables = {setting.variable: setting for setting in SETTINGS.values()}
    for key, value in environ.items():
        if key.startswith("RELAYD_") and key not in OTHER_VARIABLES and value:
            yield _find(key, variables, "environment: ", OTHER_VARIABLES), Origin("environment", key), value
    for key, value in flags.items():
        if value is not None:
            setting = _find(key, SETTINGS, "flags: ")
            yield setting, Origin("flag", setting.flag), value


def _find(key: str, known: Mapping[str, Setting], place: str, others: Iterable[str] = ()) -> Setting:
    if key in known:
        return known[key]
    near = get_close_matches(key, [*known, *others], n=1)
    hint = f"; did you mean `{near[0]}`?" if near else "; `relayd config show` lists all there are"
    raise SettingsError(f"{place}there is no setting `{key}`{hint}")


def _read_file(config: str) -> dict[str, object]:
    try:
        with Path(config).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SettingsError(
            f"the settings file {config} cannot be read: {error.strerror}; name another with --config or RELAYD_CONFIG"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{config} is no TOML: {error}") from None


def _convert(setting: Setting, origin: Origin, value: object) -> object:
    try:
        converted = setting.convert(value, text=origin.source != "file")
    except ValueError:
        name = {"environment": setting.variable, "flag": setting.flag}.get(origin.source, setting.name)
        place = f"{origin.where}: " if origin.source == "file" else ""
        raise SettingsError(f"{place}`{name}` is {value!r}; what belongs there is {setting.expected}") from None
    if setting.path and isinstance(converted, str):
        base = Path(origin.where).parent if origin.source == "file" else Path()
        return str((base / Path(converted).expanduser()).absolute())
    return converted


def _check_together(settings: Settings, origins: Mapping[str, Origin]) -> None:
    length = len(os.fsencode(settings.socket))
    if length > SOCKET_PATH_BYTES_MAX:
        raise SettingsError(
            f"`socket` ({origins['socket']}) is a path of {length} bytes; the system takes at most "
            f"{SOCKET_PATH_BYTES_MAX}: choose a shorter one"
        )


def reload_settings(current: Settings, fresh: Settings) -> tuple[Settings, list[str]]:
    """`current` with what `fresh` may change in a running daemon, and the names of what it may not but would."""
    changed = [name for name in SETTINGS if getattr(current, name) != getattr(fresh, name)]
    taken = {name: getattr(fresh, name) for name in changed if SETTINGS[name].reloadable}
    return msgspec.structs.replace(current, **taken), [name for name in changed if name not in taken]
