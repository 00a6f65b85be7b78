"""Mistakes that a rebuilding of membership, start counts, snapshots and relay could make. Each is noticed above the unit level: by
`sim_cluster`, or by `sim_cluster --members-heavy`. Each was planted, and seen to be noticed by what is named."""

HELD = 'src/consensus/held.c'
PROPOSER = 'src/consensus/proposer.c'
RELAY_C = 'src/consensus/relay_client.c'
REPLICA = 'src/consensus/replica.c'

# level, what, file, the line, what it becomes, what the simulation then says (other seeds may say it in other words)
MUTANTS = [
    ('simulation', 'changes that are truncated stay', REPLICA,
     '        changes_truncate(&r->changes, index);\n',
     '',
     'node \\d+ notes \\d+ as the change that is not committed and \\d+ as the last'),
    ('simulation', 'what is truncated stays stored', REPLICA,
     '        r->stored = r->stored < index ? r->stored : index - 1;\n',
     '',
     'not everybody is answered'),
    ('simulation', 'only urgent commands of the line go back', PROPOSER,
     '    while (most-- > 0 && (h = held_first(&p->line)) != NULL) {',
     '    while (most-- > 0 && (h = held_first_urgent(&p->line)) != NULL) {',
     'not everybody is answered'),
    ('simulation', 'what comes back stands behind all others', HELD,
     '    return backlog_return(&q->waiting, h);',
     '    return backlog_push(&q->waiting, h);',
     'sending \\d+, of kind \\d+, is carried out after sending \\d+ of the same con'),
    ('simulation', 'one command a round trip for ever after one that came back', RELAY_C,
     '    struct node_ticket *t = h->t;\n    o->probe_ms = 0;\n',
     '    struct node_ticket *t = h->t;\n',
     'node \\d+ does not carry \\d+ requests of one connection within \\d+ ms'),
    ('simulation', 'new commands overtake the line', PROPOSER,
     'bool alone = held_first(&p->line) == NULL;',
     'bool alone = true;',
     'sending \\d+, of kind \\d+, is carried out after sending \\d+ of the same c'),
    ('simulation', 'a term opens when its barrier is sent', PROPOSER,
     'if (p->state == STATE_BARRIER && p->barrier_done) {',
     'if (p->state == STATE_BARRIER && p->barrier_sent) {',
     'the cluster clock goes back from \\d+ to \\d+'),
    ('simulation', 'the barrier of an earlier term opens this one', PROPOSER,
     '(p->state == STATE_BARRIER && term == p->term);',
     '(p->state == STATE_BARRIER);',
     'the cluster clock goes back from \\d+ to \\d+'),
]
