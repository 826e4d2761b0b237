"""Available memory of the machine and its control groups, read from fake /proc and /sys files."""

import pytest

from monotau.runs.memory import LIBRARY_BYTES, available_bytes

MEMINFO = "MemTotal:       24682416 kB\nMemFree:          100 kB\nMemAvailable:   8000000 kB\nBuffers:  37392 kB\n"


@pytest.fixture
def machine(tmp_path):
    """Write files of /proc and /sys into an empty root, and return the available memory."""

    def machine(**files):
        for name, text in files.items():
            path = tmp_path / PATHS.get(name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return available_bytes(tmp_path)

    return machine


PATHS = {
    "meminfo": "proc/meminfo",
    "status": "proc/self/status",
    "cgroup": "proc/self/cgroup",
}


def v2(group, most, used, stat=""):
    where = f"sys/fs/cgroup/{group}"
    return {f"{where}/memory.max": most, f"{where}/memory.current": used, f"{where}/memory.stat": stat}


def v1(group, most, used, stat=""):
    where = f"sys/fs/cgroup/memory/{group}"
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
    return {f"{where}/{name}": text for name, text in zip(names, (most, used, stat), strict=True)}


def test_without_proc_the_available_memory_is_unknown(machine):
    assert machine() is None


def test_the_available_memory_is_read_from_meminfo(machine):
    assert machine(meminfo=MEMINFO) == 8_000_000 * 1024


def test_memory_that_the_libraries_already_hold_counts_as_available(machine):
    assert machine(meminfo=MEMINFO, status="VmRSS:\t 99 kB\nRssAnon:\t  250000 kB\n") == 8_250_000 * 1024
    # Memory of an existing replay, however, does not count as available.
    assert machine(meminfo=MEMINFO, status="RssAnon:\t 7000000 kB\n") == 8_000_000 * 1024 + LIBRARY_BYTES


STAT = "anon 77\nfile 700\ninactive_file 300\nactive_file 45\ntotal_inactive_file 2000\ntotal_active_file 100\n"


def test_a_control_group_leaves_its_limit_minus_its_use_without_cached_files(machine):
    files = v2("box/run", "1000000\n", "400000\n", STAT)
    assert machine(meminfo=MEMINFO, cgroup="0::/box/run\n", **files) == 1_000_000 - (400_000 - 345)


def test_the_narrowest_enclosing_control_group_decides(machine):
    files = v2("box/run", "1000000\n", "400000\n") | v2("box", "500000\n", "450000\n") | v2("", "max\n", "1\n")
    assert machine(meminfo=MEMINFO, cgroup="0::/box/run\n", **files) == 50_000


def test_control_groups_of_version_1_are_read_too(machine):
    files = v1("box", "900000\n", "400000\n", STAT) | v1("", "9223372036854771712\n", "1\n")
    cgroup = "5:cpu:/other\n4:memory:/box\n0::/\n"
    assert machine(meminfo=MEMINFO, cgroup=cgroup, **files) == 900_000 - (400_000 - 2_100)


@pytest.mark.parametrize("path", ["/", "/docker/0123", "/../../outside", "//process/7"])
def test_in_a_container_the_files_of_the_group_are_at_the_top(machine, path):
    assert machine(meminfo=MEMINFO, cgroup=f"0::{path}\n", **v2("", "70000\n", "3000\n")) == 67_000


def test_a_control_group_over_its_limit_has_nothing_left(machine):
    assert machine(meminfo=MEMINFO, cgroup="0::/\n", **v2("", "70000\n", "80000\n")) == 0


def test_a_control_group_without_a_limit_leaves_what_the_machine_has(machine):
    assert machine(meminfo=MEMINFO, cgroup="0::/\n", **v2("", "max\n", "80000\n")) == 8_000_000 * 1024
