"""What `sim_redlock` must notice: mistakes in Redlock's calls, and in how its locks are kept. It has one judge, so there is no number."""

OP, QUORUM, LEASE = 'src/redlock/op.c', 'src/redlock/quorum.c', 'src/client/lease.c'
REQUEST, ATTEMPT = 'src/redlock/request.c', 'src/redlock/attempt.c'

# what, file, the line, what it becomes, what the simulation then says
MUTANTS = [
    ('the deadline is counted from the last answer', OP, 'op->deadline_ms = fli_deadline_ms(op->attempt.t0_ms, op->ttl_ms);\n    }\n    if (op->attempt',
     'op->deadline_ms = fli_deadline_ms(now_ms, op->ttl_ms);\n    }\n    if (op->attempt', 'servers hold it'),
    ('half of the servers are a quorum', QUORUM, 'return n / 2 + 1;', 'return n < 2 ? 1 : n / 2;', 'servers hold it'),
    ('drift is ignored', QUORUM, 'return ttl_ms / 100 + 2;', 'return ttl_ms * 0;', 'servers hold it'),
    ('a restarted server counts at once', QUORUM, 'return sum(now_ms, less(needed_ms, age_s * 1000));',
     'return sum(now_ms, 0 * less(needed_ms, age_s * 1000));', 'at once|servers hold it'),
    ('a lock is kept for twice the time', LEASE, 'h->end_ms = sent_of(h, config->lease_until_ms) + config->max_hold_ms;',
     'h->end_ms = sent_of(h, config->lease_until_ms) + 2 * config->max_hold_ms;', 'for longer than it may'),
    ('the holder does not hear that the lock is lost', LEASE, 'if (status == FL_ENOTHELD || status == FL_ENOSESSION) {',
     'if (status == FL_ENOSESSION) {', 'never reached'),
    ('late answers of an earlier attempt count', OP, '    fli_op_forget_answers(op);\n    op->state = OP_ATTEMPT;', '    op->state = OP_ATTEMPT;', 'servers hold it|at once'),
    ('a young server counts when it sets', REQUEST, '    if (status == FL_REDLOCK_YES && young) {', '    if (status == FL_REDLOCK_HELD && young) {',
     'at once|servers hold it'),
    ('servers are asked for half of the TTL', REQUEST, 'return fli_put_set(b, key, q->value, q->ttl_ms);',
     'return fli_put_set(b, key, q->value, q->ttl_ms / 2);', 'servers hold it'),
    ('another holder counts as a yes', ATTEMPT, 'a->status[i] = status;', 'a->status[i] = status == FL_REDLOCK_HELD ? FL_REDLOCK_YES : status;',
     'servers hold it|at once'),
    ('a server that is silent counts as a yes', ATTEMPT, 'a->status[i] = FL_REDLOCK_SILENT;', 'a->status[i] = FL_REDLOCK_YES;', 'servers hold it|at once'),
    ('a failed attempt takes back what others hold', REQUEST, '    memcpy(q->value, op->value, sizeof q->value);',
     '    memset(q->value, 120, sizeof q->value - 1);', 'servers hold it'),
    ('an answer that was NOTOURS is a yes to an extend', REQUEST, 'return status == FL_REDLOCK_YES && young ? FL_REDLOCK_YOUNG : status;',
     'return young ? FL_REDLOCK_YOUNG : status == FL_REDLOCK_NOTOURS ? FL_REDLOCK_YES : status;', 'servers hold it|at once|never reached'),
]
