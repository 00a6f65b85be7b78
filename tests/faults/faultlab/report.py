"""One HTML page a run: no scripts, no other files. The verdict, each anomaly as a story, and everything over time."""

import time

from . import report_plots as plots
from . import report_story as story
from .report_plots import esc

STYLE = '''
:root { color-scheme: light dark; --ink: #24292f; --soft: #5c6670; --pale: #e3e6ea; --page: #fff; --code: #f4f5f7; --bad: #c8372d;
  --bad-page: #fdf5f4; --good: #1d7a4f; --fault: #d39a1e; --wait: #a9c3e6; --read: #7a9e3f; --write: #2f8f6b; --renew: #8b6bb1;
  --end: #8a8f98; --bar: #7f9cc0; --held: #4c6fd6; --link: #1f5fae; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --soft: #a0a9b3; --pale: #39414b; --page: #171a1e; --code: #22272e;
  --bad: #ff7b70; --bad-page: #2a1c1c; --good: #5fc08f; --fault: #d8a63c; --wait: #41608a; --read: #94b85a; --write: #46ab86;
  --renew: #a98bd0; --end: #7c838d; --bar: #6684aa; --held: #7d9cf5; --link: #8ab8f0; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 1200px; margin: 1.5em auto; padding: 0 1em; }
h1 { font-size: 1.35em; line-height: 1.3; margin-bottom: .3em; } h2 { font-size: 1.15em; margin-top: 2em; } h3 { margin-bottom: .2em; }
a { color: var(--link); } summary { cursor: pointer; }
code, pre { font: 13px/1.45 ui-monospace, monospace; background: var(--code); border-radius: 4px; }
code { padding: .1em .3em; overflow-wrap: anywhere; } pre { padding: .7em 1em; white-space: pre-wrap; overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); } .soft { color: var(--soft); }
.scroll, .wide { overflow-x: auto; } .wide svg { display: block; width: 100%; min-width: 720px; font: 11px system-ui, sans-serif; }
table { border-collapse: collapse; } td, th { padding: .15em .9em .15em 0; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.anomaly { border-left: 4px solid var(--bad); padding: .1em 1em .6em; margin: 1.2em 0; background: var(--bad-page); }
.story { margin: .6em 0; } .story td, .story th { padding: .25em .8em; border-top: 1px solid var(--pale); }
.story td:first-child { font-variant-numeric: tabular-nums; white-space: nowrap; color: var(--soft); padding-left: 0; }
.story .fault { color: var(--soft); font-style: italic; } .story .bad { font-weight: 600; }
svg text { fill: var(--ink); } svg .soft { fill: var(--soft); } svg text.bad { fill: var(--bad); }
svg .grid { stroke: var(--pale); } svg .leader { stroke: var(--soft); stroke-dasharray: 3 3; } svg .shade { fill: var(--fault); opacity: .14; }
svg rect.open { fill-opacity: .25; stroke-width: 1; }
.legend span { margin-right: 1.2em; display: inline-block; } .legend i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; border-radius: 2px; }
''' + ''.join('svg .%s { fill: var(--%s); } svg .%s.open { stroke: var(--%s); } i.%s { background: var(--%s); }\n' % ((c,) * 6)
              for c in ('bad', 'fault', 'wait', 'read', 'write', 'renew', 'end', 'bar', 'held'))

