"""The output of `monotau suite --dry-run`: the grid, and an estimate of time, RAM and disk space."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from monotau.suites.board import bar_of, clock, line_printer
from monotau.suites.estimate import Estimate, estimate_method
from monotau.suites.grid import Suite

MOST_CELLS_SHOWN = 24


def show_estimate(suite: Suite, finished: set[str], jobs: int, threads: int, console: Console) -> None:
    """Print the grid, and an estimate for its missing runs."""
    say = line_printer(console)
    say(f"[bold]{escape(suite.name)}[/]: {escape(str(suite.plain.get('about', 'no description')))}")
    say(f"  methods ({len(suite.methods)}): {escape(', '.join(method.name for method in suite.methods))}")
    say(f"  environments ({len(suite.envs)}): {escape(', '.join(env.config.title for env in suite.envs))}")
    say(f"  seeds ({len(suite.seeds)}): {', '.join(map(str, suite.seeds))}")
    say(f"  runs ({len(suite.cells)}, {len(finished)} finished; scale {suite.scale:g}), by their --index:")
    shown = [*enumerate(suite.cells)]
    for index, cell in shown[:MOST_CELLS_SHOWN]:
        say(f"    {index:4d}  {escape(cell.name)}{'  finished' if cell.name in finished else ''}")
    if len(shown) > MOST_CELLS_SHOWN:
        say(f"    ... to {shown[-1][0]}, {escape(shown[-1][1].name)}: by seed, then environment, then method")
    say("")
    missing = [cell for cell in suite.cells if cell.name not in finished]
    estimates: list[Estimate] = []
    with bar_of(console) as bar:
        for method in bar.track(suite.methods, description="trying each method"):
            cells = [cell for cell in missing if cell.method == method]
            if cells:
                estimates.append(estimate_method(suite, method, cells, threads))
    if not estimates:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("method", "missing", "steps", "steps/s", "per run", "all", "RAM", "disk"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for each in estimates:
        table.add_row(
            each.method.name,
            str(each.runs),
            f"{each.steps:,d}",
            f"{each.steps_per_second:,.0f}",
            clock(each.seconds),
            clock(each.runs * each.seconds / jobs),
            gigabytes(each.memory),
            gigabytes(each.runs * each.disk_finished),
        )
    console.print(table)
    total = sum(each.runs * each.seconds for each in estimates) / jobs
    running = max(each.disk_running for each in estimates) * min(jobs, len(missing))
    disk = sum(each.runs * each.disk_finished for each in estimates)
    say(
        f"\n{jobs} at once with {threads} thread{'s' * (threads > 1)} each: about {clock(total)}; "
        f"disk {gigabytes(disk)} in the end, and up to {gigabytes(running)} more for checkpoints meanwhile."
    )
    say(
        "Extrapolated from a few updates of each method on this machine, one method at a time; evaluations are included"
    )
    say("only if evaluation.steps is set.")


def gigabytes(size: float | int) -> str:
    """Format a size in bytes."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"
