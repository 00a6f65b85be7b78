/* fencelock_cmd_watch.c: `fencelock watch`: shows the events of locks until it is ended.
 *
 * Every node sends the events of the log that it applies. When the node goes away, hangs, or is
 * cut off from the others (it knows no leader twice in a row), the next node is asked. A line
 * then says that events may have been missed: otherwise a gap would look like silence. */
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "cli/fencelock_common.h"
#include "cli/watch_event.h"
#include "client/nodes.h"
#include "link/link.h"
#include "wire/resp.h"

#define ATTEMPT_MS UINT64_C(1000) /* for each node */
#define PROBE_EVERY_MS UINT64_C(2000)
#define PAUSE_MAX_MS UINT64_C(2000)
#define LEADERLESS_MAX 2u
#define REQUEST_MAX 65536u

struct watcher {
    const struct cli_args *args;
    struct cli_style style;
    fl_client *client; /* asks a node who leads, on other connections */
    struct fli_node nodes[FL_NODES_MAX];
    uint32_t n_nodes, at;
    struct fli_link_security tls;
    struct fli_link link;
    struct fli_buf request; /* that subscribes */
    unsigned n_requests;
    bool ping_sent; /* a PING has been sent, and not answered */
    unsigned leaderless;
    bool heard;      /* an event of a lock has come, at some time */
    bool is_foreign; /* it is no node of ours */
    uint64_t left;   /* so many events are still to be shown */
    size_t name_width;
    int code;        /* the code of the last failure */
    char error[256]; /* its sentence */
};

static struct fl_bytes bytes_of(const redisReply *r)
{
    return (struct fl_bytes){r->str, r->len};
}

static bool is_word(const redisReply *frame, const char *word)
{
    return frame->type == REDIS_REPLY_ARRAY && frame->elements > 0 &&
           frame->element[0]->type == REDIS_REPLY_STRING &&
           strcmp(frame->element[0]->str, word) == 0;
}

static int give_up(struct watcher *w, int code, const char *why)
{
    w->code = code;
    snprintf(w->error, sizeof w->error, "%.100s: %.140s", w->nodes[w->at].text, why);
    fli_link_close(&w->link);
    return code;
}

/* ---- subscribing ----------------------------------------------------------------------------- */

static bool is_pattern(const char *word)
{
    return strpbrk(word, "*?[") != NULL;
}

static int put_subscription(struct watcher *w, const char *word)
{
    char channel[FL_NAME_MAX + 16];
    snprintf(channel, sizeof channel, "lock:%s", word);
    const char *command = is_pattern(word) ? "PSUBSCRIBE" : "SUBSCRIBE";
    int rc = fli_resp_array(&w->request, 2);
    rc = rc == 0 ? fli_resp_bulk(&w->request, command, strlen(command)) : rc;
    rc = rc == 0 ? fli_resp_bulk(&w->request, channel, strlen(channel)) : rc;
    w->n_requests++;
    return rc;
}

static int put_subscriptions(struct watcher *w)
{
    const struct cli_args *a = w->args;
    int rc = a->n_args == 0 ? put_subscription(w, "*") : 0;
    for (unsigned i = 0; rc == 0 && i < a->n_args; i++) {
        size_t len = strlen(a->arg[i]);
        if (len < 1 || len > FL_NAME_MAX) {
            cli_complain("a name or pattern has 1 to %u bytes, not %zu", FL_NAME_MAX, len);
            return FL_EINVAL;
        }
        rc = put_subscription(w, a->arg[i]);
    }
    return rc;
}

