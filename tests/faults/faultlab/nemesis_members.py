"""Changes of members, backups and upgrades as faults. See nemesis.py."""

import json
import os
import subprocess
import time

from harness import PATIENCE_S, RespError, binary, env_without_options, wait_until
from harness.resp import info_fields

from .nemesis import DiskLoss, Nemesis, kind


@kind('members')
class ChangeMembers(DiskLoss):
    """One change after the other, each of them overlapping with whatever else goes on."""
    MEMBERS = True
    SECONDS = (0.0, 0.3)
    BETWEEN = (0.1, 1.0)
    DONE_S = 45.0
    FEWEST, MOST_VOTERS = 2, 5

    def start(self, run):
        m = run.members
        jobs = [('move', self.move), ('replace', self.replace_lost), ('transfer', self.transfer)]
        if m.free():
            jobs += [('add', self.add)] * 3
        if len(m.wanted) > self.FEWEST + (0 if self.learners(m) else 1):
            jobs += [('remove', self.remove)] * 3
        if not run.options.tls:
            jobs.append(('replace', self.replace_machine))
        name, job = self.random.choice(jobs)
        with run.one_disk: # what is a majority must not change while a disk is away
            what = job(run, m)
            if what is None:
                return []
            began = time.monotonic()
            done = m.wait_done(self.DONE_S)
        run.count('changes of members, %s' % name)
        run.count('changes of members seen through' if done else 'changes of members that went on under the next')
        return ['%s, %.1f s' % (what, time.monotonic() - began)]

    def stop(self, run):
        pass

    @staticmethod
    def learners(m):
        return [i for i, (state, _) in m.wanted.items() if state == 'learner']

    def refused(self, run, answer):
        run.count('changes of members refused')
        run.record(type='mark', f='refused', error=answer)

    # -- each job: None when there is nothing to wait for -------------------------------------------------
    def add(self, run, m):
        place = self.random.choice(m.free())
        voters = len(m.wanted) - len(self.learners(m))
        learner = voters >= self.MOST_VOTERS or self.random.random() < 0.2
        for node in [n for n in m.former if n.id == place.plain.id]:
            m.switch_off(node)
        node = place.node(run, m.member_list())
        run.add_shim(node)
        before = self.random.random() < 0.5
        if before:
            node.launch()
            m.put(node)
        answer = m.ask('CLUSTER', 'ADD', node.id, node.peer, *(['LEARNER'] if learner else []), done_when=('there is a node',))
        if answer is not True:
            if before:
                m.drop(node)
                m.switch_off(node)
            self.refused(run, answer)
            return None
        m.wanted[node.id] = ('learner' if learner else 'voter', node.peer)
        if not before:
            node.launch()
            m.put(node)
        return 'add %d%s' % (node.id, ' as a learner' if learner else '')

    def victim(self, run):
        leader, nodes = run.leader_node(), run.cluster.nodes
        return leader if leader and self.random.random() < 0.35 else self.random.choice(nodes)

    def remove(self, run, m):
        """It ends by itself, as soon as somebody tells it; half of them are then tried again, with what they have on disk."""
        voters = len(m.wanted) - len(self.learners(m))
        node = self.victim(run)
        if voters <= self.FEWEST and m.wanted[node.id][0] == 'voter':
            return None
        node.gone = True
        node.process.asked_to_end = True
        answer = m.ask('CLUSTER', 'REMOVE', node.id, done_when=('is not a member',))
        if answer is not True:
            node.gone = False
            if node.running():
                run.came_back_unless_down(node)
            self.refused(run, answer)
            return None
        del m.wanted[node.id]
        m.drop(node)
        m.wait_done(self.DONE_S)
        end = time.monotonic() + 3.0
        while node.running() and time.monotonic() < end and not run.over.wait(0.05):
            pass
        if not node.running():
            run.count('removed nodes that ended by themselves')
            if self.random.random() < 0.5:
                node.launch() # it is refused
                run.count('removed nodes that were started again')
        return 'remove %d' % node.id

    def replace_lost(self, run, m):
        """Its disk is gone. As with disk-loss, one at a time, and only when all others have theirs."""
        voters = len(m.wanted) - len(self.learners(m))
        if voters < 3 or not self.stays_whole(run, m): # of two, neither can be missed
            return None
        victim = self.victim(run)
        if not run.take(victim):
            return None
        victim.kill()
        victim.gone = True
        answer = m.ask('CLUSTER', 'REPLACE', victim.id)
        fresh = victim.place.node(run, m.member_list(victim.id))
        if answer is not True:
            # The others would not be enough. It gets its disk back, which was not lost, then.
            self.refused(run, answer)
            victim.gone = False
            run.bring_back(victim)
            return None
        self.same_ports(victim, fresh)
        run.add_shim(fresh)
        m.drop(victim)
        m.switch_off(victim)
        m.put(fresh)
        run.bring_back(fresh)
        return 'replace %d, whose disk is gone' % fresh.id

    def stays_whole(self, run, m):
        looks, end = 0, time.monotonic() + self.WHOLE_S
        while looks < 3 and time.monotonic() < end:
            looks = looks + 1 if m.whole() else 0
            if run.over.wait(0.15):
                return False
        return looks == 3

    @staticmethod
    def same_ports(victim, fresh):
        victim.place.set_port(fresh, victim.port_at)

    def replace_machine(self, run, m):
        """Another one comes in its place, at another address, while it runs or is down."""
        old = self.victim(run)
        fresh = old.place.node(run, m.member_list(old.id))
        old.place.set_port(fresh, 1 - old.port_at)
        fresh.address = run.other_address(old)
        run.add_shim(fresh)
        if len(m.wanted) < 3:
            return None
        old.gone = True
        old.process.asked_to_end = True
        answer = m.ask('CLUSTER', 'REPLACE', old.id, fresh.peer)
        if answer is not True:
            old.gone = False
            if old.running():
                run.came_back_unless_down(old)
            self.refused(run, answer)
            return None
        m.wanted[old.id] = (m.wanted[old.id][0], fresh.peer)
        m.drop(old)
        m.put(fresh)
        fresh.launch()
        m.wait_done(self.DONE_S)
        m.switch_off(old) # where it was, the next one may come
        return 'replace %d by another machine' % old.id

    def move(self, run, m):
        node = self.victim(run)
        if not run.take(node):
            return None
        other = 1 - node.port_at
        peer = node.place.ports[other][1]
        answer = m.ask('CLUSTER', 'MOVE', node.id, peer)
        if answer is not True:
            run.came_back(node)
            self.refused(run, answer)
            return None
        m.wanted[node.id] = (m.wanted[node.id][0], peer)
        if self.random.random() < 0.5:
            node.kill()
        else:
            node.process.resume()
            node.terminate()
        node.place.set_port(node, other)
        run.bring_back(node)
        return 'move %d' % node.id

    def transfer(self, run, m):
        target = self.random.choice(run.cluster.nodes)
        for node in run.cluster.nodes:
            try:
                node.call('CLUSTER', 'TRANSFER', target.id, timeout=2.0)
                return 'transfer to %d' % target.id
            except (OSError, RespError):
                continue
        return None


