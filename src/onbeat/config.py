"""Settings: each has one place for its default, type, bounds and meaning. Unknown names are errors.

From weak to strong: the default, `onbeat.toml` (or the file named by ONBEAT_CONFIG), the environment
(`ONBEAT_<NAME>`, or `ONBEAT_<NAME>_FILE` for a file that holds the value), the command line.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from onbeat.domain.egress_proxy import parse_proxy_url
from onbeat.domain.errors import ConfigError

PREFIX = "ONBEAT_"
# Read by the CLI's client commands, not by a server.
_NOT_SETTINGS = frozenset({"CONFIG", "URL", "API_KEY", "API_KEY_FILE"})


class Settings(BaseModel):
    """Everything that can be set."""

    # Defaults are checked too: a default that no longer fits what was set beside it must not start.
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    data: str = Field(
        "onbeat.sqlite3", description="Data file, or postgresql://user@host/database; see postgresql.md", repr=False
    )
    host: str = Field("127.0.0.1", description="Address the API listens on")
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(8623, description="Port of the API; 0 takes any free one")
    public_url: str | None = Field(
        None, description="How others reach this server: where handlers report, and what jobs may not call"
    )
    allowed_hosts: tuple[str, ...] = Field((), description="Host headers to accept; empty accepts every one")
    workers: Annotated[int, Field(ge=0, le=10_000)] = Field(
        50,
        description="Attempts that run at once in this process, up to twice as many while slow hosts hold them all; "
        "0 delivers nothing here",
    )
    delivery_processes: Annotated[int, Field(ge=0, le=64)] = Field(
        0,
        description="Processes beside this one that share `workers` and send its webhooks; 0: it sends them itself. "
        "`onbeat dev` always does",
    )
    lease_s: Annotated[float, Field(ge=1, le=3_600)] = Field(30.0, description="How long a worker holds a run unheard")
    heartbeat_s: Annotated[float, Field(gt=0, le=1_200)] = Field(10.0, description="How often a worker reports")
    drain_s: Annotated[float, Field(ge=0, le=3_600)] = Field(30.0, description="How long a stop waits for what runs")
    keep_days: Annotated[float, Field(gt=0, le=3_650)] = Field(30.0, description="How long ended runs are kept")
    recovery_per_s: Annotated[int, Field(ge=1, le=10_000)] = Field(
        50,
        description="How many runs that are caught up after an outage, or brought back in bulk, may start per second, "
        "those of all jobs together",
    )
    allow_http: bool = Field(False, description="Webhooks may use http:// instead of https://")
    allow_networks: tuple[str, ...] = Field((), description="Networks (CIDR) that webhooks may reach although private")
    allow_hosts: tuple[str, ...] = Field((), description="Host names that webhooks may use although internal")
    allow_ports: tuple[Annotated[int, Field(ge=1, le=65_535)], ...] = Field(
        (443, 80, 8443, 8080), description="Ports that webhooks may use; empty allows every one"
    )
    nat64: bool = Field(False, description="This network reaches IPv4 through 64:ff9b::/96")
    egress_proxy: str | None = Field(
        None,
        description="Webhooks go out through this proxy by CONNECT, http:// ones too: http://user:password@host:port",
        repr=False,
    )
    egress_proxy_resolves: bool = Field(
        False,
        description="The proxy is given names instead of checked addresses, and is trusted to refuse internal ones",
    )
    master_key: str | None = Field(
        None,
        description="Encrypts signing secrets: base64 of 32 bytes; default: a file beside the data, on PostgreSQL none",
        repr=False,
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged")

    @field_validator("delivery_processes")
    @classmethod
    def _check_delivery_processes(cls, count: int, info: Any) -> int:
        workers = info.data.get("workers")
        if workers is not None and count > workers:
            raise ValueError(f"more processes than the {workers} attempts of `workers` that they would share")
        return count

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, url: str | None) -> str | None:
        if url is None:
            return url
        if urlsplit(url).hostname is None or urlsplit(url).port == 0:
            raise ValueError("not a URL such as https://onbeat.example.com")
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError(
                "a URL has ASCII letters and no blanks: write a name in its xn-- form, other letters as %XX"
            )
        return url

    @field_validator("allow_networks")
    @classmethod
    def _check_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for network in networks:
            ipaddress.ip_network(network)
        return networks

    @field_validator("egress_proxy")
    @classmethod
    def _check_proxy(cls, url: str | None) -> str | None:
        if url is not None:
            parse_proxy_url(url)
        return url

    @field_validator("egress_proxy_resolves")
    @classmethod
    def _check_resolving(cls, resolves: bool, info: Any) -> bool:
        if resolves and info.data.get("egress_proxy", "") is None:
            raise ValueError("there is no egress_proxy that could")
        return resolves

    @field_validator("heartbeat_s")
    @classmethod
    def _check_heartbeat(cls, heartbeat_s: float, info: Any) -> float:
        lease_s = info.data.get("lease_s")
        if lease_s is not None and heartbeat_s > lease_s / 2:
            raise ValueError("a heartbeat must come at least twice in a lease")
        return heartbeat_s


def load_settings(
    *,
    environment: Mapping[str, str] = os.environ,
    file: Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """All settings. Raises ConfigError naming the setting and where it was set."""
    values: dict[str, object] = {}
    values.update(_from_file(file, environment))
    values.update(_from_environment(environment))
    values.update({name: value for name, value in (overrides or {}).items() if value is not None})
    for name, value in values.items():
        _check_text(name, value)
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        known = ", ".join(Settings.model_fields)
        remedy = f"known settings: {known}" if first["type"] == "extra_forbidden" else "see docs/configuration.md"
        raise ConfigError(f"setting {name}: {first['msg']}", field=name, remedy=remedy) from None


def _check_text(name: str, value: object) -> None:
    """Raises ConfigError where the environment or a command line gave bytes that are no text."""
    try:
        for text in value if isinstance(value, (list, tuple)) else (value,):
            str(text).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"setting {name}: not UTF-8 text", field=name) from None


def _from_file(file: Path | None, environment: Mapping[str, str]) -> dict[str, object]:
    named = file or (Path(environment["ONBEAT_CONFIG"]) if "ONBEAT_CONFIG" in environment else None)
    path = named or Path("onbeat.toml")
    if named is None and not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", field="ONBEAT_CONFIG") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", field="ONBEAT_CONFIG") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for variable, text in environment.items():
        name = variable.removeprefix(PREFIX)
        if not variable.startswith(PREFIX) or name in _NOT_SETTINGS:
            continue
        if name.endswith("_FILE"):
            name = name.removesuffix("_FILE")
            try:
                text = Path(text).read_text().strip()
            except OSError as error:
                raise ConfigError(f"{variable}: cannot read {text}: {error.strerror}", field=variable) from None
            except UnicodeDecodeError:
                raise ConfigError(f"{variable}: {text} is not a text file", field=variable) from None
        field = name.lower()
        is_list = field in Settings.model_fields and field.startswith("allow") and field != "allow_http"
        values[field] = [part.strip() for part in text.split(",") if part.strip()] if is_list else text
    return values
