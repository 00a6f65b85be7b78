"""What the tests on real processes are built from.

    from harness import Cluster, Lab, Resp, wait_until, ...

A Lab owns everything a test starts or writes: processes, their logs, their data directories. Closing
it (it is a context manager) kills what still runs, and fails when a process crashed, reported a
sanitizer error, or left an assertion in its log. A guard process kills everything should the test
itself die. Python 3 of the distribution, standard library only.

    resp.py     a raw RESP2/RESP3 client: one socket, one timeout
    process.py  one child process: readiness, signals, memory, log
    lab.py      Lab: directories, ports, cleanup, the check of all logs
    cluster.py  Node, Cluster, Store on top of a Lab
    load.py     clients that acquire and release, and the oracle that judges what they saw
    runner.py   the test runner: one line a test, counts at the end
    wait.py     deadlines instead of sleeps; the seed
"""

from .cluster import ASK_AGAIN, LONG_ELECTION_TIMEOUT, Cluster, Excuse, Node, Store, ask_again
from .lab import Lab, binary, free_ports
from .load import Load
from .process import Process, env_without_options, limit_asan_quarantine, patient_env
from .resp import Resp, RespError, as_dict
from .runner import Case, ClusterCase, main
from .wait import ANSWER_S, PATIENCE_S, Deadline, Lateness, Retries, seed, stays, try_again, wait_until

__all__ = ['ANSWER_S', 'ASK_AGAIN', 'LONG_ELECTION_TIMEOUT', 'PATIENCE_S', 'Case', 'Cluster', 'ClusterCase', 'Deadline', 'Excuse', 'Lab',
           'Lateness', 'Load', 'Node', 'Process', 'Resp', 'RespError', 'Retries', 'Store', 'as_dict', 'ask_again', 'binary', 'env_without_options',
           'free_ports', 'limit_asan_quarantine', 'main', 'patient_env', 'seed', 'stays', 'try_again', 'wait_until']