/* Connects to the next node and subscribes there. */
static int subscribe(struct watcher *w)
{
    uint64_t until_ms = fli_clock_ms() + ATTEMPT_MS;
    w->ping_sent = false;
    w->leaderless = 0;
    const struct fli_node *at = &w->nodes[w->at];
    int connected = fli_link_connect(&w->link, &w->tls, at->host, at->port, until_ms);
    if (connected != 0) {
        return give_up(w, connected == FL_EDENIED ? FL_EDENIED : FL_ENOCONN, w->link.error);
    }
    if (fli_link_send(&w->link, w->request.data, w->request.len, until_ms) != 0) {
        return give_up(w, FL_ENOCONN, w->link.error);
    }
    for (unsigned i = 0; i < w->n_requests; i++) {
        redisReply *r;
        int rc = fli_link_receive(&w->link, until_ms, &r);
        if (rc != 0) {
            return give_up(w, rc == FL_ETIMEOUT ? rc : FL_ENOCONN, w->link.error);
        }
        bool done = is_word(r, "subscribe") || is_word(r, "psubscribe");
        if (!done) {
            bool error = r->type == REDIS_REPLY_ERROR;
            rc = error && strncmp(r->str, "LIMIT", 5) == 0 ? FL_ELIMIT : FL_EPROTO;
            give_up(w, rc, error ? r->str : "its answer makes no sense");
        }
        freeReplyObject(r);
        if (!done) {
            return rc;
        }
    }
    return 0;
}

static void pause_ms(uint64_t ms)
{
    uint64_t until_ms = fli_clock_ms() + ms;
    for (uint64_t now_ms = fli_clock_ms(); now_ms < until_ms; now_ms = fli_clock_ms()) {
        (void)poll(NULL, 0, (int)(until_ms - now_ms));
    }
}

/* Goes round until a node accepts the subscriptions or the time is over. */
static int find_node(struct watcher *w, uint64_t until_ms)
{
    uint64_t most_ms = 100;
    for (uint32_t tried = 1;; tried++) {
        int rc = subscribe(w);
        if (rc == 0 || rc == FL_EDENIED || fli_clock_ms() >= until_ms) {
            return rc;
        }
        w->at = (w->at + 1) % w->n_nodes;
        if (tried % w->n_nodes == 0) {
            uint64_t jitter;
            fli_random(&jitter, sizeof jitter);
            pause_ms(most_ms / 2 + jitter % (most_ms / 2));
            most_ms = most_ms * 2 < PAUSE_MAX_MS ? most_ms * 2 : PAUSE_MAX_MS;
        }
    }
}

/* ---- showing --------------------------------------------------------------------------------- */

static void show(struct watcher *w, const struct watch_event *e)
{
    if (w->style.json) {
        watch_event_print_json(e, stdout);
    } else if (w->style.terminal) {
        watch_event_print(e, stdout, w->style.colours, &w->name_width);
    } else {
        watch_event_print_plain(e, stdout);
    }
    fflush(stdout);
    w->left -= watch_event_is_gap(e) ? 0 : 1;
}

static void show_gap(const struct watcher *w)
{
    const char *node = w->nodes[w->at].text;
    if (w->style.json) {
        struct fli_json j = cli_json_begin();
        fli_json_text(&j, "event", "gap");
        fli_json_text(&j, "node", node);
        cli_json_print(&j, stdout);
    } else if (w->style.terminal) {
        printf("%sevents may have been missed: now from %s; see fencelock show%s\n",
               cli_colour_on(CLI_RED, w->style.colours), node,
               cli_colour_off(CLI_RED, w->style.colours));
    } else {
        printf("event=gap node=%s\n", node);
    }
    fflush(stdout);
}

/* ---- listening ------------------------------------------------------------------------------- */

static int take_frame(struct watcher *w, const redisReply *r)
{
    static struct watch_event event; /* large */
    w->ping_sent = false;
    if (r->type == REDIS_REPLY_ERROR) {
        /* the node has ended the subscription: this client was too slow, for example */
        return give_up(w, FL_EIO, r->str);
    }
    if (is_word(r, "pong")) {
        return 0;
    }
    size_t n = is_word(r, "message") ? 3 : is_word(r, "pmessage") ? 4 : 0;
    if (n == 0 || r->elements != n || r->element[n - 2]->type != REDIS_REPLY_STRING ||
        r->element[n - 1]->type != REDIS_REPLY_STRING) {
        return give_up(w, FL_EPROTO, "what it sends makes no sense");
    }
    if (!watch_event_parse(bytes_of(r->element[n - 2]), bytes_of(r->element[n - 1]), &event)) {
        return give_up(w, FL_EPROTO, "an event makes no sense");
    }
    w->heard = true;
    event.wall_ms = fli_clock_wall_ms();
    show(w, &event);
    return 0;
}

