"""`onbeat doctor`: is this a machine that onbeat can be trusted on?"""

from __future__ import annotations

import typer

from onbeat.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, check_server
from onbeat.cli.processes import DataOption, settings_from
from onbeat.cli.terminal import print_json, print_table


def doctor(data: DataOption = None, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """Check this machine, the data file and the clock. Exit code 1 when something is bad."""
    from onbeat.cli.diagnosis import diagnose

    findings = diagnose(settings_from(data=data).data, server=check_server(server))
    if as_json:
        print_json(
            {
                "ok": all(finding.verdict != "bad" for finding in findings),
                "checks": [
                    {
                        "name": finding.name,
                        "verdict": finding.verdict,
                        "found": finding.found,
                        "advice": finding.advice,
                    }
                    for finding in findings
                ],
            }
        )
    else:
        print_table(
            ("check", "verdict", "found", "advice"),
            [(finding.name, finding.verdict, finding.found, finding.advice or "") for finding in findings],
            empty="",
        )
    if any(finding.verdict == "bad" for finding in findings):
        raise typer.Exit(1)
