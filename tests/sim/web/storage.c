/* storage.c: one value, and the mark of its lock. The shipping rule judges a token; with the check
 * off nothing does. A write that was computed from another value than the one it replaces loses the
 * writes between: that is found out here, and nobody is told of it but the reader. */
#include <stdlib.h>

#include "fence/rule.h"
#include "web.h"

static void op_drop(struct sim_event *e)
{
    free(e->p);
}

static void answer_deliver(struct sim_event *e)
{
    web_worker_stored(e->p);
}

static void answer(struct web_op *op)
{
    uint64_t ms = sim_net_delay(web.s, SIM_STORE_PLACE, SIM_STORE_PLACE);
    struct sim_event *e = sim_to_client(op->w->c, ms, answer_deliver);
    e->p = op;
    e->drop = op_drop;
    unsigned m = op->status != 0
                     ? web_message("storage", web_client_name(op->w), ms, "STALE")
                     : web_message("storage", web_client_name(op->w), ms, op->write ? "OK" : "%llu",
                                   (unsigned long long)op->value);
    web.messages[m].fate = op->status != 0 ? "refused" : "";
}

/* The writes after `base`, which this one does not know of. */
static void find_lost(const struct web_op *op)
{
    struct web_storage *st = &web.storage;
    for (unsigned i = (unsigned)op->base; i < st->writes_n; i++) {
        struct web_write *lost = &st->writes[i];
        if (!lost->lost) {
            lost->lost = true;
            web_note("lost", lost->client,
                     "LOST UPDATE: client %u's +%llu had been acknowledged, and it is gone.",
                     lost->client, (unsigned long long)(lost->to - lost->from));
        }
    }
}

static void take_write(struct web_op *op)
{
    struct web_storage *st = &web.storage;
    if (op->token != 0 && web.check) {
        web_note("write", op->w->number,
                 "The storage accepts client %u's write: %llu. Its token %llu is not below the "
                 "mark.",
                 op->w->number, (unsigned long long)op->value, (unsigned long long)op->token);
    } else {
        web_note("write", op->w->number, "The storage accepts client %u's write: %llu. %s",
                 op->w->number, (unsigned long long)op->value,
                 op->token == 0 ? "It carries no token." : "It does not look at the token.");
    }
    find_lost(op);
    st->writes[st->writes_n++] =
        (struct web_write){op->w->number, op->token, op->value - op->w->adds, op->value, false};
    st->value = op->value;
}

static void execute(struct web_op *op)
{
    struct web_storage *st = &web.storage;
    fl_token mark = st->mark;
    bool checks = web.check && op->token != 0;
    op->status = checks ? fl_fence_judge(st->mark, op->token, &mark) : 0;
    if (op->status != 0) {
        web_note("refused", op->w->number,
                 "The storage refuses client %u's %s: token %llu is below the mark %llu.",
                 op->w->number, op->write ? "write" : "read", (unsigned long long)op->token,
                 (unsigned long long)st->mark);
        answer(op);
        return;
    }
    bool raised = mark > st->mark;
    st->mark = mark;
    if (op->write) {
        take_write(op);
    } else {
        op->value = st->value;
        op->base = st->writes_n;
        if (checks) {
            web_note("claim", op->w->number,
                     "Client %u reads %llu with token %llu. That is a claim%s %llu.", op->w->number,
                     (unsigned long long)op->value, (unsigned long long)op->token,
                     raised ? ": the mark is now" : "; the mark stays", (unsigned long long)mark);
        } else {
            web_note("read", op->w->number, "Client %u reads %llu, and shows no token.",
                     op->w->number, (unsigned long long)op->value);
        }
    }
    answer(op);
}

static void arrive_fire(struct sim *s, struct sim_event *e)
{
    struct web_op *op = e->p;
    e->p = NULL;
    e->drop = NULL;
    sim_drop(s, e);
    execute(op);
    web_fate(op->message, op->status == 0 ? "accepted" : "refused");
}

static void travel(struct web_op *op, uint64_t ms)
{
    struct sim_event *e = sim_after(web.s, ms, arrive_fire);
    e->p = op;
    e->drop = op_drop;
}

void web_storage_send(struct web_client *w, bool write, uint64_t token, uint64_t base,
                      uint64_t value)
{
    uint64_t ms = sim_net_delay(web.s, SIM_STORE_PLACE, SIM_STORE_PLACE);
    bool hold = write && w->holds_back && web.storage.held[w->number - 1] == NULL;
    struct web_op *op = fli_xmalloc(sizeof *op);
    *op = (struct web_op){w, write, token, base, value, 0, 0};
    char with[32] = "";
    if (token != 0) {
        snprintf(with, sizeof with, ", token %llu", (unsigned long long)token);
    }
    op->message = write ? web_message(web_client_name(w), "storage", hold ? 0 : ms, "write %llu%s",
                                      (unsigned long long)value, with)
                        : web_message(web_client_name(w), "storage", ms, "read%s", with);
    if (hold) {
        w->holds_back = false;
        web.storage.held[w->number - 1] = op;
        web_fate(op->message, "held");
        web.messages[op->message].arrives = 0;
        web_note("held", w->number, "Client %u's write has left, and the network holds it back.",
                 w->number);
        return;
    }
    travel(op, ms);
}

bool web_storage_late(struct web_client *w)
{
    struct web_op *op = web.storage.held[w->number - 1];
    if (op == NULL) {
        return false;
    }
    web.storage.held[w->number - 1] = NULL;
    web_note("step", w->number, "The network lets client %u's late write through.", w->number);
    travel(op, 1 + sim_net_delay(web.s, SIM_STORE_PLACE, SIM_STORE_PLACE));
    return true;
}

void web_storage_fini(void)
{
    for (unsigned i = 0; i < WEB_CLIENTS; i++) {
        free(web.storage.held[i]);
        web.storage.held[i] = NULL;
    }
}
