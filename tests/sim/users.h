/* users.h: users in a run. users.c makes and changes them; rights.c keeps what the judge knows of
 * them, from the commands of the log alone. Included by sim.h. */
#ifndef SIM_USERS_H
#define SIM_USERS_H

#define SIM_USERS 4u  /* 0 is the default one */
#define SIM_RIGHTS 5u /* in the order of acl.h */

/* A user as the words of ACL SETUSER describe it, without the code that reads those words. Names
 * are a mask: a bit for each lock by its number, and one for all other names. */
struct sim_user {
    bool there, on;
    uint32_t uid, login;
    unsigned names[SIM_RIGHTS];
};

struct sim_user_change {
    uint64_t sending;
    unsigned user;                    /* of a SET or a DELETE */
    struct sim_user users[SIM_USERS]; /* what they are to be; of a LOAD those that are there */
};

struct sim_rights {
    uint64_t seq; /* since when it was so */
    struct sim_user users[SIM_USERS];
};

/* The command that is being applied. */
struct sim_asking {
    bool free; /* a node sends the command, or the run has no users */
    uint32_t uid;
    unsigned code, right; /* what must be answered: NOAUTH, or NOPERM with this right; 0: neither */
};

struct sim_users {
    bool any;          /* there are some in this run */
    bool default_open; /* and the default one may do everything */
    struct sim_random random;
    struct sim_user_change *changes; /* that were asked for */
    size_t changes_len, changes_cap;
    struct sim_rights *rights; /* the last one is now */
    size_t rights_len, rights_cap;
    uint32_t last_uid;
    struct sim_asking asking;
};

#endif
