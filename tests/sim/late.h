/* late.h: long pipelines, and what comes so late that the next try has begun. Part of sim.h. */
#ifndef SIM_LATE_H
#define SIM_LATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct machine_result;
struct sim;
struct sim_fault;
struct sim_node;

/* What of a node comes late, so that its next try may have begun by then. */
enum sim_late {
    SIM_LATE_CALL,  /* the answer to a call */
    SIM_LATE_END,   /* of a stream */
    SIM_LATE_BYTES, /* on a stream */
    SIM_LATE_WORK,  /* the end of what a thread has done */
    SIM_LATE_DISK,  /* the end of what the log's device has done */
    SIM_LATE_KINDS
};

void sim_late_begin(struct sim_node *n, const struct sim_fault *f);
/* For how long such a thing of this node has still to wait; 0: it comes now. */
uint64_t sim_late_ms(const struct sim_node *n, enum sim_late kind);
/* What is told to sim_late_came() of the time when the waiting began; never 0. */
uint64_t sim_late_moment(const struct sim_node *n);
/* It has waited. retried: its owner has begun another try meanwhile. */
void sim_late_came(struct sim_node *n, enum sim_late kind, bool retried, uint64_t moment);

/* server.c: as sim_server_ask(), on a connection of this number; 0: of none. */
void sim_server_ask_from(struct sim_node *n, uint64_t source, const uint8_t *data, size_t len,
                         uint64_t serial,
                         void (*told)(struct sim *s, uint64_t serial,
                                      const struct machine_result *r, const void *data,
                                      size_t len));

/* sending.c */
void sim_oracle_forget_sendings(struct sim *s);
/* A connection of nobody's: its number. */
uint64_t sim_oracle_connection(struct sim *s);
/* A sending is of this connection. */
void sim_oracle_piped(struct sim *s, uint64_t sending, uint64_t connection);

/* pipeline.c */
void sim_pipeline_begin(struct sim_node *n, const struct sim_fault *f);
void sim_pipeline_rest(struct sim *s);
void sim_pipeline_ask(struct sim_node *n, unsigned requests); /* of a connection of its own */
void sim_pipeline_wait(struct sim *s); /* until what was asked so is answered */
void sim_pipeline_choose(struct sim *s);

/* net_dial.c */
void sim_net_check_waits(const struct sim_node *n);

/* snapshot.c */
void sim_snapshot_check_left(const struct sim_node *n); /* in the end */
void sim_snapshot_check_install(const struct sim_node *n);

/* works.c */
bool sim_works_run(struct sim_node *n); /* a ghost's; false: there was none */
void sim_works_end(struct sim_node *n); /* of a process that ends by itself */

/* choose.c */
void sim_options_choose_more(struct sim *s);

#endif
