/* cluster_config.c: see cluster_config.h. Names and values are those of fencelockd's options. A
 * setting can also be `default`: then each node's own option applies. */
#include "server/cluster_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/options.h"
#include "wire/resp.h"

#define DEFAULT "default"

static const struct {
    const char *name;
    enum machine_limit limit;
    size_t offset;
} limits[] = {
    {"locks-max", MACHINE_LIMIT_LOCKS, offsetof(struct machine_limits, locks_max)},
    {"sessions-max", MACHINE_LIMIT_SESSIONS, offsetof(struct machine_limits, sessions_max)},
    {"waits-max", MACHINE_LIMIT_WAITS, offsetof(struct machine_limits, waits_max)},
    {"lock-waits-max", MACHINE_LIMIT_LOCK_WAITS, offsetof(struct machine_limits, lock_waits_max)},
    {"session-locks-max", MACHINE_LIMIT_SESSION_LOCKS,
     offsetof(struct machine_limits, session_locks_max)},
};
#define LIMITS_LEN (sizeof limits / sizeof limits[0])

static const struct {
    const char *name;
    enum machine_setting setting;
    size_t offset;
} settings[] = {
    {"election-ms", MACHINE_SETTING_ELECTION, offsetof(struct machine_settings, election_ms)},
    {"heartbeat-ms", MACHINE_SETTING_HEARTBEAT, offsetof(struct machine_settings, heartbeat_ms)},
    {"hold-ms", MACHINE_SETTING_HOLD, offsetof(struct machine_settings, hold_ms)},
    {"log-level", MACHINE_SETTING_LOG_LEVEL, offsetof(struct machine_settings, log_level)},
};
#define SETTINGS_LEN (sizeof settings / sizeof settings[0])
_Static_assert(SETTINGS_LEN == MACHINE_SETTINGS, "each of them has a name");

static bool is_word(struct fli_slice s, const char *word)
{
    return s.len == strlen(word) && strncasecmp((const char *)s.data, word, s.len) == 0;
}

/* ---- the request ----------------------------------------------------------------------------- */

static enum cluster_config_verb read_limit(const struct fli_request *q, size_t i,
                                           struct machine_command *ret,
                                           char why[CLUSTER_CONFIG_WHY_MAX])
{
    uint64_t value;
    if (!fli_parse_u64(q->value.data, q->value.len, UINT32_MAX, &value) || value == 0) {
        (void)snprintf(why, CLUSTER_CONFIG_WHY_MAX, "value: %s is a number from 1 to %" PRIu32,
                       limits[i].name, UINT32_MAX);
        return CLUSTER_CONFIG_WRONG;
    }
    *ret = (struct machine_command){
        .op = MACHINE_OP_LIMIT_SET, .number = limits[i].limit, .number2 = value};
    return CLUSTER_CONFIG_SET;
}

/* Reads a value, a word or a number; 0 for the default. False: it is neither. */
static bool read_value(struct fli_slice text, enum machine_setting setting, uint64_t *ret)
{
    *ret = 0;
    if (is_word(text, DEFAULT)) {
        return true;
    }
    if (setting != MACHINE_SETTING_LOG_LEVEL) {
        return fli_parse_u64(text.data, text.len, UINT32_MAX, ret) && *ret != 0 &&
               machine_setting_ok(setting, *ret);
    }
    for (size_t i = 0; fli_words_log_level[i] != NULL && *ret == 0; i++) {
        *ret = is_word(text, fli_words_log_level[i]) ? i + 1 : 0;
    }
    return *ret != 0;
}

static enum cluster_config_verb read_setting(const struct fli_request *q, size_t i,
                                             struct machine_command *ret,
                                             char why[CLUSTER_CONFIG_WHY_MAX])
{
    enum machine_setting setting = settings[i].setting;
    uint64_t value;
    uint32_t min, max;
    if (read_value(q->value, setting, &value)) {
        *ret = (struct machine_command){
            .op = MACHINE_OP_SETTING_SET, .number = setting, .number2 = value};
        return CLUSTER_CONFIG_SET;
    }
    machine_setting_bounds(setting, &min, &max);
    if (setting == MACHINE_SETTING_LOG_LEVEL) {
        (void)snprintf(why, CLUSTER_CONFIG_WHY_MAX,
                       "value: log-level is error, warning, info or debug, or " DEFAULT
                       " for what the options of each node say");
    } else {
        (void)snprintf(why, CLUSTER_CONFIG_WHY_MAX,
                       "value: %s is a number from %" PRIu32 " to %" PRIu32 ", or " DEFAULT
                       " for what the options of each node say",
                       settings[i].name, min, max);
    }
    return CLUSTER_CONFIG_WRONG;
}

