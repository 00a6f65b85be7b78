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

from .cluster import PATIENT, Cluster, Node, Store
from .lab import Lab, binary, free_ports
from .load import Load
from .process import Process, keep_little_that_is_freed
from .resp import Resp, RespError
from .runner import Case, ClusterCase, main
from .wait import Deadline, seed, stays, wait_until

__all__ = ['PATIENT', 'Case', 'Cluster', 'ClusterCase', 'Deadline', 'Lab', 'Load', 'Node', 'Process', 'Resp', 'RespError', 'Store',
           'binary', 'free_ports', 'keep_little_that_is_freed', 'main', 'seed', 'stays', 'wait_until']
