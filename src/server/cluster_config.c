/* cluster_config.c: see cluster_config.h. Names are those of the options of fencelockd. */
#include "server/cluster_config.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "wire/resp.h"

static const struct {
    const char *name;
    enum machine_limit limit;
    size_t offset;
} known[] = {
    {"locks-max", MACHINE_LIMIT_LOCKS, offsetof(struct machine_limits, locks_max)},
    {"sessions-max", MACHINE_LIMIT_SESSIONS, offsetof(struct machine_limits, sessions_max)},
    {"waits-max", MACHINE_LIMIT_WAITS, offsetof(struct machine_limits, waits_max)},
    {"lock-waits-max", MACHINE_LIMIT_LOCK_WAITS, offsetof(struct machine_limits, lock_waits_max)},
    {"session-locks-max", MACHINE_LIMIT_SESSION_LOCKS,
     offsetof(struct machine_limits, session_locks_max)},
};
#define KNOWN_LEN (sizeof known / sizeof known[0])

static bool is_word(struct fli_slice s, const char *word)
{
    return s.len == strlen(word) && strncasecmp((const char *)s.data, word, s.len) == 0;
}

enum cluster_config_verb cluster_config_read(const struct fli_request *q, unsigned n,
                                             struct machine_command *ret, const char **ret_why)
{
    *ret_why = "write CLUSTER CONFIG GET, or CLUSTER CONFIG SET name value";
    if (is_word(q->by, "GET") && n == 1) {
        return CLUSTER_CONFIG_GET;
    }
    if (!is_word(q->by, "SET") || n != 3) {
        return CLUSTER_CONFIG_WRONG;
    }
    for (size_t i = 0; i < KNOWN_LEN; i++) {
        if (is_word(q->label, known[i].name)) {
            *ret = (struct machine_command){
                .op = MACHINE_OP_LIMIT_SET, .number = known[i].limit, .number2 = q->number};
            return CLUSTER_CONFIG_SET;
        }
    }
    *ret_why = "name: there are locks-max, sessions-max, waits-max, lock-waits-max and "
               "session-locks-max";
    return CLUSTER_CONFIG_WRONG;
}

int cluster_config_render(struct fli_buf *b, int proto, const struct machine_limits *l)
{
    int rc = fli_resp_map(b, proto, KNOWN_LEN);
    for (size_t i = 0; i < KNOWN_LEN && rc == 0; i++) {
        uint32_t v = 0;
        memcpy(&v, (const char *)l + known[i].offset, sizeof v);
        rc = fli_resp_text(b, known[i].name);
        rc = rc != 0 ? rc : fli_resp_u64(b, v);
    }
    return rc;
}

int cluster_config_render_set(struct fli_buf *b, const struct machine_result *r)
{
    if (r->code == MACHINE_DONE) {
        return fli_resp_simple(b, "OK");
    }
    FLI_ASSERT(r->code == MACHINE_LIMIT && r->number >= 1 && r->number <= KNOWN_LEN);
    return fli_resp_error(b, "LIMIT",
                          "%s: %" PRIu64 " are in use, and none of them is taken away; name at "
                          "least so many, or wait until there are fewer",
                          known[r->number - 1].name, r->token);
}
