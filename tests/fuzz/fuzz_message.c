/* fuzz_message.c: bodies of Raft's messages, and configurations, of any bytes. The first byte is
 * the type of the message; 0 is for a configuration. What is taken must encode to the very same
 * bytes: there is one way to say a thing. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "consensus/configuration.h"
#include "consensus/message_codec.h"

static void check_configuration(struct fli_slice bytes)
{
    struct configuration c;
    uint8_t out[CONFIGURATION_SIZE_MAX];
    int rv = configuration_decode(bytes.data, bytes.len, &c);
    if (rv != 0) {
        FLI_ASSERT(rv == FL_ECORRUPT || rv == FL_EVERSION);
        return;
    }
    FLI_ASSERT(c.n > 0 && c.n <= MEMBERS_MAX && configuration_voters(&c) <= c.n);
    size_t len = configuration_encode(&c, out);
    FLI_ASSERT(len == bytes.len && memcmp(out, bytes.data, len) == 0);
    /* The library takes whatever we take. */
    struct raft_configuration conf;
    struct raft_buffer raw = configuration_to_raft_bytes(&c);
    FLI_ASSERT(raft_configuration_decode(&raw, &conf) == 0 && conf.n == c.n);
    raft_configuration_close(&conf);
    raft_free(raw.base);
}

static void check_entry(const struct raft_entry *e, struct fli_slice bytes)
{
    const uint8_t *data = e->buf.base;
    FLI_ASSERT(e->term != 0 && e->buf.len <= MESSAGE_ENTRY_MAX);
    FLI_ASSERT(e->type == RAFT_COMMAND || e->type == RAFT_BARRIER || e->type == RAFT_CHANGE);
    FLI_ASSERT(data >= bytes.data && data + e->buf.len <= bytes.data + bytes.len);
}

/* The encoder splits what is too much for one message, so a message may have more than it makes. */
static void check_same(const struct raft_message *m, uint8_t type, struct fli_slice bytes)
{
    static struct message_body body;
    size_t at = 0;
    FLI_ASSERT(message_encode(m, &body) == 0 && body.type == type);
    if (m->type == RAFT_APPEND_ENTRIES) {
        for (unsigned i = 0; i < m->append_entries.n_entries; i++) {
            const struct raft_entry *e = &m->append_entries.entries[i];
            struct fli_slice data = {e->buf.base, e->buf.len};
            check_entry(e, bytes);
            if (!message_add_entry(&body, e->term, (uint8_t)e->type, data)) {
                return;
            }
        }
    }
    for (unsigned i = 0; i < body.n; i++) {
        FLI_ASSERT(body.parts[i].len <= bytes.len - at);
        FLI_ASSERT(body.parts[i].len == 0 ||
                   memcmp(body.parts[i].data, bytes.data + at, body.parts[i].len) == 0);
        at += body.parts[i].len;
    }
    FLI_ASSERT(at == bytes.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct raft_entry entries[MESSAGE_ENTRIES_MAX];
    struct raft_message m = {.type = (enum raft_message_type)77};
    if (size < 1) {
        return 0;
    }
    struct fli_slice bytes = {data + 1, size - 1};
    uint8_t type = data[0] % 9;
    if (type == 0) {
        check_configuration(bytes);
        return 0;
    }
    int rv = message_decode(type, bytes, entries, &m);
    FLI_ASSERT(rv == 0 || rv == FL_EPROTO);
    FLI_ASSERT(rv == 0 || (int)m.type == 77);
    if (rv == 0) {
        check_same(&m, type, bytes);
    }
    return 0;
}
