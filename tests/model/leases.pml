/* leases.pml: does a lease end before the time of a renewal that was acknowledged is over? Three nodes, one lease, and
 * renewals that the leader keeps in its memory (docs/adr/0077-leases-of-the-leader.md). tests/model/run checks every variant.
 *
 * The oracle is GUARANTEES 2a: a client that sent a renewal at a time, and was answered, may rely on the lease for one TTL
 * from that time (TOO EARLY otherwise).
 *
 * A node's log is what decides here: the term of its last entry, its length, and whether it has the EXPIRE. A leader begins
 * with a mark of its term. It gives a copy of its log to others, counts who has it, and applies what a majority has; messages
 * and answers take as long as anybody likes, since each of these steps may come at any time, or never. A leader that was
 * deposed does not know it until it hears of a higher term, however long that takes. There is one clock, and it goes on between
 * any two steps: nodes and clients pause by doing nothing meanwhile.
 *
 * Variants (cc -D), each a mistake:
 *   NO_ROUND   a renewal is answered at once
 *   OLD_ROUND  a round that is on its way confirms it
 *   ALONE      a leader confirms its rounds itself
 *   KEEPS_TIME a new leader goes on with the deadline of the log
 *   OVERTAKES  a renewal in memory is taken although an EXPIRE is on its way
 * Bounds: TERMS terms, TIME units of time, RENEWALS renewals. */

#ifndef TERMS
#define TERMS 3
#endif
#ifndef TIME
#define TIME 5
#endif
#ifndef RENEWALS
#define RENEWALS 2
#endif
#define NODES 3
#define TTL 2
#define NONE 255

byte now = 0;
byte term[NODES];              /* the highest each has heard of */
byte last_term[NODES], size[NODES];
bit expire[NODES];             /* the log has it */
bit leads[NODES];              /* as far as the node knows, in term[] */
byte deadline[NODES];          /* that this leader watches; NONE: its mark is not applied */
byte has_log[NODES];           /* bits: who told this leader to have all of its log */
byte renewal[NODES];           /* when the renewal that waits for a round was sent; NONE */
bit round[NODES];              /* one is on its way */
bit covers[NODES];             /* it began behind the renewal */
byte answers[NODES];           /* bits: who told it to be in this leader's term */

byte request = NONE;           /* when the client's present renewal was sent */
byte sent = 0;
byte relied = TTL;             /* the oracle: the lease must last until then */
byte ended = NONE;             /* when the EXPIRE was applied */

inline follow(n, t) {
    term[n] = t;
    leads[n] = 0;
    deadline[n] = NONE;
    renewal[n] = NONE;
    round[n] = 0;
    covers[n] = 0;
    answers[n] = 0;
    has_log[n] = 0
}

inline acknowledge(n, at) {
    printf("client     is answered by node %d in term %d: its renewal of time %d\n", n, term[n], at);
    if
    :: at + TTL > relied -> relied = at + TTL
    :: else
    fi;
    if
    :: ended != NONE && ended < relied ->
        printf("TOO EARLY: the lease ended at %d, and a client relies on it until %d\n", ended, relied);
        assert(ended >= relied)
    :: else
    fi;
#ifdef WITNESS_RENEWED
    assert(term[n] < TERMS)
#endif
}

/* A copy of all of it. Who gets it is in this leader's term from then on. */
inline give(from, to) {
    if
    :: term[to] < term[from] -> follow(to, term[from])
    :: else
    fi;
    last_term[to] = last_term[from];
    size[to] = size[from];
    expire[to] = expire[from];
    has_log[from] = has_log[from] | (1 << to)
}

