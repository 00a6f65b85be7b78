/* config_list.c: the values in force, as text. See config_private.h. */
#include "server/config_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "peer/members.h"

#define FROM_DEFAULT "default"

static uint64_t number_of(const struct config_option *o, const void *field)
{
    uint32_t small = 0;
    uint64_t v = 0;
    if (o->size == sizeof small) {
        memcpy(&small, field, sizeof small);
        return small;
    }
    memcpy(&v, field, sizeof v);
    return v;
}

static bool flag_of(const void *field)
{
    bool v = false;
    memcpy(&v, field, sizeof v);
    return v;
}

/* The text of an option's default, for an option that is not given. */
static void default_text(const struct config_reader *r, const struct config_option *o, char *out,
                         size_t size)
{
    static const char *const auth[] = {"no", "optional", "yes"};
    static const char *const user[] = {"off", "CN", "SAN"};
    static const char *const levels[] = {"error", "warning", "info", "debug"};
    const void *field = (const char *)r->config + o->offset;
    switch (o->kind) {
    case KIND_NUMBER:
        (void)snprintf(out, size, "%" PRIu64, number_of(o, field));
        break;
    case KIND_FLAG:
    case KIND_YES_NO:
        (void)snprintf(out, size, "%s", flag_of(field) ? "yes" : "no");
        break;
    case KIND_LEVEL:
        (void)snprintf(out, size, "%s", levels[r->config->log_level - 1]);
        break;
    case KIND_FORMAT:
        (void)snprintf(out, size, "%s", flag_of(field) ? "json" : "text");
        break;
    case KIND_CERT_USER:
        (void)snprintf(out, size, "%s", user[r->config->tls_auth_clients_user]);
        break;
    case KIND_AUTH:
        (void)snprintf(out, size, "%s", auth[r->config->tls_auth_clients]);
        break;
    case KIND_CLUSTER:
        members_format(&r->config->members, out, size);
        break;
    case KIND_JOIN: /* it has no field of its own */
        out[0] = '\0';
        break;
    default:
        (void)snprintf(out, size, "%s", (const char *)field);
    }
}

/* Times of a node that are 0 in the configuration take the defaults of src/consensus. */
static bool is_own_choice(const struct config_option *o, const char *text)
{
    return strcmp(text, "0") == 0 && o->kind == KIND_NUMBER && o->min > 0;
}

void config_tell(const struct config_reader *r, const struct config_option *o,
                 const struct config_given *g)
{
    char text[CONFIG_PATH_MAX + MEMBERS_TEXT_MAX];
    if (g->text != NULL) {
        bool secret = strcmp(o->name, "requirepass") == 0;
        r->tell(r->tell_ctx, o->name, secret ? "(not shown)" : g->text, g->where);
        return;
    }
    default_text(r, o, text, sizeof text);
    r->tell(r->tell_ctx, o->name, is_own_choice(o, text) ? "" : text, FROM_DEFAULT);
}