@kind('backup')
class Backup(Nemesis):
    """Each one that is written must be whole, and have a counter that somebody could have seen then. In the end the last one
    becomes a new cluster."""
    SECONDS = (0.0, 0.1)
    BETWEEN = (0.2, 1.0)
    LIMIT_S = PATIENCE_S
    CALLS_FAIL = {'calls', 'disk-full', 'disk-short', 'sync-error'}

    def start(self, run):
        path = run.lab.path('backup.new')
        if os.path.exists(path):
            os.unlink(path)
        began = time.monotonic()
        done = self.tool(run, 'backup', path)
        if done.returncode == 3: # nobody could be asked, or the node that was ended
            run.count('backups that were given up')
            return []
        if done.returncode != 0 and run.program == Upgrade.NEXT and 'of another version' in done.stderr:
            run.count('backups that take the tool of the next version')
            return []
        if done.returncode == 2 and 'the process that writes it was killed' in done.stderr and \
                'snapshot-kill' in run.options.nemesis:
            run.count('backups whose writer was killed')
            return []
        if done.returncode == 2 and 'the backup failed: ' in done.stderr and self.CALLS_FAIL & set(run.options.nemesis):
            run.count('backups of which a call failed')
            return []
        if done.returncode != 0:
            run.report('backups', 'a backup ended with %d: %s' % (done.returncode, done.stderr.strip()))
            return []
        check = self.tool(run, 'backup', '--verify', path)
        if check.returncode != 0:
            run.report('backups', 'a backup that was just written is not whole: %s' % check.stderr.strip())
            return []
        said = json.loads(check.stdout)
        run.backups.append((began, time.monotonic(), said['last_token'], said['index']))
        os.replace(path, run.lab.path('backup.last'))
        run.count('backups')
        return ['index %d, last token %d' % (said['index'], said['last_token'])]

    def tool(self, run, *words):
        env = env_without_options()
        more = [] if '--verify' in words else ['--nodes', ','.join(n.address for n in self.random.sample(
            run.cluster.nodes, len(run.cluster.nodes))), '--timeout', '5s']
        return subprocess.run([binary('fencelock'), *words, '--json', *more], env=env, capture_output=True, text=True,
                              timeout=self.LIMIT_S)

    def stop(self, run):
        pass


