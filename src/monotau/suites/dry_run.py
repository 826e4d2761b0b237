"""What `monotau suite --dry-run` prints: the grid, and what is still to come of it."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from monotau.suites.board import bar_of, clock, sayer
from monotau.suites.estimate import Estimate, estimate_method
from monotau.suites.grid import Suite

MOST_CELLS_SHOWN = 24


def show_estimate(suite: Suite, finished: set[str], jobs: int, threads: int, console: Console) -> None:
    """Print the grid and what is missing of it."""
    say = sayer(console)
    say(f"[bold]{escape(suite.name)}[/]: {escape(str(suite.plain.get('about', 'no word about it')))}")
    say(f"  methods ({len(suite.methods)}): {escape(', '.join(method.name for method in suite.methods))}")
    say(f"  environments ({len(suite.places)}): {escape(', '.join(place.config.title for place in suite.places))}")
    say(f"  seeds ({len(suite.seeds)}): {', '.join(map(str, suite.seeds))}")
    say(f"  runs ({len(suite.cells)}, {len(finished)} finished; scale {suite.scale:g}), by their --index:")
    shown = [*enumerate(suite.cells)]
    for index, cell in shown[:MOST_CELLS_SHOWN]:
        say(f"    {index:4d}  {escape(cell.name)}{'  finished' if cell.name in finished else ''}")
    if len(shown) > MOST_CELLS_SHOWN:
        say(f"    ... to {shown[-1][0]}, {escape(shown[-1][1].name)}: seed after seed, environments, then methods")
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
    for name in ("method", "missing", "steps", "steps/s", "a run", "all", "memory", "disk"):
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
        f"disk {gigabytes(disk)} in the end and up to {gigabytes(running)} more for checkpoints on the way."
    )
    say("By a trial of a few updates on this machine, one at a time; evaluations count where their steps are set.")


def gigabytes(size: float | int) -> str:
    """Write a size."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"
