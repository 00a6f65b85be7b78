/* config_values.c: the text of one option, read into its field. See config_private.h. */
#include "server/config_private.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

static enum config_outcome set_number(struct config_reader *r, const struct config_option *o,
                                      const struct config_given *g, void *field)
{
    uint64_t v = 0;
    if (!fli_parse_u64(g->text, strlen(g->text), o->max, &v) || v < o->min) {
        return config_wrong(r, "%.512s: '%.64s' is not a whole number from %llu to %llu", g->where,
                            g->text, (unsigned long long)o->min, (unsigned long long)o->max);
    }
    if (o->size == sizeof(uint32_t)) {
        uint32_t small = (uint32_t)v;
        memcpy(field, &small, sizeof small);
    } else {
        FLI_ASSERT(o->size == sizeof v);
        memcpy(field, &v, sizeof v);
    }
    return CONFIG_RUN;
}

static enum config_outcome set_flag(struct config_reader *r, const struct config_given *g,
                                    void *field)
{
    static const struct {
        const char *word;
        bool v;
    } words[] = {{"yes", true}, {"no", false}, {"true", true}, {"false", false},
                 {"1", true},   {"0", false},  {"on", true},   {"off", false}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(g->text, words[i].word) == 0) {
            memcpy(field, &words[i].v, sizeof(bool));
            return CONFIG_RUN;
        }
    }
    return config_wrong(r, "%.512s: '%.64s' is neither yes nor no", g->where, g->text);
}

static enum config_outcome set_level(struct config_reader *r, const struct config_given *g,
                                     void *field)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    for (unsigned i = 0; i < 4; i++) {
        if (strcmp(g->text, names[i]) == 0) {
            unsigned level = i + 1;
            memcpy(field, &level, sizeof level);
            return CONFIG_RUN;
        }
    }
    return config_wrong(r, "%.512s: '%.64s' is no level: write error, warning, info or debug",
                        g->where, g->text);
}

static enum config_outcome set_format(struct config_reader *r, const struct config_given *g,
                                      void *field)
{
    bool json = strcmp(g->text, "json") == 0;
    if (!json && strcmp(g->text, "text") != 0) {
        return config_wrong(r, "%.512s: '%.64s' is no format: write text or json", g->where,
                            g->text);
    }
    memcpy(field, &json, sizeof json);
    return CONFIG_RUN;
}

static enum config_outcome set_auth(struct config_reader *r, const struct config_given *g,
                                    void *field)
{
    static const struct {
        const char *word;
        enum fli_tls_auth v;
    } words[] = {{"yes", FLI_TLS_AUTH_REQUIRED},
                 {"no", FLI_TLS_AUTH_NO},
                 {"optional", FLI_TLS_AUTH_OPTIONAL}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(g->text, words[i].word) == 0) {
            memcpy(field, &words[i].v, sizeof words[i].v);
            return CONFIG_RUN;
        }
    }
    return config_wrong(r, "%.512s: '%.64s' is none of yes, no and optional", g->where, g->text);
}

static enum config_outcome set_cert_user(struct config_reader *r, const struct config_given *g,
                                         void *field)
{
    enum fli_tls_user by = strcmp(g->text, "CN") == 0    ? FLI_TLS_USER_CN
                           : strcmp(g->text, "SAN") == 0 ? FLI_TLS_USER_SAN
                                                         : FLI_TLS_USER_OFF;
    if (by == FLI_TLS_USER_OFF && strcmp(g->text, "off") != 0) {
        return config_wrong(r, "%.512s: '%.64s' is none of CN, SAN and off", g->where, g->text);
    }
    memcpy(field, &by, sizeof by);
    return CONFIG_RUN;
}

static enum config_outcome set_cluster(struct config_reader *r, const struct config_given *g)
{
    char why[512];
    if (members_parse(g->text, &r->config->members, why, sizeof why) != 0) {
        return config_wrong(r, "%.400s: %s", g->where, why);
    }
    return CONFIG_RUN;
}

static enum config_outcome set_text(struct config_reader *r, const struct config_option *o,
                                    const struct config_given *g, void *field)
{
    size_t len = strlen(g->text);
    if (len == 0 || len >= o->size) {
        return config_wrong(r, "%.512s: %s must have 1 to %zu bytes, not %zu", g->where, o->name,
                            o->size - 1, len);
    }
    memcpy(field, g->text, len + 1);
    return CONFIG_RUN;
}

enum config_outcome config_set(struct config_reader *r, const struct config_option *o,
                               const struct config_given *g)
{
    void *field = (char *)r->config + o->offset;
    switch (o->kind) {
    case KIND_NUMBER:
        return set_number(r, o, g, field);
    case KIND_FLAG:
    case KIND_YES_NO:
        return set_flag(r, g, field);
    case KIND_LEVEL:
        return set_level(r, g, field);
    case KIND_CLUSTER:
    case KIND_JOIN:
        r->config->joins = r->config->joins || o->kind == KIND_JOIN;
        return set_cluster(r, g);
    case KIND_AUTH:
        return set_auth(r, g, field);
    case KIND_FORMAT:
        return set_format(r, g, field);
    case KIND_CERT_USER:
        return set_cert_user(r, g, field);
    default:
        return set_text(r, o, g, field);
    }
}
