"""Runs the tools of scripts/ in this process: there are hundreds of runs, and a new Python takes
its time.
"""

import importlib
import io
import os
import sys
from unittest import mock

import server

sys.path.insert(0, os.path.join(server.ROOT, "python"))

TOOLS = ("bfstat", "bfcopy", "bfimport", "bforphans", "bfread")


class Output(io.StringIO):
    """Takes what a tool prints; it has no file behind it."""

    def isatty(self):
        return False


def run(tool, *arguments, **environment):
    """Exit code, stdout, stderr."""
    clean = {
        name: value for name, value in os.environ.items() if name not in ("REDISCLI_AUTH", "BF_TO")
    }
    out, err, code = Output(), Output(), None
    with (
        mock.patch.object(sys, "argv", [tool, *arguments]),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
        mock.patch.dict(os.environ, {**clean, **environment}, clear=True),
    ):
        try:
            importlib.import_module("shardbloom.tools." + tool).main()
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()
