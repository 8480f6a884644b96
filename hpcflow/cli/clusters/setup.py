"""``hpcflow setup``."""

from __future__ import annotations

import sys
from typing import Final

import click

from hpcflow.cli.arguments import set_option, site_option
from hpcflow.cli.session import Session, warn
from hpcflow.errors import HpcflowError, InputError, SiteError, Where, in_one_line, shell_word
from hpcflow.storage.files import make_folders, write_durably
from hpcflow.terminal import ask, echo, echo_as_is

_TRIAL_MIN: Final = 2


@click.command("setup", short_help="Prepare this cluster for hpcflow. Run it once.")
@site_option
@set_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("sbatch_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTION...]")
@click.pass_context
def command(
    ctx: click.Context,
    site: str | None,
    overrides: tuple[str, ...],
    yes: bool,
    sbatch_options: tuple[str, ...],
) -> int:
    """Write the site file of this cluster, check this machine, install the daemon, and submit a
    trial run of at most two minutes.

    Each step shows what it will do, and asks. You can run setup again: it skips an existing site
    file and daemon. --set changes the trial run, such as --set resources.account=physics. If the
    daemon runs as a job, hpcflow passes each OPTION to sbatch: see `hpcflow daemon install --help`.
    """
    if not yes and not sys.stdin.isatty():
        raise InputError("cannot ask: stdin is not a terminal", next_action="hpcflow setup --yes")
    _find_site(site, yes=yes)
    if not _check(site):
        echo("correct the errors, then run it again: hpcflow setup")
        return 1
    _install_daemon(sbatch_options, yes=yes)
    return _try(ctx, site, overrides, yes=yes)


def _find_site(name: str | None, *, yes: bool) -> None:
    """Write a site file if none fits this machine."""
    from hpcflow.cli.clusters.site import detected, write_site

    _title("the cluster")
    session = Session()
    try:
        site = session.site(name, named_in=Where(key="--site"))
    except SiteError as error:
        if name or session.settings.site:
            raise
        try:
            path, text = detected(session)
        except HpcflowError:
            raise error from None
        echo_as_is(text)
        if not (yes or ask(f"Write it to {path}?")):
            raise error
        write_site(path, text)
        site = Session().site(None)
        echo(f"wrote {path}; read its comments")
    echo(f"this machine belongs to site {site.name}: {site.file}")


def _check(site: str | None) -> bool:
    """Print the checks; return whether none failed. The daemon is not checked: it comes next."""
    from hpcflow.cli.clusters.doctor import print_checks
    from hpcflow.cli.clusters.doctor_checks import check_all
    from hpcflow.sites.check import Level

    _title("this machine")
    found = [each for each in check_all(site) if each.check != "daemon"]
    print_checks(found)
    return all(each.level is not Level.ERROR for each in found)


def _install_daemon(sbatch_options: tuple[str, ...], *, yes: bool) -> None:
    from hpcflow.cli.control.daemon_install import show_and_write, way_named
    from hpcflow.requeue.daemon.supervision import supervision

    _title("the daemon")
    session = Session()
    seen = supervision(session.settings, session.clock.now())
    if seen.has_rounds:
        done = "is installed, and has not run yet" if seen.lease is None else "supervises your runs"
        echo(f"a daemon {done}: hpcflow daemon status")
        return
    try:
        way = way_named(None, session.settings, sbatch_options)
        show_and_write(way, yes=yes, as_json=False, look="hpcflow daemon status")
    except HpcflowError as error:  # the trial run warns that no daemon is active
        warn(in_one_line(error))


def _try(ctx: click.Context, site: str | None, overrides: tuple[str, ...], *, yes: bool) -> int:
    """Submit the trial and follow it; return the exit code."""
    from hpcflow.cli.clusters.doctor_checks import TRIAL
    from hpcflow.cli.submit.run import command as run

    _title("a trial")
    config = Session().settings.home.path / "trial" / "trial.yaml"
    make_folders(config.parent)
    if not config.exists():
        write_durably(config, TRIAL)
    typed = f"hpcflow run {shell_word(config)} --follow"
    if not (yes or ask(f"Submit a job of at most {_TRIAL_MIN} minutes ({typed})?")):
        echo(f"nothing was submitted; to submit it later: {typed}")
        return 0
    code: int = ctx.invoke(
        run, config=config, site=site, overrides=overrides,
        dry_run=False, follow=True, wait=False, as_json=False,
    )  # fmt: skip
    if code == 0:
        echo("the trial is completed; check your own config next: hpcflow run CONFIG --dry-run")
    return code


def _title(what: str) -> None:
    echo()
    echo(what, bold=True)