enum cluster_config_verb cluster_config_read(const struct fli_request *q, unsigned n,
                                             struct machine_command *ret,
                                             char why[CLUSTER_CONFIG_WHY_MAX])
{
    if (is_word(q->by, "GET") && n == 1) {
        return CLUSTER_CONFIG_GET;
    }
    if (!is_word(q->by, "SET") || n != 3) {
        (void)snprintf(why, CLUSTER_CONFIG_WHY_MAX,
                       "write CLUSTER CONFIG GET, or CLUSTER CONFIG SET name value");
        return CLUSTER_CONFIG_WRONG;
    }
    for (size_t i = 0; i < LIMITS_LEN; i++) {
        if (is_word(q->label, limits[i].name)) {
            return read_limit(q, i, ret, why);
        }
    }
    for (size_t i = 0; i < SETTINGS_LEN; i++) {
        if (is_word(q->label, settings[i].name)) {
            return read_setting(q, i, ret, why);
        }
    }
    (void)snprintf(why, CLUSTER_CONFIG_WHY_MAX,
                   "name: there are locks-max, sessions-max, waits-max, lock-waits-max, "
                   "session-locks-max, election-ms, heartbeat-ms, hold-ms and log-level; other "
                   "options are each node's own");
    return CLUSTER_CONFIG_WRONG;
}

/* ---- answers --------------------------------------------------------------------------------- */

static uint32_t number_at(const void *where, size_t offset)
{
    uint32_t v = 0;
    memcpy(&v, (const char *)where + offset, sizeof v);
    return v;
}

static int put_setting(struct fli_buf *b, enum machine_setting setting, uint32_t v)
{
    if (v == 0) {
        return fli_resp_text(b, DEFAULT);
    }
    return setting == MACHINE_SETTING_LOG_LEVEL ? fli_resp_text(b, fli_words_log_level[v - 1])
                                                : fli_resp_u64(b, v);
}

int cluster_config_render(struct fli_buf *b, int proto, const struct machine *m)
{
    int rc = fli_resp_map(b, proto, LIMITS_LEN + SETTINGS_LEN);
    for (size_t i = 0; i < LIMITS_LEN && rc == 0; i++) {
        rc = fli_resp_text(b, limits[i].name);
        rc = rc != 0 ? rc : fli_resp_u64(b, number_at(machine_get_limits(m), limits[i].offset));
    }
    for (size_t i = 0; i < SETTINGS_LEN && rc == 0; i++) {
        rc = fli_resp_text(b, settings[i].name);
        rc = rc != 0 ? rc
                     : put_setting(b, settings[i].setting,
                                   number_at(machine_get_settings(m), settings[i].offset));
    }
    return rc;
}

int cluster_config_render_set(struct fli_buf *b, const struct machine_result *r)
{
    if (r->code == MACHINE_DONE) {
        return fli_resp_simple(b, "OK");
    }
    if (r->code == MACHINE_MISMATCH) {
        bool election = r->number == MACHINE_SETTING_ELECTION;
        return fli_resp_error(b, "ERR",
                              "value: at least %u heartbeats must fit into an election time, and "
                              "%s is %" PRIu64 "; change that first",
                              MACHINE_HEARTBEATS_MIN, election ? "heartbeat-ms" : "election-ms",
                              r->token);
    }
    FLI_ASSERT(r->code == MACHINE_LIMIT && r->number >= 1 && r->number <= LIMITS_LEN);
    return fli_resp_error(b, "LIMIT",
                          "%s: %" PRIu64 " are in use, and none of them is taken away; name at "
                          "least so many, or wait until there are fewer",
                          limits[r->number - 1].name, r->token);
}