# Of each judge, the gravest first: what it promises, what is said when that is broken, and where to look then.
JUDGES = {
    'lost updates': ('every add or append that was acknowledged is in the final value; every read of a list saw its beginning',
                     'updates that were acknowledged are gone',
                     'somebody wrote over an update without having seen it. Find who wrote although a newer token had been granted, and '
                     'why the storage let that pass.'),
    'sums': ('accounts between which amounts are moved keep their sum; who holds both locks never sees half of a move',
             'the sum of the accounts changed', 'two holders of the same locks at once: see leases, and what the storage let pass.'),
    'storage order': ('the storage never accepts a token after a larger one', 'the storage accepted an older token after a newer one',
                      'the later of the two marked operations should have been answered STALE. See store.log, and whether the storage '
                      'was restarted in between and came back with a lower mark.'),
    'tokens': ('no token is granted twice; who asks later gets a larger one', 'tokens were granted twice or went back',
               'two grants that do not know of each other: look for two leaders, or for a node that forgot what it had acknowledged '
               '(a change of leader or a power cut between the two).'),
    'token count': ('as many tokens were drawn as clients were told of, or may have drawn without being told',
              'more tokens were drawn than anybody can account for',
              'a request that was refused was done nevertheless, or one was done twice: see the sendings of unknown outcome, and which node '
              'sent a command on.'),
    'refusals': ('whoever is refused, other than for a while, has given a cause', 'requests were refused without cause',
                 'the marked operation should have been carried out: see which node or storage answered it, and what it knew of that lock and owner.'),
    'leases': ('a grant or a release that was acknowledged stays, until the lease may have ended',
               'grants or releases that were acknowledged did not stay',
               'compare the marked answers with when the lease could end at the earliest. Either the state was lost (a change of leader, '
               'a power cut) or time was counted wrongly (a clock fault).'),
    'holders': ('never more holders than a lock allows', 'a lock had more holders than it allows', 'see leases.'),
    'sessions': ('a session and its locks last until its lease may have ended or its close was sent, and no longer',
                 'sessions ended too early or outlived themselves', 'see leases.'),
    'linearizable': ('one order of the operations explains every answer about a lock', 'answers contradict each other',
                     'each answer alone is possible; all together are not. The last marked one fits in nowhere: compare it with those before.'),
    'events': ('subscribers hear what happened, in order, and without a gap that they are not told of',
               'subscribers heard what was not so, or missed something', 'see the `seen` lines of that connection in history.jsonl.'),
    'replicas': ('nodes that applied the same entries have the same state', 'nodes have different states at the same place of the log',
                 'the log of a node was changed after it was applied, or applying is not deterministic. See the nodes\' logs at that time.'),
    'damage': ('a server whose files have changed refuses to start and names the file, or the change meant nothing',
               'a damaged file was not refused by its name', 'see what that server printed, and the file in data.tar.gz.'),
    'members': ('every change of members ends with those that were asked for', 'the members are not those that were asked for',
                'see the faults `members` in history.jsonl, `refused` among them, and what the nodes said of it in their logs.'),
    'backups': ('a backup is whole, and the cluster that is made of it begins above every token and holds nothing',
                'a backup was not whole, or what was made of it goes on where it must not', 'see backup.last in data.tar.gz.'),
    'version': ('when all nodes have the next version, so has the cluster', 'the cluster\'s version is not that of its nodes',
                'CLUSTER MEMBERS tells which node knows what.'),
    'answered once': ('every operation is answered at most once, and nothing comes unasked', 'answers came twice or unasked',
                      'see the client\'s operations in history.jsonl.'),
    'liveness': ('every client gets on after the faults have ended', 'clients did not get on after the faults',
                 'see the end of the overview below, and the nodes\' logs.'),
    'recovers': ('servers start and agree again after the faults have ended', 'servers did not recover from the faults',
                 'see stuck.log: what the nodes said about themselves.'),
    'ends': ('a server whose call failed goes on, or ends with an exit code and a sentence', 'a server ended without a word',
             'the stack of the call is in its .shim.stack in data.tar.gz.'),
    'processes': ('no server crashed, failed an assertion, or ended by itself', 'processes ended by themselves',
                  'their logs end with the reason.'),
}
SWITCHES = {'no_fencing': 'the storage ignored tokens', 'check_writes_only': 'clients read without their token, so nobody claimed',
            'unsafe_ack': 'nodes said of entries that they were on disk before they were', 'no_sync': 'servers never synced'}
TOLD_FULLY, TOLD_BRIEFLY = 2, 100


def switches(options):
    return ['--' + name.replace('_', '-') for name in SWITCHES if getattr(options, name, False)]


def broken_kinds(r):
    """(judge, its anomalies), the gravest judge first; those that are told of with operations and shortest first."""
    order = list(JUDGES)
    of_kind = {}
    for a in r.anomalies_list():
        of_kind.setdefault(a.kind, []).append(a)

    def length(a):
        low, high = story.window(story.related(r, a)) if a.ops else (0.0, 1e9)
        return high - low
    return [(kind, sorted(of_kind[kind], key=length)) for kind in sorted(of_kind, key=order.index)]


def times(n):
    return 'once' if n == 1 else '%d times' % n


