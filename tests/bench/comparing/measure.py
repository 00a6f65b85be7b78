"""One measurement each. What is returned goes into the JSON as it is."""

import fcntl
import os
import random
import select
import signal
import statistics
import subprocess
import time

from harness import PATIENCE_S, Resp, RespError, free_ports, seed, wait_until

from .services import Fencelock, kernel_cpu_seconds, memory, run_json

HELD_NAME_BYTES = 32


def pairs(service, clients, seconds, in_flight=1):
    """Throughput, latency of the acquire, and the servers' CPU time for each thousand pairs."""
    before = service.cpu()
    result = service.pairs(clients, seconds, in_flight)
    used = service.cpu() - before
    result['cpu_s_per_1000'] = used / max(result['all'], 1) * 1000
    return result


def renewals(service, clients, seconds):
    before = service.cpu()
    result = service.renewals(clients, seconds)
    result['cpu_s_per_1000'] = (service.cpu() - before) / max(result['all'], 1) * 1000
    return result


def epoll_pairs(service, clients, seconds, in_flight=1):
    """The same by an independent generator, with what its own process took, and the threads of the kernel."""
    before, kernel, began = service.cpu(), kernel_cpu_seconds(), time.monotonic()
    result = service.epoll_pairs(clients, seconds, in_flight)
    took = time.monotonic() - began
    result['cpu_s_per_1000'] = (service.cpu() - before) / max(result['all'], 1) * 1000
    result['kernel_cores'] = (kernel_cpu_seconds() - kernel) / took
    result['client_cores'] = result['client_cpu_s'] / took
    return result


def sets(service, clients, seconds):
    before = service.cpu()
    result = service.sets(clients, seconds)
    result['cpu_s_per_1000'] = (service.cpu() - before) / max(result['all'], 1) * 1000
    return result


def disk(programs, directory, seconds):
    said = run_json([programs.disk, directory, seconds])
    return {'per_s': said['rounds'] / (said['measured_ns'] / 1e9), 'p50_us': said['p50'] / 1e3,
            'p99_us': said['p99'] / 1e3}


# -- outages ------------------------------------------------------------------------------------

class _Probe:
    """A client that acquires without end and prints when, as (asked, granted) in seconds of CLOCK_MONOTONIC."""

    def __init__(self, argv):
        self.child = subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        os.set_blocking(self.child.stdout.fileno(), False)
        # Nobody reads while other load runs; a probe that waits for a reader would look like a stall, or hide one.
        fcntl.fcntl(self.child.stdout.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)
        self.rest = b''
        self.grants = []

    def read(self, seconds):
        """Reads for so long at most; whether anything came."""
        ready, _, _ = select.select([self.child.stdout], [], [], seconds)
        if not ready:
            return False
        data = os.read(self.child.stdout.fileno(), 1 << 20)
        if not data:
            raise RuntimeError('the probe ended with %r' % self.child.wait())
        *lines, self.rest = (self.rest + data).split(b'\n')
        self.grants += [int(line.split()[1]) / 1e9 for line in lines]
        return True

    def until(self, condition, seconds, what):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError('%s did not come about within %g s' % (what, seconds))
            self.read(0.05)

    def close(self):
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()


def outage(service, number):
    """Sends the leader a signal under a client that takes locks one after the other. `to_grant_ms`: from the signal to
    the first grant after the longest gap; `gap_ms`: that gap itself."""
    chooser = random.Random(seed() + number)
    process = service.leader_process()
    probe = _Probe(service.probe_argv())
    try:
        probe.until(lambda: len(probe.grants) >= 100, 60, 'a hundred grants')
        pause = time.monotonic() + chooser.uniform(0.2, 1.2) # anywhere between two heartbeats
        probe.until(lambda: time.monotonic() > pause, 10, 'the pause')
        at = time.monotonic()
        process.asked_to_end = True
        os.kill(process.pid, number)
        before = len(probe.grants)
        # The longest gap is over when much has come since, for longer than a client waits between two tries.
        probe.until(lambda: len(probe.grants) > before + 100 and
                    any(t > at + 0.002 for t in probe.grants[before:]) and probe.grants[-1] > at + 3.0, 120,
                    'grants after the signal')
    finally:
        probe.close()
    if number != signal.SIGSTOP:
        process.wait(PATIENCE_S)
    service.heal()
    last = max(i for i, t in enumerate(probe.grants) if t <= at)
    times = probe.grants[last:]
    gaps = [(b - a, b) for a, b in zip(times, times[1:])]
    gap, end = max(gaps)
    return {'to_grant_ms': (end - at) * 1e3, 'gap_ms': gap * 1e3}


