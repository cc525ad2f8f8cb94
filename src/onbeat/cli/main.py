"""The command `onbeat`: which commands there are, and how an expected failure becomes an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from onbeat.cli import (
    blackouts,
    calendars,
    db,
    dev,
    doctor,
    jobs,
    keys,
    next_fires,
    nodes,
    pauses,
    retries,
    runs,
    secrets,
    serve,
    version,
    worker,
)
from onbeat.cli.exits import Exit, exit_code, report
from onbeat.domain.errors import OnbeatError

app = typer.Typer(
    name="onbeat",
    help="Calls your webhooks on time, one run per planned instant, and can prove it.",
    epilog="Exit codes: 0 ok · 1 refused or not found · 2 bad input · 3 no answer from the server · 4 API key needed",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("dev")(dev.dev)
app.command("serve")(serve.serve)
app.command("worker")(worker.worker)
app.add_typer(jobs.app, name="jobs")
app.add_typer(runs.app, name="runs")
app.command("pause")(pauses.pause_many)
app.command("resume")(pauses.resume_many)
app.command("pauses")(pauses.list_pauses)
app.command("next")(next_fires.next_fires)
app.add_typer(retries.app, name="retries")
app.add_typer(calendars.app, name="calendars")
app.add_typer(blackouts.app, name="blackouts")
app.add_typer(keys.app, name="keys")
app.add_typer(secrets.app, name="secrets")
app.add_typer(db.app, name="db")
app.command("nodes")(nodes.list_nodes)
app.command("doctor")(doctor.doctor)
app.command("version")(version.version)


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say. Answer: the exit code."""
    try:
        app(args=list(arguments), prog_name="onbeat")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except OnbeatError as error:
        report(error)
        return exit_code(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (`| head`). Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    return Exit.OK


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))