def findings(r):
    """One sentence on what the judges say."""
    if not r.anomalies_list():
        return 'Nothing was lost: %d operations under %d faults, and no judge objects.' % (len(r.ops), r.counts.get('faults', 0))
    text = '; '.join('%s (%s)' % (JUDGES[kind][1], times(len(found))) for kind, found in broken_kinds(r))
    return text[0].upper() + text[1:] + '.'


def on_purpose(r):
    """What to make of it when the run was broken on purpose; nothing when it was not."""
    broken = switches(r.options)
    if not broken:
        return ''
    how = '; '.join(SWITCHES[w[2:].replace('-', '_')] for w in broken)
    if r.anomalies_list():
        return 'This run was broken on purpose (%s: %s) and it was found, as it must be. Without %s the same run must find nothing.' \
            % (' '.join(broken), how, ' and '.join(broken))
    return 'This run was broken on purpose (%s: %s), and no judge noticed. The harm needs the right moment: run it again, or for longer.' \
        % (' '.join(broken), how)


def verdict(r):
    """In plain text."""
    return ' '.join(filter(None, (outcome(r), findings(r), on_purpose(r))))


def outcome(r):
    return 'FAILED.' if r.anomalies_list() else 'NOT CAUGHT.' if switches(r.options) else 'Passed.'


def told(r):
    """One anomaly of each kind in lines of plain text."""
    for kind, found in broken_kinds(r):
        yield ''
        yield '%s: %s' % (kind, found[0].text)
        for s in story.steps(r, found[0]):
            yield '  %s %8.3f s  %-9s  %s' % ('>' if s.kind == 'bad' else ' ', s.t - r.origin,
                                             '' if s.who is None else 'client %s' % s.who, s.text)
        if len(found) > 1:
            yield '  and %d more of this kind: see the report' % (len(found) - 1)
    yield ''


def story_table(r, anomaly):
    told = story.steps(r, anomaly)
    if not told:
        return ''
    actors = list(dict.fromkeys(s.who for s in told if s.who is not None))
    out = ['<div class="scroll"><table class="story"><tr><th>at</th>%s</tr>' % ''.join('<th>client %s</th>' % a for a in actors)]
    for s in told:
        time = '<td>%.3f s</td>' % (s.t - r.origin)
        if s.who is None:
            out.append('<tr>%s<td class="fault" colspan="%d">%s</td></tr>' % (time, max(len(actors), 1), esc(s.text)))
        else:
            out.append('<tr>%s%s</tr>' % (time, ''.join('<td%s>%s</td>' % (
                ' class="bad"' if s.kind == 'bad' and a == s.who else '', esc(s.text) if a == s.who else '') for a in actors)))
    return ''.join(out) + '</table></div>'


def anomaly_section(r, anomaly):
    out = '<div class="anomaly"><h3>%s</h3>' % esc(anomaly.text[0].upper() + anomaly.text[1:])
    out += story_table(r, anomaly)
    return out + (plots.zoom(r, anomaly) if anomaly.ops else '') + '</div>'


def anomalies(r):
    parts = ['<h2>What went wrong</h2><p>Each story is in the order in which things took effect; what is <b class="bad">marked</b> contradicts '
             'each other. Times are seconds since the clients began, at %s; ' % utc(r.began_utc) +
             '<code>a0-8</code> is what operation 8 of client 0 wrote. Below it the same over time: a client holds its lock for as '
             'long as the band, until it releases it or the lease is over.</p>', plots.legend(r.ops, zoomed=True)]
    for kind, found in broken_kinds(r):
        promise, _, look = JUDGES[kind]
        parts.append('<h3>%s: %s</h3><p>The promise: %s.<br>Where to look: %s</p>' % (esc(kind), times(len(found)), esc(promise), esc(look)))
        parts.append(anomaly_section(r, found[0]))
        if len(found) > 1:
            parts.append('<details><summary>%d more of this kind</summary>' % (len(found) - 1))
            parts += [anomaly_section(r, a) for a in found[1:TOLD_FULLY]]
            parts.append('<ul>%s</ul>' % ''.join('<li>%s%s</li>' % ('' if a.at is None else '%.3f s: ' % (a.at - r.origin), esc(a.text))
                                                 for a in found[TOLD_FULLY:TOLD_BRIEFLY]))
            if len(found) > TOLD_BRIEFLY:
                parts.append('<p>And %d more.</p>' % (len(found) - TOLD_BRIEFLY))
            parts.append('</details>')
    return parts


