/* account.h: what the oracle notes of a run. Included by sim.h, which has the capacities. */
#ifndef SIM_ACCOUNT_H
#define SIM_ACCOUNT_H

struct sim_applied {
    uint64_t machine_hash; /* 0: not computed */
    uint64_t event_digest; /* 0: not a batch */
    raft_index batch;      /* the last index that was one, up to this */
    uint64_t crc;          /* of the batch */
};

/* From this entry on that incarnation is the member, or none (0) is. */
struct sim_joined {
    uint64_t index, id, incarnation;
};

struct sim_token {
    bool issued;
    bool lease; /* a grant, not a bare TOKEN */
    bool explicit_session;
    unsigned lock, mask; /* the first of its locks, and all */
    uint32_t slots;
    uint64_t owner;     /* number of the owner */
    uint64_t ended_seq; /* 0: not ended */
    uint32_t uid;       /* whose it is */
    uint64_t base_at;   /* the lease cannot have begun before */
    uint64_t ttl_ms;
    uint64_t promised_ms; /* its end on the cluster clock, as it was said last */
    unsigned released_answers;
};

/* Who asked for locks. What one owner asks for under one first name is always the same, so that a
 * grant can be judged by it: an owner is used for one request, or for one session. */
struct sim_owner {
    uint64_t token_floor; /* token_max when it first asked */
    struct {
        unsigned mask; /* 0: never asked for */
        uint32_t slots;
    } asked[SIM_LOCKS];   /* by the first lock */
    unsigned held, waits; /* grants and waits it has */
    uint64_t idle_seq;    /* since when it has had none */
    bool served;          /* who asked knows what became of it: nothing is granted to it any more */
    uint32_t uid;         /* whose its session, its last grant or wait is */
    /* of a session */
    bool open;
    uint64_t opened_seq, ended_seq; /* of the last time */
    uint64_t base_at;               /* the lease cannot have begun before */
    uint64_t ttl_ms, delay_ms, promised_ms;
    /* A node generates an owner for a client that named none. */
    struct sim_node *made_by; /* NULL: the client named it */
    uint64_t made_in_life;
    uint64_t over_at;     /* since when nobody will ask for it any more; 0: not yet */
    uint64_t heard_until; /* how long the node listens for the end of its wait */
    bool excused;         /* what it has may last: a client knows of it, or nobody can */
};

/* The text of an owner that a node has generated, and its number. */
#define SIM_MADE_LEN 32u
struct sim_made {
    uint8_t text[SIM_MADE_LEN];
    uint64_t owner;
};

struct sim_wait {
    uint64_t id, owner;
    uint32_t uid;
    unsigned mask;
    uint32_t slots;
};

struct sim_lock {
    uint64_t *holders; /* tokens */
    size_t holders_n, holders_cap;
    uint32_t slots; /* of the holders */
    struct sim_wait *queue;
    size_t queue_n, queue_cap;
    uint64_t delayed_until; /* on the cluster clock; nobody is granted it up to then */
    uint64_t idle_seq;      /* since when nobody has held or awaited it */
    uint64_t mark;          /* the largest token that the storage has accepted */
};

/* The events of one grant, or end, of several locks come one right after the other. */
struct sim_multi {
    uint8_t type;
    unsigned next;
    unsigned mask, left; /* all its locks, and those that are still to come */
    uint64_t token, wait;
};

struct sim_seal {
    uint64_t term, sequence, at;
    uint64_t lost_ms; /* of the node that sealed it */
};

/* A command that a node was given: how often it was carried out, and whether its client was told
 * that it was not. */
struct sim_sending {
    uint8_t op;
    bool renews; /* it may need no entry */
    bool refused;
    unsigned applied;
    struct machine_result result; /* of the one time */
    uint64_t call;                /* number of the call that it is of; 0: none */
    uint64_t connection;          /* of pipeline.c; 0: none */
    bool uncertain;               /* its client was told so */
};

/* A call of a client, which may be sent many times. */
struct sim_client_call {
    unsigned done; /* sendings of it that have changed something */
    bool refused;  /* its end: surely not done */
};

struct sim_oracle {
    struct sim_joined *joined;
    size_t joined_cap, joined_len;
    uint64_t joined_index; /* of the newest configuration that anybody knows to be committed */
    uint64_t seq;          /* grows with everything that happens */
    raft_index max_index;
    struct sim_applied *applied; /* by index */
    size_t applied_cap;
    struct sim_token *tokens; /* by token */
    size_t tokens_cap;
    uint64_t token_max; /* largest issued */
    struct sim_lock locks[SIM_ALL_LOCKS];
    struct sim_multi multi;
    unsigned breaking;            /* locks that the batch has broken */
    struct sim_sending *sendings; /* by number */
    size_t sendings_len, sendings_cap;
    uint64_t *connections; /* of pipeline.c, by number: the last sending that was carried out */
    size_t connections_len, connections_cap;
    struct sim_client_call *calls; /* by number */
    size_t calls_len, calls_cap;
    struct sim_seal *seals;
    size_t seals_len, seals_cap;
    struct sim_owner *owners; /* by number */
    size_t owners_len, owners_cap;
    uint8_t *leaders; /* by term: who was seen to lead it, by number; 0: nobody */
    size_t leaders_cap;
    struct sim_made *made;
    size_t made_len, made_cap;
    uint64_t last_timestamp_ms; /* of the last batch applied anywhere */
    uint64_t term_timestamp_ms; /* of the last one that was the first of its term */
    uint64_t term_at;           /* when the first batch of that term was sealed */
    struct sim_seal last_seal;
};

#endif
