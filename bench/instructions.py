#!/usr/bin/python3
"""Instructions per item in the server, counted by callgrind: slow, but the same on a busy machine
as on an idle one.

Usage: instructions.py --load path name=module.so… Prints the instructions in the command, for every
module and operation. Filters have 10^5 items unless ITEMS says otherwise; caches and page faults do
not show here. What the server spends outside the command is left out: under callgrind its clock
ticks more often than it works.
"""
import argparse
import glob
import os
import subprocess
import sys

from contest import Contestant, Server, load
from report import table

ERROR = 1e-4
COMMANDS = "BF*_RedisCommand*"  # the handlers, ours and RedisBloom's
OPERATIONS = [  # name, options of the load, items in all
    ("ADD new", {"new_from": 10**9}, 2000),
    ("ADD present", {"dup": 100}, 2000),
    ("EXISTS absent", {"exists": True, "new_from": 2 * 10**9}, 2000),
    ("EXISTS present", {"exists": True, "dup": 100}, 2000),
    ("MADD×100 new", {"batch": 100, "new_from": 3 * 10**9}, 10_000),
    ("MADD×100 present", {"batch": 100, "dup": 100}, 10_000),
    ("MEXISTS×100 absent", {"exists": True, "batch": 100, "new_from": 4 * 10**9}, 10_000),
    ("MEXISTS×100 present", {"exists": True, "batch": 100, "dup": 100}, 10_000),
]


def control(server: Server, option: str) -> None:
    subprocess.run(
        ["callgrind_control", *option.split(), str(server.pid)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def counted(server: Server, loader: str, nitems: int, options: dict, pipeline: int) -> float:
    """Instructions per item of one run."""
    for old in glob.glob(os.path.join(server.dir, "callgrind.*")):
        os.remove(old)
    control(server, "-z")
    load(loader, server, items=nitems, pipeline=pipeline, **options)
    control(server, "-d")
    dump = max(glob.glob(os.path.join(server.dir, "callgrind.*")), key=os.path.getmtime)
    with open(dump, encoding="utf-8") as f:
        return (
            next(int(line.split()[1]) for line in f if line.startswith(("totals:", "summary:")))
            / nitems
        )


def measure(name: str, module: str, loader: str, binary: str, nfilled: int) -> dict[str, float]:
    contestant = Contestant(name, name, "bf", module)
    server = Server(
        contestant,
        binary,
        prefix=[
            "valgrind",
            "--tool=callgrind",
            "--quiet",
            "--collect-atstart=no",
            f"--toggle-collect={COMMANDS}",
        ],
    )
    try:
        contestant.reserve(server.client, ERROR, max(nfilled, 10**5) * 2)
        load(loader, server, batch=1000, items=nfilled)
        return {
            op: counted(
                server,
                loader,
                nitems,
                {"present": nfilled} | options,
                1 if "batch" in options else 64,
            )
            for op, options, nitems in OPERATIONS
        }
    finally:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", required=True)
    parser.add_argument("--server", default=os.environ.get("SERVER") or "redis-server")
    parser.add_argument("--items", type=int, default=int(os.environ.get("ITEMS") or 10**5))
    parser.add_argument("modules", nargs="+", help="name=path")
    options = parser.parse_args()
    names, columns = [], []
    for word in options.modules:
        name, _, path = word.partition("=")
        names.append(name)
        columns.append(measure(name, path, options.load, options.server, options.items))
        print(f"{name}: done", file=sys.stderr)
    print(
        table(
            [f"instructions per item, {options.items:,} items", *names],
            [[op, *[f"{column[op]:,.0f}" for column in columns]] for op, _, _ in OPERATIONS],
        )
    )


if __name__ == "__main__":
    main()