def verdict_rows(r):
    found = {kind: 0 for kind in r.anomalies}
    for a in r.anomalies_list():
        found[a.kind] = found.get(a.kind, 0) + 1
    return ''.join('<tr><td>%s</td><td>%s</td><td>%s</td></tr>' % (
        '<span class="bad">broken, %s</span>' % times(n) if n else '<span class="good">holds</span>', esc(kind),
        esc(JUDGES[kind][0])) for kind, n in found.items())


def count_rows(r):
    kinds = {}
    for op in r.ops:
        kinds.setdefault(op.f, {}).setdefault(op.type, []).append(op)
    out = ['<table><tr><th>operation</th><th>ok</th><th>refused</th><th>unknown</th><th>p50</th><th>p99</th><th>longest</th></tr>']
    for f in sorted(kinds):
        times = sorted(op.completed - op.invoked for op in kinds[f].get('ok', []))
        points = ['%.1f ms' % (times[min(int(len(times) * q), len(times) - 1)] * 1000) if times else '' for q in (0.5, 0.99, 1)]
        out.append('<tr><td>%s</td>%s%s</tr>' % (
            f, ''.join('<td class="n">%d</td>' % len(kinds[f].get(t, [])) for t in ('ok', 'fail', 'info')),
            ''.join('<td class="n">%s</td>' % p for p in points)))
    out.append('</table><table>')
    for what, n in sorted(r.counts.items()):
        out.append('<tr><td>%s</td><td class="n">%d</td></tr>' % (esc(what), n))
    out.append('<tr><td>time in which two clients could both believe to hold a lock</td><td class="n">%.1f s</td></tr></table>' % r.overlap_s)
    return ''.join(out)


def utc(seconds):
    """As the logs of servers have it."""
    return time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds)) + '.%03dZ' % (seconds % 1 * 1000)


def files_line(r, files):
    known = {'history.jsonl': 'every operation, fault and sample', 'history.edn': 'the same for Jepsen\'s checkers',
             'history.porcupine': 'its locks, registers and tokens for Porcupine'}
    links = ['<a href="%s">%s</a>%s' % (esc(f), esc(f), ' (%s)' % known[f] if f in known else '') for f in sorted(files)]
    return '<p>Files of this run: %s. The logs of servers are in UTC, and second 0 of this page is %s%s.</p>' % (
        ', '.join(links), utc(r.began_utc), ' on a clock that is right' if 'clock' in r.options.nemesis else '')


def page(r, command, files=()):
    bad = r.anomalies_list()
    marked = {op.id for a in bad for op in a.ops}
    parts = ['<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
             '<title>%s: %s, seed %d</title><style>%s</style>'
             % (outcome(r).rstrip('.'), esc(r.options.workload), r.options.seed, STYLE),
             '<h1><span class="%s">%s</span> %s</h1>' % ('good' if outcome(r) == 'Passed.' else 'bad', outcome(r), esc(findings(r)))]
    if switches(r.options):
        parts.append('<p><b>%s</b></p>' % esc(on_purpose(r)))
    parts += ['<p>Workload %s: %d operations in %.1f s by %d clients on %d locks, %d nodes; %d faults (%s); %d fail-overs.</p>'
              % (esc(r.options.workload), len(r.ops), r.seconds, r.options.clients, r.options.locks, r.options.nodes,
                 r.counts.get('faults', 0), esc(', '.join(r.options.nemesis) or 'none'), r.counts.get('fail-overs', 0)),
              '<p>Run it again:</p><pre>%s</pre><p class="soft">The seed decides what is asked and which faults come; when they meet is up '
              'to the machine, so the same anomaly may need a few tries.</p>' % esc(command),
              files_line(r, files), '<h2>Judges</h2><div class="scroll"><table>%s</table></div>' % verdict_rows(r)]
    parts += anomalies(r) if bad else []
    parts += ['<h2>Operations and faults</h2>', plots.legend(r.ops), plots.overview(r, marked),
              '<h2>Time to the answer</h2>', plots.latency(r), '<h2>Operations a second</h2>', plots.throughput(r),
              '<h2>Counts</h2>', '<div class="scroll">%s</div>' % count_rows(r), '</html>']
    return ''.join(parts)
