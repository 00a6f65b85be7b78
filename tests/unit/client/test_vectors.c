/* The vectors of tests/vectors/lease: what the pure states of a client (lease.h, call_state.h) say
 * to given events at given times. Drivers in other languages run the same files; README.md there
 * says what they mean.
 *
 *   test_client_vectors FOLDER             compares
 *   test_client_vectors --write FOLDER     writes what is said into the files, for a change that is
 *                                          meant */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/call_state.h"
#include "client/lease.h"

#define FILE_MAX (1u << 20)
#define LINE_MAX_BYTES 1024u
#define OUT_MAX_BYTES (3 * LINE_MAX_BYTES)

/* Each line of a file is one object without others inside, so this is all the reading it takes. */

static bool text_of(const char *line, const char *key, char *ret, size_t size)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(line, quoted);
    if (at == NULL) {
        return false;
    }
    at += strlen(quoted);
    size_t len = *at == '"' ? strcspn(++at, "\"") : strcspn(at, ",}");
    snprintf(ret, size, "%.*s", (int)len, at);
    return true;
}

static uint64_t number_of(const char *line, const char *key)
{
    char text[32];
    return text_of(line, key, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

static bool flag_of(const char *line, const char *key)
{
    char text[8];
    return text_of(line, key, text, sizeof text) && strcmp(text, "true") == 0;
}

static void add(char *said, const char *key, uint64_t v)
{
    char text[32] = "null";
    if (v != UINT64_MAX) {
        snprintf(text, sizeof text, "%" PRIu64, v);
    }
    size_t len = strlen(said);
    snprintf(said + len, LINE_MAX_BYTES - len, ", \"%s\": %s", key, text);
}

static void add_text(char *said, const char *key, const char *text)
{
    size_t len = strlen(said);
    snprintf(said + len, LINE_MAX_BYTES - len, ", \"%s\": \"%s\"", key, text);
}

static int code_named(const char *name)
{
    static const int codes[] = {FL_ENOTHELD,   FL_ENOSESSION, FL_ENOLEADER, FL_ENOCONN,
                                FL_EUNCERTAIN, FL_ETIMEOUT,   FL_EBUSY,     FL_EDENIED,
                                FL_ELIMIT,     FL_EINVAL,     FL_EPROTO};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (strcmp(fl_err_name(codes[i]), name) == 0) {
            return codes[i];
        }
    }
    if (strcmp(name, "OK") != 0) {
        fprintf(stderr, "no such code: %s\n", name);
        exit(1);
    }
    return 0;
}

static const char *name_of(int code)
{
    return code == 0 ? "OK" : fl_err_name(code);
}

/* ---- leases ---------------------------------------------------------------------------------- */

static struct fli_lease lease;

static void say_lease(uint64_t now_ms, char *said)
{
    static const char *const reasons[] = {"not", "deadline", "taken", "max_hold", "released"};
    add_text(said, "state", fl_hold_state_name(fli_lease_state(&lease, now_ms)));
    add_text(said, "lost", reasons[lease.reason]);
    add(said, "deadline_ms", lease.deadline_ms);
    add(said, "remaining_ms", fli_lease_remaining_ms(&lease, now_ms));
    add(said, "next_ms", fli_lease_next_ms(&lease));
    add_text(said, "request", fli_lease_wants_renewal(&lease, now_ms) ? "renew" : "none");
}

static void do_lease(const char *event, const char *line, char *said)
{
    uint64_t now_ms = number_of(line, "at_ms");
    char status[16] = "OK";
    if (strcmp(event, "granted") == 0) {
        const struct fli_lease_config config = {
            .ttl_ms = number_of(line, "ttl_ms"),
            .lease_until_ms =
                fli_lease_until(number_of(line, "sent_ms"), number_of(line, "ttl_ms")),
            .reserve_ms = number_of(line, "reserve_ms"),
            .max_hold_ms = number_of(line, "max_hold_ms")};
        fli_lease_init(&lease, &config);
    } else if (strcmp(event, "renewal_sent") == 0) {
        fli_lease_renewal_began(&lease);
    } else if (strcmp(event, "renewal_answered") == 0) {
        (void)text_of(line, "status", status, sizeof status);
        fli_lease_renewal_ended(&lease, now_ms, code_named(status),
                                fli_lease_until(number_of(line, "sent_ms"), lease.config.ttl_ms));
    } else if (strcmp(event, "given_back") == 0) {
        fli_lease_end(&lease, FL_LOST_RELEASED);
    }
    say_lease(now_ms, said);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static struct fli_call_state call;

static const char *const wants[] = {"connect",   "send",  "answer", "probe",
                                    "ask_other", "sleep", "nothing"};
static const char *const events[] = {"none",      "connected",  "unreachable", "sent",     "unsent",
                                     "yes",       "no",         "refused",     "noleader", "busy",
                                     "uncertain", "lost",       "silent",      "broken",   "alive",
                                     "serves",    "serves_not", "leaderless",  "dead",     "woke"};

static void say_call(char *said)
{
    const struct fli_call_order *o = &call.order;
    bool over = o->want == FLI_WANT_NOTHING;
    add_text(said, "request", wants[o->want]);
    if (over) {
        add_text(said, "status", name_of(call.status));
        add(said, "lease_until_ms", call.lease_until_ms);
        return;
    }
    if (o->want != FLI_WANT_SLEEP) {
        add(said, "node", o->node);
    }
    if (o->want == FLI_WANT_ASK_OTHER) {
        add(said, "other", o->other);
    }
    if (o->want == FLI_WANT_SEND) {
        add_text(said, "which", o->request == FLI_REQUEST_MAIN ? "first" : "renew");
    }
    add(said, "until_ms", o->until_ms);
}

static void begin_call(const char *line)
{
    char repeat[16] = "write";
    (void)text_of(line, "repeat", repeat, sizeof repeat);
    const struct fli_call_config config = {
        .repeat = strcmp(repeat, "read") == 0    ? FLI_REPEAT_READ
                  : strcmp(repeat, "never") == 0 ? FLI_REPEAT_NEVER
                                                 : FLI_REPEAT_WRITE,
        .no_is_uncertain = flag_of(line, "no_is_uncertain"),
        .nodes = (uint32_t)number_of(line, "nodes"),
        .start = (uint32_t)number_of(line, "start"),
        .now_ms = number_of(line, "at_ms"),
        .deadline_ms = number_of(line, "deadline_ms"),
        .attempt_ms = number_of(line, "attempt_ms"),
        .ask_ms = number_of(line, "ask_ms"),
        .wait_ms = number_of(line, "wait_ms"),
        .ttl_ms = number_of(line, "ttl_ms"),
        .confirm = number_of(line, "ttl_ms") != 0 && strcmp(repeat, "write") == 0 &&
                   flag_of(line, "confirm"),
        .once = flag_of(line, "once"),
        .seed = number_of(line, "seed")};
    fli_call_state_init(&call, &config);
}

static void do_call(const char *event, const char *line, char *said)
{
    char status[16] = "OK";
    if (strcmp(event, "call") == 0) {
        begin_call(line);
        say_call(said);
        return;
    }
    if (strcmp(event, "leader_known") == 0) {
        fli_call_state_hint(&call, (uint32_t)number_of(line, "node"));
        say_call(said);
        return;
    }
    (void)text_of(line, "status", status, sizeof status);
    bool refused = strcmp(event, "refused") == 0;
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (strcmp(events[i], event) == 0) {
            fli_call_state_feed(&call, number_of(line, "at_ms"), (enum fli_call_event)i,
                                refused ? code_named(status) : 0);
            say_call(said);
            return;
        }
    }
    fprintf(stderr, "no such event: %s\n", event);
    exit(1);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The line as it is to be: what is given, and then what is said. */
static void expected_line(const char *line, bool calls, char out[OUT_MAX_BYTES])
{
    char event[32];
    char said[LINE_MAX_BYTES] = "";
    const char *end = strstr(line, ", \"then\": ");
    size_t given = end != NULL ? (size_t)(end - line) : strlen(line) - 1;
    if (!text_of(line, "event", event, sizeof event)) {
        snprintf(out, OUT_MAX_BYTES, "%s", line); /* what frames the events */
        return;
    }
    char input[LINE_MAX_BYTES];
    bool more = line[strlen(line) - 1] == ',';
    snprintf(input, sizeof input, "%.*s", (int)given, line);
    if (end == NULL && more) {
        input[given - 1] = '\0';
    }
    if (calls) {
        do_call(event, input, said);
    } else {
        do_lease(event, input, said);
    }
    snprintf(out, OUT_MAX_BYTES, "%s, \"then\": {%s}}%s", input, said + 2, more ? "," : "");
}

static unsigned run_file(const char *path, bool writes)
{
    static char text[FILE_MAX];
    static char made[FILE_MAX];
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        perror(path);
        exit(1);
    }
    size_t len = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[len] = '\0';
    made[0] = '\0';
    unsigned wrong = 0, number = 0;
    size_t made_len = 0;
    bool calls = strstr(path, "call") != NULL;
    for (char *line = text, *next; *line != '\0'; line = next) {
        char out[OUT_MAX_BYTES];
        next = line + strcspn(line, "\n");
        next = *next == '\n' ? (*next = '\0', next + 1) : next;
        number++;
        expected_line(line, calls, out);
        made_len += (size_t)snprintf(made + made_len, sizeof made - made_len, "%s\n", out);
        if (!writes && strcmp(line, out) != 0) {
            printf("%s:%u:\n  is   %s\n  says %s\n", path, number, line, out);
            wrong++;
        }
    }
    if (writes) {
        f = fopen(path, "w");
        if (f == NULL || fputs(made, f) < 0 || fclose(f) != 0) {
            perror(path);
            exit(1);
        }
    }
    return wrong;
}

int main(int argc, char **argv)
{
    bool writes = argc == 3 && strcmp(argv[1], "--write") == 0;
    const char *folder = argc > 1 ? argv[argc - 1] : ".";
    unsigned wrong = 0, files = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        char path[1024];
        size_t len = strlen(e->d_name);
        if (len > 5 && strcmp(e->d_name + len - 5, ".json") == 0) {
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            wrong += run_file(path, writes);
            files++;
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    printf("%u files, %u lines that differ\n", files, wrong);
    return wrong == 0 && files > 0 ? 0 : 1;
}
