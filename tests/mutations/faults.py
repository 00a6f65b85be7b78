"""What the suite on real processes must notice, by any of its judges."""

COUNTER, LOCK = ['--workload', 'counter', '--nemesis', 'hold,clients', '--until-late', '6'], \
    ['--workload', 'lock', '--nemesis', 'clients', '--locks', '1']

WATCH = ['--workload', 'watch', '--nemesis', 'clients']

# what, file, the line, what it becomes, how the suite is run
MUTANTS = [
    ('leases last half as long', 'src/machine/session.c', 'renewed_ms = m->clock_ms + new_ttl_ms;',
     'renewed_ms = m->clock_ms + new_ttl_ms / 2 + 1;', LOCK),
    ('renewals are acknowledged and do nothing', 'src/machine/timers.c', '    s->later_ms = (uint32_t)(until_ms - s->lease.at_ms);\n    s->renewals', '    s->renewals', LOCK),
    ('the cluster clock runs at one and a half times its pace', 'src/commands/clock.c', 'least(c->value_ms + step_ms,',
     'least(c->value_ms + step_ms + step_ms / 2,', LOCK),
    ('a token one below the mark is accepted', 'src/fence/rule.c', 'if (token < mark) {', 'if (token + 1 < mark) {', COUNTER + ['--locks', '1']),
    ('every other mark is forgotten', 'src/store/service.c', 'return op->token > stored ?', 'return op->token > stored && op->token % 2 == 0 ?', COUNTER),
    ('a read with a token claims nothing', 'src/store/service.c', 'if (has_token(op) && s->fencing) {',
     'if (has_token(op) && s->fencing && op->verb != STORE_GET) {', COUNTER),
    ('the storage forgets every other mark, seen without locks', 'src/store/service.c', 'return op->token > stored ?',
     'return op->token > stored && op->token % 2 == 0 ?', ['--workload', 'register', '--nemesis', 'none']),
    ('a semaphore has a permit too many', 'src/machine/lock.c', 'c->slots == slots && c->n_shares < slots);',
     'c->slots == slots && c->n_shares <= slots);', ['--workload', 'semaphore', '--nemesis', 'clients', '--locks', '1']),
    ('renewals of sessions are acknowledged and do nothing', 'src/machine/machine.c',
     '    if (found && !watch(m, &s->base, 0)) {\n        return false;\n    }\n', '',
     ['--workload', 'session', '--nemesis', 'clients', '--locks', '2']),
    ('only the first of several locks is looked at', 'src/machine/multi_lock.c',
     'for (unsigned i = 0; i < a->n; i++) {\n        const struct lock *lock = a->locks[i];\n        if (lock != NULL &&\n            ((',
     'for (unsigned i = 0; i < 1; i++) {\n        const struct lock *lock = a->locks[i];\n        if (lock != NULL &&\n            ((',
     ['--workload', 'bank', '--nemesis', 'clients']),
    ('nobody hears that somebody waits', 'src/server/events_publish.c', '        return "queued";', '        return NULL;', WATCH),
    ('nobody hears of what is given back', 'src/server/events_publish.c', '        return "released";', '        return NULL;', WATCH),
    ('nobody hears of what has expired', 'src/server/events_publish.c', '    case MACHINE_EVENT_EXPIRED:\n        return "expired";', '    case MACHINE_EVENT_EXPIRED:\n        return NULL;', WATCH),
    ('nobody hears of a wait that has ended', 'src/server/events_publish.c', '        return "left";', '        return NULL;', WATCH),
]
