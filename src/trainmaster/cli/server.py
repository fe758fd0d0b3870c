"""`trainmaster server`: the process that decides."""

from pathlib import Path

import click

from trainmaster.cli.options import Noun, settings, settings_flags


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster server run --fleet fleet.toml", "in the foreground, until it is interrupted"),
        ("trainmaster server run --port 7070", "on a port of your choice"),
        ("trainmaster server run --state /var/lib/trainmaster", "with its log there"),
    ],
)
def server() -> None:
    """Run the server."""


@server.command(
    examples=[
        ("trainmaster server run --fleet fleet.toml", "declares the fleet, then serves"),
        ("trainmaster server run --port 0", "takes a free port and says which"),
        ("trainmaster server run --state /var/lib/trainmaster", "with its log there"),
    ],
    exit_codes=(0, 1, 2),
)
@click.option("--fleet", type=click.Path(path_type=Path), metavar="FILE", help="Fleet file; hosts that are new join.")
@click.option("--state", type=click.Path(path_type=Path), metavar="DIR", help="Directory of the log and the tokens.")
@click.option("--host", metavar="ADDRESS", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option("--allow-remote", is_flag=True, help="Listen on an address that others can reach.")
@settings_flags()
def run(fleet: Path | None, state: Path | None, host: str | None, port: int | None, allow_remote: bool) -> None:
    """Run the server in the foreground until SIGINT or SIGTERM.

    Prints one line with its address when it is ready. Flags outrank what the fleet file says.
    """
    from trainmaster.core.base.time import in_seconds
    from trainmaster.live.declaration import load
    from trainmaster.live.server.main import serve
    from trainmaster.live.server.service import Settings

    file, declaration = load(fleet) if fleet is not None else (None, None)
    directory = state if state is not None else Path(settings().run_dir)
    usual = Settings()
    serve(
        directory,
        host=host or (file.server_host if file is not None else "127.0.0.1"),
        port=port if port is not None else (file.server_port if file is not None else 0),
        declaration=declaration,
        settings=Settings(
            heartbeat_s=in_seconds(file.heartbeat) if file is not None else usual.heartbeat_s,
            heartbeat_timeout_s=in_seconds(file.silence) if file is not None else usual.heartbeat_timeout_s,
            jobs_dir=str(directory.absolute() / "jobs"),
        ),
        allow_remote=allow_remote,
    )
