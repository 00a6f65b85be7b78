"""Mistakes that a rebuilding of membership, start counts, snapshots and relay could make. Each is noticed above the unit level: by
`sim_cluster`, or by `sim_cluster --members-heavy`. Each was planted, and seen to be noticed by what is named."""

CHANGE = 'src/consensus/membership_change.c'
HELD = 'src/consensus/held.c'
KNOWN = 'src/consensus/membership_known.c'
MEMBERS = 'src/consensus/membership_members.c'
OUTBOUND = 'src/peer/outbound.c'
PROPOSER = 'src/consensus/proposer.c'
RELAY_C = 'src/consensus/relay_client.c'
REPLICA = 'src/consensus/replica.c'
STARTS = 'src/consensus/starts.c'
STARTS_M = 'src/consensus/membership_starts.c'

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
    ('members', 'the identity file follows a log that is being replayed', KNOWN,
     'if (applied < m->config.identity->known_index || !has_changes(m)) {',
     'if (!has_changes(m)) {',
     'node \\d+ halts: this node was removed from the cluster: its data directo'),
    ('members', 'a snapshot that is installed has its configuration at its own index', REPLICA,
     'meta->configuration_index = r->installing.conf_index;',
     'meta->configuration_index = r->installing.index;',
     'node \\d+ notes \\d+ as the change that is not committed and \\d+ as the last '),
    ('members', 'a member that is new is not called', OUTBOUND,
     '        if (id != o->self_id && find(o, id) == NULL) {',
     '        if (id != o->self_id && find(o, id) == NULL && !o->started) {',
     'not everybody is answered'),
    ('members', 'nodes that are expected are not called', MEMBERS,
     '    put_expected(m, ret);\n    put_guests',
     '    put_guests',
     'not everybody is answered'),
    ('members', 'a new incarnation inherits what the former one had', STARTS,
     '*k = (struct starts_known){.id = id, .incarnation = incarnation, .start = start};\n        return true;',
     'k->id = id;\n        k->incarnation = incarnation;\n        k->start = start;\n        return true;',
     'node \\d+ does not start: the data directory node\\-\\d+ is an older copy, the'),
    ('members', 'a second incarnation is let in by a node that does not lead', KNOWN,
     ': proposer_is_open(m->config.proposer) && is_expected(m, id, incarnation);',
     ': is_expected(m, id, incarnation);',
     'node \\d+, which does not lead, lets in node \\d+, which has not joined'),
    ('members', 'what is told of a replaced incarnation is believed', STARTS_M,
     '    if (identity_known(m->config.identity, sent->id) != sent->incarnation) {\n        return;\n    }\n',
     '    if (identity_known(m->config.identity, sent->id) == 0) {\n        return;\n    }\n',
     'node \\d+ has lost what it knew of node \\d+'),
    ('members', 'a leader that is removed keeps its office', CHANGE,
     '        return give_up_leadership(m);',
     '        return give_up_leadership != NULL;',
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
