"""Runs the unit tests of a module, one line for each in the words of tests/check.h, so that scripts/run-tests can count.
A skipped test counts for nothing."""
import sys
import time
import unittest


class Result(unittest.TestResult):
    npassed = 0

    def startTest(self, test):
        super().startTest(test)
        self.start = time.monotonic()

    def line(self, word, test):
        name = f"{type(test).__name__}.{test._testMethodName}"
        print(f"  {word:8}{name} ({time.monotonic() - self.start:.2f} s)", flush=True)

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
    """Those whose name contains the first argument. Returns the exit status."""
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    result = Result()
    for group in unittest.defaultTestLoader.loadTestsFromModule(module):
        for test in group:
            if only in test.id():
                test.run(result)
    nfailed = len(result.errors) + len(result.failures)
    print(f"{result.npassed} passed, {nfailed} failed")
    return 1 if nfailed else 0