@kind('upgrade')
class Upgrade(Nemesis):
    """To the next version, node by node, each stopped in order; sometimes one goes back, while another is still old."""
    SECONDS = (0.0, 0.2)
    BETWEEN = (0.5, 2.0)
    NEXT, VERSION, STEP_BACK = 'fencelockd-next', 2, 0.3

    def start(self, run):
        with run.one_disk: # no node of the old version may come just then
            return self.change(run)

    def change(self, run):
        old = [n for n in run.cluster.nodes if n.program != self.NEXT]
        new = [n for n in run.cluster.nodes if n.program == self.NEXT]
        back = len(old) > 1 and new and self.random.random() < self.STEP_BACK
        node = self.random.choice(new if back else old) if back or old else None
        if node is None or not run.take(node):
            return []
        node.process.resume()
        node.terminate()
        node.program = 'fencelockd' if back else self.NEXT
        if not back and len(old) == 1:
            run.program = self.NEXT # of nodes that are yet to come
        run.bring_back(node)
        run.count('nodes that went back' if back else 'upgrades of a node')
        return ['%s: %s' % (node.name, node.program)]

    def stop(self, run):
        pass


def judge_backups(run, highest, restored_token, counts):
    """highest: the largest token that anybody was told. restored_token: the first of the new cluster."""
    if restored_token is not None and restored_token <= highest:
        run.report('backups', 'the new cluster issued token %d, and %d had been seen' % (restored_token, highest))
    left = {k: v for k, v in (counts or {}).items() if v}
    if left:
        run.report('backups', 'a new cluster out of a backup has %r' % left)


def judge_version(run, seconds=PATIENCE_S):
    """Nodes that all have the next version go to it, and none does before."""
    everywhere = all(n.program == Upgrade.NEXT for n in run.cluster.nodes)

    def version():
        info = run.cluster.leader().call('CLUSTER', 'INFO')
        return int(info_fields(info)['cluster_version'])
    if everywhere:
        try:
            wait_until(lambda: version() == Upgrade.VERSION, 'version %d' % Upgrade.VERSION, seconds=seconds)
        except AssertionError as e:
            run.report('version', str(e))
    elif version() >= Upgrade.VERSION:
        run.report('version', 'the cluster is at version %d, and not all its nodes know it' % version())
