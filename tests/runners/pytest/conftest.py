# Each test runs in a process of its own, which is recorded; the recordings of failing tests are kept.
import os
import subprocess
import sys

import pytest

INSIDE = "RUN_BY_REPRISE"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if INSIDE in os.environ:
        return None
    command = ["reprise", "record", "--keep-on=failure", "--time-limit", "600", "--"]
    command += [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    told = subprocess.run(
        command,
        cwd=pyfuncitem.config.rootpath,
        env={**os.environ, INSIDE: "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if told.returncode:
        pytest.fail(told.stdout, pytrace=False)
    end = told.stdout.splitlines()[-1]
    if "skipped" in end:
        pytest.skip(end)
    if "xfailed" in end:
        pytest.xfail(end)
    return True
