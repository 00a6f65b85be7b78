/* lost_update.pml: can an accepted update be lost? Writers that read, add and write back through a lock, a network
 * that delays, a storage that may check tokens. tests/model/run checks every variant and explains what it finds.
 *
 * What is written is a set of adds, one bit for each write request, since that is what a counter's value means: a
 * writer reads the set, puts its own bit in, and writes it back. The oracle is one sentence, asserted whenever the
 * storage has accepted a write: every add it ever accepted is still in the value (LOST UPDATE otherwise). It says
 * nothing about time or about who held the lock.
 *
 * Time is not modelled by clocks but by what clocks could do at worst:
 *   - a lease may expire at any moment (EXPIRY), or a Redis lose its key at any moment (clock jump, restart without
 *     persistence, eviction): each is a process that may take the lock away between any two steps;
 *   - a client may pause between any two of its steps: processes interleave freely;
 *   - a write may be in the network for as long as anybody likes: it is a message that the storage takes some time
 *     later, or never, while its sender waits for the answer or gives up and goes on.
 *
 * Variants (cc -D):
 *   FENCE   storage refuses a write whose token is below its mark, and raises the mark otherwise
 *   CLAIM   a holder's first act is to read with its token, which raises the mark (claim-first)
 *   REDLOCK the lock is held by a majority of three Redis servers, not by a lease in the lock service
 *   TOKENS  (with REDLOCK) who has the majority gets a token from the lock service
 *   REUSE   a holder writes twice under one token, and an unanswered write is sent again
 *   FRESH   (with REUSE) after an unanswered write nothing more is written under that token
 * Bounds: CLIENTS writers, each of which tries to take the lock TRIES times. */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef TRIES
#define TRIES 2
#endif
#define WRITES (CLIENTS * TRIES)
#ifdef REUSE
#define SLOTS (3 * WRITES) /* first write, the same sent again, second write */
#define ADDS (2 * WRITES)
#else
#define SLOTS WRITES
#define ADDS WRITES
#endif
#if !defined(REDLOCK) || defined(TOKENS)
#define HAS_TOKENS
#endif

#define NOBODY 0
#define WAITING 0
#define ACCEPTED 1
#define REFUSED 2

typedef request {
    bit there;     /* in the network */
    byte token;
    short value;   /* the set as the writer wants it to be */
    byte answer;
};

request wire[SLOTS];
short stored = 0;      /* the value */
byte mark = 0;         /* the highest token the storage has accepted */
short accepted = 0;    /* oracle: every add that was ever accepted */
byte last_token = 0;   /* the lock service's counter */
byte finished = 0;

/* ---- the storage ---- */

inline take(slot) {
    wire[slot].there = 0;
#ifdef FENCE
    if
    :: wire[slot].token < mark ->
        wire[slot].answer = REFUSED;
        printf("storage    refuses the write of token %d: its mark is %d\n", wire[slot].token, mark)
#ifdef WITNESS_REFUSED
        ; assert(false)
#endif
    :: else ->
        mark = wire[slot].token;
#endif
        stored = wire[slot].value;
        accepted = accepted | wire[slot].value;
        wire[slot].answer = ACCEPTED;
#ifdef HAS_TOKENS
        printf("storage    accepts the write of token %d: the value is now set %d\n", wire[slot].token, stored);
#else
        printf("storage    accepts a write: the value is now set %d\n", stored);
#endif
        if
        :: accepted != stored ->
            printf("LOST UPDATE: accepted were set %d, left are set %d\n", accepted, stored);
            assert(accepted == stored)
        :: else
        fi
#ifdef FENCE
    fi
#endif
}

/* One request on its way. It arrives whenever this process is scheduled. */
proctype delivery(byte slot) {
    end: do
    :: d_step { wire[slot].there -> take(slot) }
    od
}

/* ---- the lock ---- */

#ifdef REDLOCK
byte redis[3]; /* whose key it is: number of the try + 1 */

proctype key_loss(byte server) {
    end: do
    :: d_step {
        redis[server] != NOBODY ->
        printf("redis %d    loses its key\n", server);
        redis[server] = NOBODY
    }
    od
}

