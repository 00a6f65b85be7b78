/* sentinel.c: see sentinel.h. */
#include "frontdoor/sentinel.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "frontdoor/forms.h"
#include "wire/resp.h"

/* The name in the answer to MASTERS; any other name is accepted as well. */
#define NAME "mymaster"

struct view {
    struct fli_buf *out;
    int proto;
    uint64_t term;
    const struct frontdoor_node *nodes;
    size_t n;
};

/* HOST:PORT or [HOST]:PORT. */
struct place {
    struct fli_slice host;
    const char *port;
};

static bool split(const char *address, struct place *ret)
{
    const char *colon = address == NULL ? NULL : strrchr(address, ':');
    if (colon == NULL) {
        return false;
    }
    bool v6 = address[0] == '[' && colon > address + 1 && colon[-1] == ']';
    const char *host = v6 ? address + 1 : address;
    ret->host =
        (struct fli_slice){(const uint8_t *)host, (size_t)(colon - host) - (size_t)(v6 ? 1 : 0)};
    ret->port = colon + 1;
    return true;
}

/* The node that clients should use; NULL when no address is known. */
static const struct frontdoor_node *master(const struct view *v)
{
    const struct frontdoor_node *self = NULL;
    for (size_t i = 0; i < v->n; i++) {
        if (v->nodes[i].client_address == NULL) {
            continue;
        }
        if (v->nodes[i].leader) {
            return &v->nodes[i];
        }
        self = v->nodes[i].self ? &v->nodes[i] : self;
    }
    return self;
}

static int field(const struct view *v, const char *name, const char *value)
{
    int rc = fli_resp_text(v->out, name);
    return rc != 0 ? rc : fli_resp_text(v->out, value);
}

static int number_field(const struct view *v, const char *name, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    return field(v, name, text);
}

static int place_fields(const struct view *v, const struct place *p)
{
    int rc = fli_resp_text(v->out, "ip");
    rc = rc != 0 ? rc : fli_resp_bulk(v->out, p->host.data, p->host.len);
    return rc != 0 ? rc : field(v, "port", p->port);
}

/* 40 hex digits, like the id of a Redis process. */
static int id_field(const struct view *v, uint64_t id)
{
    char text[41];
    (void)snprintf(text, sizeof text, "%040" PRIx64, id);
    return field(v, "runid", text);
}

#define MASTER_PAIRS 13u
static int master_map(const struct view *v, const struct frontdoor_node *m, const struct place *p)
{
    int rc = fli_resp_map(v->out, v->proto, MASTER_PAIRS);
    rc = rc != 0 ? rc : field(v, "name", NAME);
    rc = rc != 0 ? rc : place_fields(v, p);
    rc = rc != 0 ? rc : id_field(v, m->id);
    rc = rc != 0 ? rc : field(v, "flags", "master");
    rc = rc != 0 ? rc : number_field(v, "link-pending-commands", 0);
    rc = rc != 0 ? rc : number_field(v, "last-ok-ping-reply", 0);
    rc = rc != 0 ? rc : field(v, "role-reported", "master");
    rc = rc != 0 ? rc : number_field(v, "config-epoch", v->term);
    rc = rc != 0 ? rc : number_field(v, "num-slaves", 0);
    rc = rc != 0 ? rc : number_field(v, "num-other-sentinels", v->n > 0 ? v->n - 1 : 0);
    rc = rc != 0 ? rc : number_field(v, "quorum", v->n / 2 + 1);
    return rc != 0 ? rc : number_field(v, "parallel-syncs", 1);
}

static int master_address(const struct view *v)
{
    struct place p;
    const struct frontdoor_node *m = master(v);
    if (m == NULL || !split(m->client_address, &p)) {
        return fli_resp_null_array(v->out, v->proto);
    }
    int rc = fli_resp_array(v->out, 2);
    rc = rc != 0 ? rc : fli_resp_bulk(v->out, p.host.data, p.host.len);
    return rc != 0 ? rc : fli_resp_text(v->out, p.port);
}

static int masters(const struct view *v, bool in_array)
{
    struct place p;
    const struct frontdoor_node *m = master(v);
    bool known = m != NULL && split(m->client_address, &p);
    int rc = in_array ? fli_resp_array(v->out, known) : 0;
    if (rc == 0 && known) {
        return master_map(v, m, &p);
    }
    return rc != 0 || in_array
               ? rc
               : fli_resp_error(v->out, "ERR", "no node's address is known here at the moment");
}

static bool is_other(const struct frontdoor_node *m, struct place *ret)
{
    return !m->self && split(m->client_address, ret);
}

static int sentinels(const struct view *v)
{
    struct place p;
    size_t others = 0;
    for (size_t i = 0; i < v->n; i++) {
        others += is_other(&v->nodes[i], &p);
    }
    int rc = fli_resp_array(v->out, others);
    for (size_t i = 0; rc == 0 && i < v->n; i++) {
        char name[32];
        if (!is_other(&v->nodes[i], &p)) {
            continue;
        }
        (void)snprintf(name, sizeof name, "node-%" PRIu64, v->nodes[i].id);
        rc = fli_resp_map(v->out, v->proto, 5);
        rc = rc != 0 ? rc : field(v, "name", name);
        rc = rc != 0 ? rc : place_fields(v, &p);
        rc = rc != 0 ? rc : id_field(v, v->nodes[i].id);
        rc = rc != 0 ? rc : field(v, "flags", "sentinel");
    }
    return rc;
}

static bool asks(const struct fli_slice *args, unsigned n, const char *word, unsigned want)
{
    return n == want && frontdoor_is_word(args[0], word);
}

int frontdoor_sentinel(struct fli_buf *out, int proto, uint64_t term,
                       const struct frontdoor_node *nodes, size_t n_nodes,
                       const struct fli_slice *args, unsigned n)
{
    const struct view v = {out, proto, term, nodes, n_nodes};
    if (asks(args, n, "GET-MASTER-ADDR-BY-NAME", 2)) {
        return master_address(&v);
    }
    if (asks(args, n, "MASTERS", 1)) {
        return masters(&v, true);
    }
    if (asks(args, n, "MASTER", 2)) {
        return masters(&v, false);
    }
    if (asks(args, n, "SENTINELS", 2)) {
        return sentinels(&v);
    }
    if (asks(args, n, "REPLICAS", 2) || asks(args, n, "SLAVES", 2)) {
        return fli_resp_array(out, 0);
    }
    return fli_resp_error(out, "ERR",
                          "of SENTINEL there are: GET-MASTER-ADDR-BY-NAME name, MASTERS, MASTER "
                          "name, SENTINELS name, REPLICAS name");
}