/* No event has come for a while: does the node answer, and does it know a leader? */
static int probe(struct watcher *w)
{
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    struct fl_node_status status;
    if (w->ping_sent) {
        return give_up(w, FL_EIO, "no answer");
    }
    if (fli_link_send(&w->link, ping, sizeof ping - 1, fli_clock_ms() + ATTEMPT_MS) != 0) {
        return give_up(w, FL_EIO, w->link.error);
    }
    w->ping_sent = true;
    int rc = fl_node_ask(w->client, w->at, ATTEMPT_MS, &status);
    if (rc == FL_EPROTO && !w->heard) {
        w->is_foreign = true; /* a Redis accepts subscriptions too, and would never send an event */
        return give_up(w, rc, "it takes subscriptions, but is not a fencelockd");
    }
    bool answered = rc == 0;
    w->leaderless = answered && status.leader[0] == '\0' ? w->leaderless + 1 : 0;
    return w->leaderless < LEADERLESS_MAX ? 0 : give_up(w, FL_ENOLEADER, "it knows no leader");
}

/* Shows events until the connection is of no more use, or enough were shown (0). */
static int listen_to(struct watcher *w)
{
    uint64_t probe_ms = fli_clock_ms() + PROBE_EVERY_MS;
    int rc = 0;
    while (rc == 0 && w->left > 0 && ferror(stdout) == 0) {
        redisReply *r;
        rc = fli_link_receive(&w->link, probe_ms, &r);
        if (rc == 0) {
            rc = take_frame(w, r);
            freeReplyObject(r);
        } else if (rc != FL_ETIMEOUT) {
            return give_up(w, FL_EIO, w->link.error);
        } else {
            rc = 0;
        }
        /* Checked also while events come all the time: they may be old ones. */
        if (rc == 0 && fli_clock_ms() >= probe_ms) {
            rc = probe(w);
            probe_ms = fli_clock_ms() + PROBE_EVERY_MS;
        }
    }
    return rc;
}

static int watch(struct watcher *w)
{
    const struct cli_args *a = w->args;
    int rc = find_node(w, fli_clock_ms() + cli_timeout_ms(a));
    if (rc != 0) {
        return cli_fail(a, w->code, w->error, NULL, NULL);
    }
    while (listen_to(w) != 0 && ferror(stdout) == 0) {
        if (w->is_foreign) {
            return cli_fail(a, w->code, w->error, NULL, NULL);
        }
        cli_complain("%s; looking for another node", w->error);
        w->at = (w->at + 1) % w->n_nodes;
        rc = find_node(w, UINT64_MAX);
        if (rc != 0) { /* the user was deleted, or has another password */
            return cli_fail(a, w->code, w->error, NULL, NULL);
        }
        show_gap(w);
    }
    return CLI_EXIT_DONE;
}

int cli_run_watch(const struct cli_args *a, fl_client *c)
{
    static struct watcher w; /* large */
    struct cli_access with;
    uint64_t first;
    uint64_t limit = cli_has(a, CLI_OPT_LIMIT) ? a->number[CLI_OPT_LIMIT] : UINT64_MAX;
    w = (struct watcher){.args = a, .style = cli_style_of(a), .left = limit, .client = c};
    fli_link_init(&w.link);
    fli_buf_init(&w.request, REQUEST_MAX);
    int code = cli_access_of(a, &with);
    code = code != 0 ? code : cli_security_of(a, &with, &w.tls);
    if (code != 0) {
        return code;
    }
    memcpy(w.nodes, with.nodes, sizeof w.nodes);
    w.n_nodes = with.n;
    int rc = put_subscriptions(&w);
    if (rc == FL_EINVAL) {
        code = CLI_EXIT_USAGE;
    } else if (rc != 0) {
        code = cli_fail(a, rc, fl_strerror(rc), NULL, NULL);
    } else {
        fli_random(&first, sizeof first);
        w.at = (uint32_t)(first % w.n_nodes);
        code = watch(&w);
    }
    fli_link_close(&w.link);
    fli_link_security_fini(&w.tls);
    fli_buf_fini(&w.request);
    return code;
}
