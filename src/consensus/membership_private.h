/* membership_private.h: shared by membership.c and membership_known.c; nobody else includes it. */
#ifndef CONSENSUS_MEMBERSHIP_PRIVATE_H
#define CONSENSUS_MEMBERSHIP_PRIVATE_H

#include "consensus/membership.h"

/* A member, and what it has said of itself. */
struct member_state {
    struct membership *owner;
    uint64_t id;
    uint64_t incarnation;    /* of the last handshake that was accepted; 0: none since start or
                              * since it was forgotten */
    uint64_t admitted_index; /* as it said in that handshake */
    bool other_incarnation;  /* the last caller is not the incarnation that is known */
    bool calling;            /* a dial is under way */
    uint64_t call_at_ms;
    enum handshake_verdict verdict; /* of its last answer that was WELCOME or OTHER_INCARNATION */
    char client_address[MEMBER_ADDRESS_MAX]; /* "": unknown */
};

struct membership {
    struct membership_config config;
    struct transport *transport;
    struct replica *replica;                /* NULL until the log is loaded */
    struct member_state peers[MEMBERS_MAX]; /* in the order of identity.members */
    unsigned n;
    bool known_complete;
    char said[512];
    uint64_t refused_since_ms;
    char refused_why[HANDSHAKE_REASON_MAX];
    struct node_ticket admin;
    bool admin_busy;
    uint8_t admin_op;
    uint64_t forget_id;
    void (*forget_cb)(void *ctx, int status);
    void *forget_ctx;
    uint64_t transfer_id;
    void (*transfer_cb)(void *ctx, int status);
    void *transfer_ctx;
};

struct member_state *membership_find(const struct membership *m, uint64_t id); /* NULL: nobody */

#endif