proctype node(byte me; byte other; byte third) {
    byte voter;
    end: do
    /* ---- who leads ---- */
    :: d_step {
        !leads[me] && term[me] < TERMS &&
        ((term[other] <= term[me] && (last_term[me] > last_term[other] ||
                                      (last_term[me] == last_term[other] && size[me] >= size[other]))) ||
         (term[third] <= term[me] && (last_term[me] > last_term[third] ||
                                      (last_term[me] == last_term[third] && size[me] >= size[third])))) ->
        voter = third;
        if
        :: term[other] <= term[me] && (last_term[me] > last_term[other] ||
                                       (last_term[me] == last_term[other] && size[me] >= size[other])) -> voter = other
        :: else
        fi;
        follow(me, term[me] + 1);
        follow(voter, term[me]);
        leads[me] = 1;
        last_term[me] = term[me];
        size[me]++;
        printf("node %d     leads in term %d, elected by node %d\n", me, term[me], voter);
        voter = 0
    }
    /* ---- its log ---- */
    :: d_step { leads[me] && term[other] <= term[me] && (has_log[me] & (1 << other)) == 0 -> give(me, other) }
    :: d_step { leads[me] && term[third] <= term[me] && (has_log[me] & (1 << third)) == 0 -> give(me, third) }
    :: d_step {
        leads[me] && has_log[me] != 0 && (deadline[me] == NONE || (expire[me] && ended == NONE)) ->
        if
        :: deadline[me] == NONE ->
#ifdef KEEPS_TIME
            deadline[me] = TTL;
#else
            deadline[me] = now + TTL;
#endif
            printf("node %d     applies its mark at %d\n", me, now)
        :: else
        fi;
        if
        :: expire[me] && ended == NONE ->
            ended = now;
            printf("node %d     ends the lease at %d\n", me, now);
#ifdef WITNESS_ENDED
            assert(false);
#endif
            if
            :: ended < relied ->
                printf("TOO EARLY: the lease ended at %d, and a client relies on it until %d\n", ended, relied);
                assert(ended >= relied)
            :: else
            fi
        :: else
        fi
    }
    :: d_step {
        leads[me] && deadline[me] != NONE && deadline[me] <= now && !expire[me] ->
        expire[me] = 1;
        size[me]++;
        has_log[me] = 0;
        printf("node %d     puts the EXPIRE into its log at %d\n", me, now)
    }
    /* ---- renewals ---- */
    :: d_step {
#ifdef OVERTAKES
        leads[me] && deadline[me] != NONE && request != NONE && ended == NONE && renewal[me] == NONE ->
#else
        leads[me] && deadline[me] != NONE && request != NONE && !expire[me] && renewal[me] == NONE ->
#endif
        deadline[me] = now + TTL;
        printf("node %d     renews the lease at %d, in term %d\n", me, now, term[me]);
#ifdef NO_ROUND
        acknowledge(me, request);
#else
        renewal[me] = request;
#ifdef OLD_ROUND
        covers[me] = round[me];
#endif
#endif
        request = NONE
    }
    :: d_step {
        leads[me] && !round[me] && (renewal[me] != NONE || now < TIME) ->
        round[me] = 1;
        covers[me] = renewal[me] != NONE;
        answers[me] = 0
    }
    :: d_step { round[me] && term[other] == term[me] && (answers[me] & (1 << other)) == 0 -> answers[me] = answers[me] | (1 << other) }
    :: d_step { round[me] && term[third] == term[me] && (answers[me] & (1 << third)) == 0 -> answers[me] = answers[me] | (1 << third) }
#ifdef ALONE
    :: d_step { round[me] && covers[me] && renewal[me] != NONE ->
#else
    :: d_step { round[me] && answers[me] != 0 ->
#endif
        round[me] = 0;
        answers[me] = 0;
        if
        :: covers[me] && renewal[me] != NONE -> acknowledge(me, renewal[me]); renewal[me] = NONE
        :: else
        fi;
        covers[me] = 0
    }
    od
}

proctype clock() {
    end: do
    :: d_step { now < TIME -> now++ }
    od
}

/* It may give a renewal up, and send another one. */
proctype client() {
    end: do
    :: d_step { sent < RENEWALS && (request == NONE || request != now) ->
        request = now;
        sent++;
        printf("client     sends a renewal at %d\n", now)
    }
    od
}

init {
    byte i = 0;
    atomic {
        do
        :: i == NODES -> break
        :: i < NODES ->
            term[i] = 1;
            last_term[i] = 1;
            size[i] = 1;
            deadline[i] = NONE;
            renewal[i] = NONE;
            i++
        od;
        i = 0;
        leads[0] = 1;
        deadline[0] = TTL;
        has_log[0] = 6;
        run node(0, 1, 2);
        run node(1, 2, 0);
        run node(2, 0, 1);
        run clock();
        run client()
    }
}
