"""How a bucket is reached: which server, with which credentials, how often it is asked again.

Everything comes from where other tools of S3 look for it, and nowhere else: the variables `AWS_*`; then the profile
(`AWS_PROFILE`, else `default`) in the shared files `~/.aws/credentials` and `~/.aws/config`; then what the machine
offers (the role of a container or of the instance, which the client asks for). Nothing of it is ever printed, logged or
kept. A profile that needs a program to be resolved (single sign-on, roles, helpers) is refused with the command that
resolves it, since guessing would end in a refusal of the server that says less.

A request is asked again for a minute at most. Longer is no patience but a hang: the step of a job may wait for it.
"""

import configparser
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

RETRIES: Final = 6
RETRY_S: Final = 60
_KEYS: Final = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}
_INDIRECT: Final = ("sso_session", "sso_start_url", "role_arn", "credential_process")
_IN_THE_ENVIRONMENT: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


class NoAccess(PermissionError):
    """It is not known how to reach a bucket. Its text is a sentence for users."""


def access(environment: Mapping[str, str], home: Path) -> dict[str, Any]:
    """The settings of a client, for `obstore`. Raises `NoAccess`."""
    profile = _profile(environment, home)
    has_keys = "aws_access_key_id" in profile and "aws_secret_access_key" in profile
    elsewhere = any(environment.get(name) for name in _IN_THE_ENVIRONMENT)
    indirect = [name for name in _INDIRECT if name in profile]
    if indirect and not has_keys and not elsewhere:
        named = environment.get("AWS_PROFILE") or "default"
        raise NoAccess(
            f"the profile {named} has no keys of its own but {indirect[0]}; "
            f'resolve it first: eval "$(aws configure export-credentials --profile {named} --format env)"'
        )
    found = {new: profile[name] for name, new in _KEYS.items() if name in profile}
    if elsewhere:
        for name in ("access_key_id", "secret_access_key", "session_token"):
            found.pop(name, None)
    elif not has_keys and environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise NoAccess(
            "there are no credentials: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY nor keys of a profile in "
            "~/.aws/credentials, and the instance must not be asked (AWS_EC2_METADATA_DISABLED)"
        )
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or found.get("region")
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or found.get("endpoint")
    found["region"] = region or "us-east-1"
    if endpoint:
        found["endpoint"] = endpoint
    return {
        **found,
        "client_options": {
            "allow_http": bool(endpoint and endpoint.startswith("http://")),
            "connect_timeout": timedelta(seconds=5),
            "timeout": timedelta(seconds=120),
        },
        "retry_config": {
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=RETRY_S),
            "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10), "base": 2},
        },
    }


def _profile(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """What both files say about the profile; empty if there are none. Raises `NoAccess` if it is named but absent."""
    name = environment.get("AWS_PROFILE") or "default"
    config = _read(Path(environment.get("AWS_CONFIG_FILE") or home / ".aws" / "config"))
    keys = _read(Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials"))
    in_config = name if name == "default" else f"profile {name}"
    if "AWS_PROFILE" in environment and not (config.has_section(in_config) or keys.has_section(name)):
        raise NoAccess(f"there is no profile {name} (AWS_PROFILE) in ~/.aws/config or ~/.aws/credentials")
    found: dict[str, str] = {}
    for file, section in ((config, in_config), (keys, name)):
        if file.has_section(section):
            found.update(file[section])
    return found


def _read(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, default_section="\0none")
    try:
        if path.exists():
            parser.read_string(path.read_text(encoding="utf-8"))
    except (configparser.Error, UnicodeDecodeError):
        # Not the text of the error: it quotes lines, and a line may be a key.
        raise NoAccess(f"{path} cannot be understood; look at its sections and lines") from None
    return parser
