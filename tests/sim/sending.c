/* sending.c: how often each sending of a TOKEN was carried out, and what its client was told. */

#include <stdio.h>

#include "machine/batch.h"
#include "sim.h"

/* The name of a TOKEN means nothing, so each sending has one of its own. */
struct fli_slice sim_oracle_sends(struct sim_lane *l)
{
    static char name[24];
    struct sim_oracle *o = &l->client->sim->oracle;
    o->sendings_len += o->sendings_len == 0 ? 2 : 1; /* 0 stands for none */
    o->sendings = sim_grow(o->sendings, &o->sendings_cap, o->sendings_len, sizeof *o->sendings);
    l->sending = o->sendings_len - 1;
    int len = snprintf(name, sizeof name, "T%llu", (unsigned long long)l->sending);
    return (struct fli_slice){(const uint8_t *)name, (size_t)len};
}

void sim_oracle_told(struct sim_lane *l, enum fli_call_event event)
{
    struct sim *s = l->client->sim;
    if (l->sending == 0 || l->call_state.order.request != FLI_REQUEST_MAIN) {
        return;
    }
    struct sim_sending *sent = &s->oracle.sendings[l->sending];
    if (event == FLI_EVENT_YES) {
        SIM_CHECK(s, sent->applied == 1, "TOKEN %llu was carried out %u times and is answered",
                  (unsigned long long)l->sending, sent->applied);
    } else if (event == FLI_EVENT_NOLEADER || event == FLI_EVENT_BUSY ||
               event == FLI_EVENT_REFUSED) {
        sent->refused = true;
        s->marks->tokens_refused++;
        SIM_CHECK(s, sent->applied == 0, "TOKEN %llu is said not to be done and was",
                  (unsigned long long)l->sending);
    }
}

static void count_sending(struct sim *s, struct fli_slice name)
{
    struct sim_oracle *o = &s->oracle;
    uint64_t number = 0;
    if (name.len < 2 || name.data[0] != 'T' ||
        !fli_parse_u64((const char *)name.data + 1, name.len - 1, o->sendings_len - 1, &number)) {
        return;
    }
    struct sim_sending *sent = &o->sendings[number];
    SIM_CHECK(s, ++sent->applied == 1, "TOKEN %llu is carried out a second time",
              (unsigned long long)number);
    SIM_CHECK(s, !sent->refused, "TOKEN %llu is carried out after it was said not to be done",
              (unsigned long long)number);
}

/* Of an entry that is applied for the first time anywhere. */
void sim_oracle_count_sendings(struct sim *s, const uint8_t *entry, size_t len)
{
    struct machine_batch_header h;
    struct machine_command c;
    size_t at = MACHINE_BATCH_HEADER_SIZE;
    size_t size = 0;
    int rv = machine_batch_open(entry, len, &h);
    for (uint32_t i = 0; rv == 0 && i < h.count; i++, at += size) {
        rv = machine_command_decode(entry + at, h.length - at, &c, &size);
        SIM_CHECK(s, rv == 0, "a command in the log that cannot be read");
        if (c.op == MACHINE_OP_TOKEN) {
            count_sending(s, c.name);
        }
    }
}
