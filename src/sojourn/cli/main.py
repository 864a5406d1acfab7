"""The `sojourn` command: one file a subcommand, heavy imports inside them, so that `--help` and `serve` load no torch.

Exit codes: 0 done; 1 failed (a bug, or a check that did not hold); 2 something the user can mend, told in one line; 130
interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextvars import copy_context
from typing import Annotated

import typer

from sojourn import __version__
from sojourn.cli import demo, doctor, envs, evaluate, goal_map, models, rollout, search, serve, train
from sojourn.cli.report import DEBUG, INTERRUPTED, report

app = typer.Typer(
    name="sojourn",
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def sojourn(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (also SOJOURN_DEBUG=1).")] = False,
) -> None:
    """Train LLM agents over long horizons.

    An agent acts in an environment for tens of turns and learns from what came of it. Environments are served over HTTP
    ([bold]serve[/bold]); training meets them there ([bold]train[/bold]), as do [bold]eval[/bold] and
    [bold]rollout[/bold]. Start with [bold]sojourn demo[/bold].
    """
    if debug:
        DEBUG.set(True)
    if version:
        typer.echo(f"sojourn {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("serve")(serve.serve)
app.command("train")(train.train)
app.command("eval")(evaluate.evaluate)
app.command("rollout")(rollout.rollout)
app.add_typer(models.app, name="models")
app.add_typer(search.app, name="search")
app.command("envs")(envs.envs)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("import-goal-map")(goal_map.import_goal_map)

COMMANDS = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; nothing that a user got wrong becomes a traceback."""
    # in a context of its own: what one call was asked for (`--debug`) ends with it
    return copy_context().run(_main, list(sys.argv[1:] if arguments is None else arguments))


def _main(arguments: list[str]) -> int:
    try:
        code = app(args=arguments, prog_name="sojourn", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader left (`sojourn ... | head`): nothing is wrong, and the interpreter must not flush into it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        return report(
            error, f"sojourn {arguments[0]} --help" if arguments and arguments[0] in COMMANDS else "sojourn --help"
        )
    if code == INTERRUPTED:
        return report(KeyboardInterrupt(), "")
    return int(code or 0)
