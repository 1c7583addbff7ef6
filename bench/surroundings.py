"""What the figures depend on: machine, server, modules, compiler."""
import datetime
import os
import platform
import subprocess

from contest import Server, may_be_urgent


def first_match(path, word):
    with open(path, encoding="utf-8") as f:
        return next(
            (line.split(":", 1)[1].strip() for line in f if line.startswith(word)), "unknown"
        )


def about(bench, options):
    """What the figures depend on. Neither paths nor the name of the machine."""
    versions = {}
    for contestant in bench.contestants:
        server = Server(contestant, bench.server)
        try:
            info = server.client.info("server")
            for module in server.client.module_list():
                versions[contestant.name] = f"{text(module[b'name'])} {module[b'ver']}"
        finally:
            server.close()
    compiler = subprocess.run(
        [options.cc, "--version"], stdout=subprocess.PIPE, text=True, check=False
    ).stdout
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "form": options.form,
        "rounds": bench.rounds,
        "cpu": first_match("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory": first_match("/proc/meminfo", "MemTotal"),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "server": (
            f"{info.get('server_name', 'redis')} {info['redis_version']}"
            f" ({info.get('mem_allocator', '')})"
        ),
        "modules": versions,
        "compiler": compiler.splitlines()[0] if compiler else "unknown",
        "flags": options.cflags,
        "urgent": may_be_urgent(),
    }


def text(value):
    return value.decode() if isinstance(value, bytes) else str(value)
