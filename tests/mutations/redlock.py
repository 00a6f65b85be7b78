"""What `sim_redlock` must notice: mistakes in Redlock's handle, calls and keeper. It has one judge, so there is no number."""

OP, QUORUM, KEEP = 'src/redlock/op.c', 'src/redlock/quorum.c', 'src/redlock/keepalive.c'
REQUEST, ATTEMPT = 'src/redlock/request.c', 'src/redlock/attempt.c'

# what, file, the line, what it becomes, what the simulation then says
MUTANTS = [
    ('the deadline is counted from the last answer', OP, 'op->lock.deadline_ms = fli_deadline_ms(op->attempt.t0_ms, op->ttl_ms);',
     'op->lock.deadline_ms = fli_deadline_ms(now_ms, op->ttl_ms);', 'servers hold it'),
    ('half of the servers are a quorum', QUORUM, 'return n / 2 + 1;', 'return n < 2 ? 1 : n / 2;', 'servers hold it'),
    ('drift is ignored', QUORUM, 'return ttl_ms / 100 + 2;', 'return ttl_ms * 0;', 'servers hold it'),
    ('a restarted server counts at once', QUORUM, 'return sum(now_ms, less(needed_ms, age_s * 1000));',
     'return sum(now_ms, 0 * less(needed_ms, age_s * 1000));', 'at once|servers hold it'),
    ('an extend that failed with a shorter TTL changes nothing', QUORUM, 'return extended || fresh < old_deadline_ms ? fresh',
     'return extended ? fresh', 'servers hold it'),
    ('a lock is kept for twice the time', QUORUM, 'k->until_ms = sum(now_ms, max_hold_ms);', 'k->until_ms = sum(now_ms, 2 * max_hold_ms);',
     'for longer than it may'),
    ('the last extends ask for the whole TTL', QUORUM, 'return k->ttl_ms < left ? k->ttl_ms : left;', 'return k->ttl_ms + 0 * left;',
     'never reached'),
    ('the keeper begins with a deadline beyond its time', KEEP, '    k->lock.deadline_ms = k->renewal.deadline_ms;\n    fli_enter(r);',
     '    fli_enter(r);', 'for longer than it may'),
    ('the keeper does not hear that the lock is lost', KEEP, 'if (report->cause == FL_REDLOCK_LOST) {',
     'if (report->cause == FL_REDLOCK_CANCELLED) {', 'never reached'),
    ('what is lost is believed until its deadline', OP, '        op->lock.deadline_ms = 0;', '        (void)now_ms;', 'is told that lock'),
    ('late answers of an earlier attempt count', REQUEST, '!q->counts || q->serial != op->report.attempts ||', '!q->counts ||', 'servers hold it|at once'),
    ('a young server counts when it sets', REQUEST, '    if (status == FL_REDLOCK_YES && q->op->attempt.t0_ms < s->counts_from_ms) {',
     '    if (status == FL_REDLOCK_HELD && q->op->attempt.t0_ms < s->counts_from_ms) {', 'at once|servers hold it'),
    ('servers are asked for half of the TTL', REQUEST, '    q->ttl_ms = op->ttl_ms;', '    q->ttl_ms = op->ttl_ms / 2;', 'servers hold it'),
    ('another holder counts as a yes', ATTEMPT, 'a->status[i] = status;', 'a->status[i] = status == FL_REDLOCK_HELD ? FL_REDLOCK_YES : status;',
     'servers hold it|at once'),
    ('a server that is silent counts as a yes', ATTEMPT, 'a->status[i] = FL_REDLOCK_SILENT;', 'a->status[i] = FL_REDLOCK_YES;', 'servers hold it|at once'),
    ('a failed attempt takes back what others hold', REQUEST, '    memcpy(q->value, op->lock.value, sizeof q->value);',
     '    memset(q->value, 120, sizeof q->value - 1);', 'servers hold it'),
    ('an answer that was NOTOURS is a yes to an extend', REQUEST, 'return status == FL_REDLOCK_YES && young ? FL_REDLOCK_YOUNG : status;',
     'return young ? FL_REDLOCK_YOUNG : status == FL_REDLOCK_NOTOURS ? FL_REDLOCK_YES : status;', 'servers hold it|at once|never reached'),
]
