"""Runs the unit tests of a module, one line for each in the words of tests/check.h, so that
scripts/run-tests can count. A skipped test counts for nothing."""
import os
import sys
import time
import unittest


def name_of(test):
    return f"{type(test).__name__}.{test._testMethodName}"


class Result(unittest.TestResult):
    npassed = 0

    def startTest(self, test):
        super().startTest(test)
        if os.environ.get("TEST_ANNOUNCE"):  # run-tests names the test that crashes or hangs
            print(f"  run     {name_of(test)}", flush=True)
        self.start = time.monotonic()

    def line(self, word, test):
        print(f"  {word:8}{name_of(test)} ({time.monotonic() - self.start:.2f} s)", flush=True)

    def addSuccess(self, test):
        self.npassed += 1
        self.line("ok", test)

    def fail(self, test, err):
        print("    " + self._exc_info_to_string(err, test).replace("\n", "\n    "))
        self.line("FAILED", test)

    def addError(self, test, err):
        super().addError(test, err)
        self.fail(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.fail(test, err)


def run_tests(module):
    """Those whose name contains the first argument, or the one with exactly this name.

    Returns the exit status."""
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    result = Result()
    groups = unittest.defaultTestLoader.loadTestsFromModule(module)
    tests = [test for group in groups for test in group]
    exact = [test for test in tests if name_of(test) == only]
    for test in exact or [test for test in tests if only in test.id()]:
        test.run(result)
    nfailed = len(result.errors) + len(result.failures)
    print(f"{result.npassed} passed, {nfailed} failed")
    return 1 if nfailed else 0