/* Asks one after the other. A try has a value of its own, so that nobody deletes another's key. */
inline acquire(me, name) {
    votes = 0;
    server = 0;
    do
    :: server == 3 -> break
    :: server < 3 ->
        d_step {
            if
            :: redis[server] == NOBODY -> redis[server] = name; votes++
            :: else
            fi;
            server++
        }
    od;
    token = 0;
    if
    :: votes >= 2 ->
#ifdef TOKENS
        d_step { last_token++; token = last_token; printf("writer %d   has %d of 3 Redis servers, and token %d\n", me, votes, token) }
#else
        d_step { printf("writer %d   has %d of 3 Redis servers\n", me, votes); skip }
#endif
    :: else
    fi;
    held = votes >= 2
}

inline release(me, name) {
    server = 0;
    do
    :: server == 3 -> break
    :: server < 3 ->
        d_step {
            if
            :: redis[server] == name -> redis[server] = NOBODY
            :: else
            fi;
            server++
        }
    od
}
#else
byte holder = NOBODY;

proctype expiry() {
    end: do
    :: d_step {
        holder != NOBODY ->
        printf("lock       the lease of its holder expires\n");
        holder = NOBODY
    }
    od
}

inline acquire(me, name) {
    d_step {
        holder == NOBODY ->
        holder = name;
        last_token++;
        token = last_token;
        printf("writer %d   is granted the lock, token %d\n", me, token);
        held = true
    }
}

inline release(me, name) {
    d_step {
        if
        :: holder == name -> holder = NOBODY
        :: else
        fi
    }
}
#endif

/* ---- a writer ---- */

inline read(me) {
    d_step {
#ifdef CLAIM
        if
        :: token < mark ->
            printf("storage    refuses the claim of token %d: its mark is %d\n", token, mark);
            held = false
        :: else ->
            mark = token;
            seen = stored;
            printf("writer %d   claims with token %d and reads set %d\n", me, token, seen)
        fi
#else
        seen = stored;
        printf("writer %d   reads set %d\n", me, seen)
#endif
    }
}

inline send(me, slot, add) {
    d_step {
        wire[slot].value = seen | (1 << (add));
        wire[slot].token = token;
        wire[slot].there = 1;
        printf("writer %d   sends a write of set %d\n", me, wire[slot].value)
    }
}

proctype writer(byte id) {
    byte try = 0, token, name;
    short seen;
    bool held;
#ifdef REDLOCK
    byte votes, server;
#endif
    do
    :: try == TRIES -> break
    :: try < TRIES ->
        name = id * TRIES + try + 1;
        acquire(id, name);
        if
        :: held -> read(id)
        :: else
        fi;
#ifdef REUSE
        if
        :: held ->
            send(id, 3 * (name - 1), 2 * (name - 1));
            if
            :: wire[3 * (name - 1)].answer != WAITING -> held = wire[3 * (name - 1)].answer == ACCEPTED
            :: true ->
                printf("writer %d   had no answer, and sends the same again\n", id);
                send(id, 3 * (name - 1) + 1, 2 * (name - 1));
                wire[3 * (name - 1) + 1].answer != WAITING;
                held = wire[3 * (name - 1) + 1].answer == ACCEPTED;
#ifdef FRESH
                held = false
#endif
            fi;
            if
            :: held ->
                read(id);
                if
                :: held ->
                    send(id, 3 * (name - 1) + 2, 2 * (name - 1) + 1);
                    if
                    :: wire[3 * (name - 1) + 2].answer != WAITING
                    :: true /* gives up */
                    fi
                :: else
                fi
            :: else
            fi
        :: else
        fi;
#else
        if
        :: held ->
            send(id, name - 1, name - 1);
            if
            :: wire[name - 1].answer != WAITING
            :: true /* gives up; the write is still out there */
            fi
        :: else
        fi;
#endif
        release(id, name);
        try++
    od;
    finished++;
    d_step { /* what no longer matters must not tell states apart */
        id = 0; try = 0; token = 0; name = 0; seen = 0; held = 0;
#ifdef REDLOCK
        votes = 0; server = 0
#endif
    }
#ifdef WITNESS_ALL
    /* Every add of every writer can get in. */
    assert(!(finished == CLIENTS && accepted == (1 << ADDS) - 1))
#endif
}

init {
    byte i = 0;
    atomic {
        do
        :: i == SLOTS -> break
        :: i < SLOTS -> run delivery(i); i++
        od;
#ifdef REDLOCK
        run key_loss(0); run key_loss(1); run key_loss(2);
#else
        run expiry();
#endif
        i = 0;
        do
        :: i == CLIENTS -> break
        :: i < CLIENTS -> run writer(i); i++
        od
    }
}
