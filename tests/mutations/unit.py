"""What only a unit test notices, which, and why nothing above it can."""

RELAY_C, RELAY_S, PROPOSER = 'src/consensus/relay_client.c', 'src/consensus/relay_server.c', 'src/consensus/proposer.c'
ATTEMPT, FLOW = 'src/machine/attempt.c', 'src/client/call_state.c'
MARKS, RULE = 'src/fence/marks.c', 'src/fence/rule.c'
FORGOTTEN = 'the copy has to be later than a hundred other attempts'
TIME_ONLY = 'it costs time and nothing else: the log tells the same later'
NO_SHELL = 'the shells of clients and LMDB are in no simulation'

# what, file, the line, what it becomes, the test's program, the reason
MUTANTS = [
    ('what may be relayed includes what is the leader\'s own', RELAY_S, 'case MACHINE_OP_SESSION_OPEN:\n    case MACHINE_OP_SESSION_RENEW:',
     'case MACHINE_OP_RAISE:\n    case MACHINE_OP_SESSION_OPEN:\n    case MACHINE_OP_SESSION_RENEW:', 'consensus/test_consensus_relay',
     'no correct node sends it'),
    ('who waits at a follower is not told ahead', RELAY_S, '        note_wait(f, result->wait);', '        (void)note_wait;',
     'consensus/test_consensus_push', TIME_ONLY),
    ('waits that outlive their leader are not pushed', RELAY_S, '        push_to_all(s, e);', '        (void)push_to_all;',
     'consensus/test_consensus_push', TIME_ONLY),
    ('the newest attempt is refused with the late ones', ATTEMPT, 'number < a->highest', 'number <= a->highest', 'machine/test_machine_attempt',
     'the client counts on and is served'),
    ('attempts are noted for all locks together', ATTEMPT, '    memcpy(key + 6, name.data, name.len);', '    memset(key + 6, 97, name.len);',
     'machine/test_machine_attempt', 'the client counts on and is served'),
    ('an attempt leaves its place among the oldest', ATTEMPT, '        fli_list_remove(&a->link);\n        fli_list_push(', '        fli_list_remove(&a->link);\n        fli_list_insert_before(m->attempts_list.next, &a->link);\n        (void)(',
     'machine/test_machine_attempt', 'sixteen thousand of them are needed'),
    ('one attempt too many is remembered', ATTEMPT, 'm->attempts.len == MACHINE_ATTEMPTS_MAX) {\n            drop', 'm->attempts.len > MACHINE_ATTEMPTS_MAX) {\n            drop',
     'machine/test_machine_attempt', 'sixteen thousand of them are needed'),
    ('attempts are forgotten at once', ATTEMPT, 'if (age_ms > MACHINE_ATTEMPT_KEEP_MS ||', 'if (age_ms > 0 ||', 'machine/test_machine_attempt', FORGOTTEN),
    ('a wait keeps the longest of its deadlines', 'src/machine/acquire.c', 'if (newest || deadline_ms', 'if (deadline_ms', 'machine/test_machine_attempt',
     'a wait that ends late is allowed'),
    ('a lost packet is sent again by TCP alone', 'src/link/link.c', '        if (fli_clock_ms() >= l->again_ms) {', '        if (fli_clock_ms() >= l->again_ms + 3600000) {',
     'client/test_client_link', NO_SHELL),
    ('the first connection that was asked for is dropped', 'src/link/link.c', '    if (l->first_fd < 0) {\n        l->first_fd = l->fd;\n    } else {',
     '    if (l->first_fd > 100000) {\n        l->first_fd = l->fd;\n    } else {', 'client/test_client_link', NO_SHELL),
    ('a token below the mark is admitted by the library', MARKS, 'if (r.result == 0 && token < r.mark) {', 'if (r.result == 0 && token + 1 < r.mark) {',
     'fence/test_fence_marks', NO_SHELL),
    ('a mark is not raised', MARKS, '} else if (r.result == 0 && token > r.mark) {', '} else if (r.result == 0 && token > r.mark + 1) {',
     'fence/test_fence_marks', NO_SHELL),
    ('marks at the floor are forgotten as well', MARKS, '    if (mark < floor) {', '    if (mark <= floor) {', 'fence/test_fence_marks', NO_SHELL),
    ('a client that counts keeps its place when it leaves', 'src/server/cleanup.c', '&& !c->counted && queued', '&& (c->counted || true) && queued',
     'server/test_server_waiting', 'a place that is kept for nobody ends with its deadline'),
    ('an answer that comes late is no reason to ask another node', FLOW, '} else if (may_ask(f)) {\n        want_ask(', '} else if (may_ask(f) && f->ask_ms == 0) {\n        want_ask(',
     'client/test_client_call_state_ask', TIME_ONLY),
    ('a try that was given up takes away the place of the next one', 'src/server/cleanup.c', '!c->counted && queued->token > 1', '!c->counted && queued->token > 100',
     'server/test_server_waiting', 'all clients of the simulation that ask again count, as the library does'),
    ('readers do not wait while marks are forgotten', MARKS, '    while (f->moving) {', '    while (f->moving && f->writing && f->floor > FL_TOKEN_MAX) {',
     'fence/test_fence_commit', 'another thread has to read between the commit and the line behind it'),
    ('STALE is answered although the commit failed', MARKS, '            FLI_CONTAINER_OF(node, struct raise_request, link)->result = rc;',
     '            struct raise_request *r = FLI_CONTAINER_OF(node, struct raise_request, link);\n            r->result = r->result == 0 ? rc : r->result;',
     'fence/test_fence_commit', 'a disk has to fail with two requests in one group'),
    ('CHECK is answered before its entry is committed', 'src/consensus/proposer.c', '    batch_drop_bytes(b);\n    p->in_flight++;',
     '    batch_drop_bytes(b);\n    p->in_flight++;\n    struct machine_command q;\n    struct machine_result r;\n    struct fli_slice bytes;\n    struct node_ticket *t;\n'
     '    for (uint32_t i = 0; i <= b->count; i++) {\n        while ((t = batch_take_query(b, i, &bytes)) != NULL) {\n            fli_buf_clear(&p->payload);\n'
     '            int rc = machine_command_decode(bytes.data, bytes.len, &q, &size);\n            rc = rc != 0 ? rc : machine_query(fsm_machine(p->config.fsm), &q, &r, &p->payload);\n'
     '            t->cb(t, rc == 0 ? 0 : FL_EBUSY, &r, (struct fli_slice){p->payload.data, p->payload.len});\n        }\n    }',
     'consensus/test_consensus_proposer', 'a leader that is replaced steps down as the other is elected: of 370 questions in 1000 seeds none was of a token that had ended by then'),
    ('bytes that nobody acknowledges are waited for as long as TCP likes', 'src/peer/channel.c', 'TCP_USER_TIMEOUT, &c->shared->unacked_ms,',
     'TCP_USER_TIMEOUT, &(unsigned){0},', 'peer/test_peer_transport', 'the streams of the simulation are not TCP'),
    ('who was cut off from all does not ask for votes when another is heard', 'src/consensus/election.c', '        begin_anew(e);\n',
     '        (void)begin_anew;\n', 'consensus/test_consensus_election', TIME_ONLY),
    ('the wall clock in place of the monotonic one', 'src/base/clock.c', 'clock_gettime(CLOCK_BOOTTIME, &now) != 0', 'clock_gettime(CLOCK_REALTIME, &now) != 0',
     'base/test_base_clock', 'nodes take their time from the loop; who takes it from here, the shells of clients, is in no simulation'),
    ('a candidate asks for pre-votes only once', 'src/consensus/raft_edge.c', 'if (again && r->pre_vote', 'if (again && e->muted && r->pre_vote',
     'consensus/test_consensus_raft_edge_candidate', 'the simulation meets it in one of some thousand seeds: a candidate is cut off between its pre-votes and its votes, and forgotten'),
    ('what is committed is compared with the log, where it may be compacted', 'src/consensus/raft_edge.c', 'if (m->prev_log_index >= commit || m->term',
     'if (m->prev_log_index > 0 || m->prev_log_index >= commit || m->term', 'consensus/test_consensus_raft_edge_compacted',
     'the simulation meets it in one of 38,000 seeds: the answer to a snapshot is lost, and the leader has the entries behind what it knew before'),
    ('a follower that cannot answer about a snapshot keeps the connection', 'src/consensus/snapshot_install.c',
     '    } else {\n        hang_up(s);\n    }\n}', '    }\n}', 'consensus/test_consensus_snapshot_transfer', 'memory is never short in the simulation'),
    ('a silent follower is waited for as long as it likes', 'src/consensus/snapshot_send.c', 'if (now_ms(s) - stream_heard_ms(s->stream) > SILENCE_MS) {',
     'if (false) {', 'consensus/test_consensus_snapshot_transfer', 'a stream of the simulation that is not acknowledged ends, and a paused node goes on'),
    ('a learner gives no vote', 'src/consensus/raft_edge.c', '    if (self != NULL) {\n        vote_as_learner', '    if (self != NULL && e->muted) {\n        vote_as_learner',
     'consensus/test_consensus_raft_edge_learner', 'the simulation meets it in one of many long seeds: a member that is promoted, has not heard of it, and is needed at once'),
    ('an address is dropped by what the identity file knows, which the log lacks', 'src/consensus/membership_members.c', '&& g->index <= applied) {',
     '&& g->index <= m->config.identity->known_index) {', 'consensus/test_consensus_membership',
     'the identity file is not ahead of a log that this version wrote, and whose disk keeps what was synced'),
    ('a learner votes before it is admitted', 'src/consensus/raft_edge.c', 'for (unsigned i = 0; admitted && i < c->n; i++) {', 'for (unsigned i = 0; (admitted || true) && i < c->n; i++) {',
     'consensus/test_consensus_raft_edge_learner', 'it needs a vote that a disk had and lost in the same term, by a node that was replaced in between'),
]
