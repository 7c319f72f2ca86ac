"""The bank: transfers between 20 accounts from threads and processes; the sum holds in every state that is seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kvmodels
from tests.transactions.bank import ACCOUNTS, TOTAL, found, in_threads, opened
from tests.transactions.models import Account
from tests.worlds import ONE_FILE

ROOT = Path(kvmodels.__file__).parent.parent
PATIENCE_S = 110


def require_balance(db, done, audited):
    assert {total for total, _ in audited} == {TOTAL}
    assert min(least for _, least in audited) >= 0, "nobody is overdrawn, whatever others do meanwhile"
    balances = [account.balance for account in db[Account]]
    assert (len(balances), sum(balances)) == (ACCOUNTS, TOTAL)
    assert done > 0
    assert db.check().ok


FILES = pytest.mark.parametrize("engine", ONE_FILE)


@pytest.mark.parametrize(("engine", "rounds"), [("memory", 25), ("sqlite", 8), ("lmdb", 8)])
def test_eight_threads_move_money_and_the_sum_holds(url_of, engine, rounds):
    with opened(url_of(engine)) as db:
        found(db)
        require_balance(db, *in_threads(db, range(8), rounds))


def processes_of_threads(url, processes, threads, rounds):
    with opened(url) as db:
        found(db)
        workers = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.transactions.bank"),
                    *(url, str(100 * number), str(threads), str(rounds)),
                ],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(processes)
        ]
        try:
            reports = [worker.communicate(timeout=PATIENCE_S)[0].split() for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
                worker.communicate()
        assert [worker.returncode for worker in workers] == [0] * processes
        done = [int(report[0]) for report in reports]
        print("transfers carried out by each process:", done)
        audited = [(int(total), 0) for report in reports for total in report[1:]]
        require_balance(db, sum(done), audited)


@FILES
@pytest.mark.servers
def test_four_processes_of_two_threads_move_money_and_the_sum_holds(url_of, engine):
    processes_of_threads(url_of(engine), processes=4, threads=2, rounds=8)


@pytest.mark.soak
@FILES
def test_four_processes_of_two_threads_move_money_for_long(url_of, engine):
    processes_of_threads(url_of(engine), processes=4, threads=2, rounds=200)