# -- one node -----------------------------------------------------------------------------------

def start_to_grant(lab, programs, number):
    """Milliseconds from the start of a process with an empty directory to its first grant."""
    port, peer = free_ports(2)
    argv = [programs.ours('fencelockd'), '--id', 1, '--data', lab.path('start-%d' % number), '--listen',
            '127.0.0.1:%d' % port, '--peer', '127.0.0.1:%d' % peer, '--cluster', '1=127.0.0.1:%d' % peer]
    began = time.monotonic()
    process = lab.start(argv, 'start-%d' % number)
    deadline = began + 30
    while True:
        try:
            with Resp('127.0.0.1:%d' % port, timeout=10) as client:
                client.call('ACQUIRE', 'first', 'TTL', 10000, 'OWNER', 'owner-0123456789')
            break
        except (OSError, RespError) as e:
            if time.monotonic() > deadline:
                raise RuntimeError('no first grant: %s' % e) from e
            time.sleep(0.0005)
    took = (time.monotonic() - began) * 1e3
    process.kill()
    return took


# -- memory and snapshots -----------------------------------------------------------------------

def resident(service):
    return [memory(pid) for pid in service.pids()]


def held(lab, programs, count):
    """A cluster that holds `count` locks: memory of each node, and what snapshots do to a client meanwhile."""
    service = Fencelock(lab, programs).start()
    try:
        idle = resident(service)
        began = time.monotonic()
        service.load('hold', '--clients', 4, '--in-flight', 256, '--count', count, '--ttl-ms', 3600000,
                     '--warmup-ms', 0, '--seconds', 600, seconds=700)
        took = time.monotonic() - began
        wait_until(lambda: len({node.info()['applied_index'] for node in service.cluster.nodes}) == 1,
                   'the same applied index on all nodes')
        after = resident(service)
        # Load until every node has written a snapshot of all of it; a client beside it looks for stalls.
        before = [node.info()['snapshots'] for node in service.cluster.nodes]
        probe = _Probe(service.probe_argv())
        try:
            probe.until(lambda: len(probe.grants) >= 100, 60, 'a hundred grants')
            deadline = time.monotonic() + 600
            while any(node.info()['snapshots'] <= was for node, was in zip(service.cluster.nodes, before)):
                if time.monotonic() > deadline:
                    raise RuntimeError('no snapshot within ten minutes of load')
                service.load('lock', '--clients', 8, '--in-flight', 64, '--seconds', 2)
                probe.read(0)
            settled = time.monotonic() + 1
            probe.until(lambda: time.monotonic() > settled, 30, 'the end of the snapshots')
        finally:
            probe.close()
        infos = [node.info() for node in service.cluster.nodes]
        gaps = [b - a for a, b in zip(probe.grants, probe.grants[1:])]
        return {'count': count, 'acquire_s': took, 'rss_idle': idle, 'rss_held': after,
                'rss_after_snapshot': resident(service), 'rss_peak': [memory(p, 'VmHWM') for p in service.pids()],
                'snapshot_bytes': infos[0]['snapshot_last_bytes'],
                'snapshot_ms': [i['snapshot_last_ms'] for i in infos],
                'longest_gap_ms': max(gaps) * 1e3, 'median_gap_ms': statistics.median(gaps) * 1e3}
    finally:
        service.stop()


def environment(programs, lab):
    """What a reader has to know about the machine."""
    def first(path, word):
        try:
            with open(path) as f:
                return next((line.split(':', 1)[1].strip() for line in f if line.startswith(word)), '?')
        except OSError:
            return '?'
    mount = subprocess.run(['df', '-T', lab.dir], capture_output=True, text=True).stdout.splitlines()[-1].split()
    versions = {}
    for name, argv in (('redis', ['redis-server', '--version']), ('etcd', ['etcd', '--version']),
                       ('zookeeper', ['dpkg-query', '-W', '-f=${Version}', 'zookeeper']),
                       ('fencelock', [programs.ours('fencelockd'), '--version'])):
        try:
            versions[name] = subprocess.run(argv, capture_output=True, text=True).stdout.splitlines()[0].strip()
        except (OSError, IndexError):
            versions[name] = 'absent'
    return {'cpus': os.cpu_count(), 'cpu': first('/proc/cpuinfo', 'model name'), 'kernel': os.uname().release,
            'file_system': mount[1], 'load_before': os.getloadavg()[0], 'versions': versions}
