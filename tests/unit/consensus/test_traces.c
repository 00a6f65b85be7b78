/* test_traces.c: stories of a Raft group, as files that a person reads and writes.
 *
 *   test_consensus_traces [--rewrite] FILE...
 *
 * A file has orders, and below each what came of it, four spaces further in: messages that were
 * sent, and servers whose state changed. A story that runs otherwise than its file says fails.
 * --rewrite writes down what came of each order; read the difference before it is committed.
 * Nothing happens by itself: no message arrives, no disk writes and no time passes, unless an order
 * says so. traces/README.md lists the orders. After each order, what must always hold of a server
 * is checked. */
#include "../../lib/unit.h"

#include <errno.h>

#include "base/buf.h"
#include "group.h"

#define FILE_MAX ((size_t)256 << 10)
#define QUIET_MAX 100u /* rounds of `settle` */

struct seen {
    bool up;
    enum replica_role role;
    uint64_t term, last, committed, applied;
};

struct story {
    const char *path;
    struct fli_buf out;
    struct seen seen[GROUP_MAX];
    uint64_t committed[GROUP_MAX]; /* the highest ever */
    struct group_packet *copy;
    bool begun, quiet;
};

static bool rewrite;
static struct story story;

static void say(const char *fmt, ...) FLI_PRINTF(1, 2);

static void say(const char *fmt, ...)
{
    char line[256];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    assert_true(n > 0 && (size_t)n < sizeof line);
    assert_int_equal(fli_buf_append(&story.out, line, (size_t)n), 0);
}

#define ULL(n) ((unsigned long long)(n))

/* ---- what came of an order ---- */

static void tell_append(const struct raft_append_entries *m)
{
    say("APPEND term %llu behind %llu/%llu, committed %llu:", ULL(m->term), ULL(m->prev_log_index),
        ULL(m->prev_log_term), ULL(m->leader_commit));
    for (unsigned i = 0; i < m->n_entries; i++) {
        say(" %llu/%llu", ULL(m->prev_log_index + 1 + i), ULL(m->entries[i].term));
    }
    say("%s\n", m->n_entries == 0 ? " nothing" : "");
}

static void tell_message(const struct group_packet *p)
{
    struct raft_entry entries[MESSAGE_ENTRIES_MAX];
    say("    %llu -> %llu  ", ULL(p->from), ULL(p->to));
    if (p->type == MESSAGE_ROUND || p->type == MESSAGE_ROUND_RESULT) {
        say("%s\n", p->type == MESSAGE_ROUND ? "ROUND" : "ROUND_RESULT");
        return;
    }
    struct raft_message m = group_read(p, entries);
    switch (p->type) {
    case MESSAGE_APPEND:
        tell_append(&m.append_entries);
        break;
    case MESSAGE_APPEND_RESULT:
        say("APPEND_RESULT term %llu %s %llu, has %llu\n", ULL(m.append_entries_result.term),
            m.append_entries_result.rejected == 0 ? "takes" : "rejects",
            ULL(m.append_entries_result.rejected == 0 ? m.append_entries_result.last_log_index
                                                      : m.append_entries_result.rejected),
            ULL(m.append_entries_result.last_log_index));
        break;
    case MESSAGE_VOTE:
        say("VOTE term %llu, has %llu/%llu%s\n", ULL(m.request_vote.term),
            ULL(m.request_vote.last_log_index), ULL(m.request_vote.last_log_term),
            m.request_vote.pre_vote ? ", pre-vote" : "");
        break;
    case MESSAGE_VOTE_RESULT:
        say("VOTE_RESULT term %llu %s%s\n", ULL(m.request_vote_result.term),
            m.request_vote_result.vote_granted ? "yes" : "no",
            m.request_vote_result.pre_vote ? ", pre-vote" : "");
        break;
    default:
        say("TIMEOUT_NOW term %llu\n", ULL(m.timeout_now.term));
        break;
    }
}

static void tell_messages(void)
{
    FLI_LIST_FOREACH(pos, &group.packets)
    {
        struct group_packet *p = FLI_CONTAINER_OF(pos, struct group_packet, link);
        if (!p->told && !story.quiet) {
            tell_message(p);
        }
        p->told = true;
    }
}

/* Core, log and machine agree, and nothing that was committed is taken back. */
static void check(unsigned i, const struct seen *now)
{
    const struct group_server *s = &group.servers[i];
    assert_int_equal(s->fatals, 0);
    assert_int_equal(log_last_index(s->log), now->last);
    assert_true(log_durable_index(s->log) <= now->last);
    assert_true(now->applied <= now->committed && now->committed <= now->last);
    assert_true(now->committed >= story.committed[i]);
    assert_int_equal(log_get_hard_state(s->log).term, now->term);
    story.committed[i] = now->committed;
}

static void tell_server(unsigned i)
{
    static const char *const roles[] = {"follower", "candidate", "leader"};
    const struct replica *r = group.servers[i].replica;
    struct seen *before = &story.seen[i];
    struct seen now = {.up = r != NULL};
    if (r != NULL) {
        now.role = replica_role(r);
        now.term = replica_term(r);
        now.last = replica_last_index(r);
        now.committed = replica_commit_index(r);
        now.applied = replica_applied_index(r);
        check(i, &now);
    } else {
        story.committed[i] = 0; /* a start begins with what its snapshot has */
    }
    bool same = before->up == now.up && before->role == now.role && before->term == now.term &&
                before->last == now.last && before->committed == now.committed;
    *before = now;
    if (!same && r == NULL) {
        say("    %u is down\n", i + 1);
    } else if (!same) {
        say("    %u %s, term %llu, has %llu, committed %llu\n", i + 1, roles[now.role],
            ULL(now.term), ULL(now.last), ULL(now.committed));
    }
}

static void tell(void)
{
    tell_messages();
    for (unsigned i = 0; i < group.n; i++) {
        tell_server(i);
    }
}

/* ---- orders ---- */

static struct group_packet *packet(unsigned from, unsigned to, unsigned nth)
{
    FLI_LIST_FOREACH(pos, &group.packets)
    {
        struct group_packet *p = FLI_CONTAINER_OF(pos, struct group_packet, link);
        if (p->from == from && p->to == to && --nth == 0) {
            return p;
        }
    }
    fail_msg("no such message from %u to %u", from, to);
    return NULL;
}

/* Delivers what is on its way now. */
static void deliver_all(void)
{
    for (unsigned n = group.packets_n; n > 0; n--) {
        struct fli_list *first = fli_list_first(&group.packets);
        group_deliver(&group, FLI_CONTAINER_OF(first, struct group_packet, link));
    }
}

static void write_all(void)
{
    for (unsigned i = 0; i < group.n; i++) {
        if (group.servers[i].log != NULL) {
            group_write(&group, i);
        }
    }
}

/* Until nothing is on its way. Only its end is told. */
static void settle(void)
{
    unsigned rounds = 0;
    story.quiet = true;
    do {
        assert_true(rounds++ < QUIET_MAX);
        write_all();
        deliver_all();
        write_all();
    } while (group.packets_n > 0);
    tell();
    story.quiet = false;
}

static void copy(const struct group_packet *p)
{
    free(story.copy);
    story.copy = fli_xmalloc(sizeof *p + p->len);
    memcpy(story.copy, p, sizeof *p + p->len);
}

static void replay(void)
{
    assert_non_null(story.copy);
    struct group_packet *p = story.copy;
    story.copy = NULL;
    fli_list_init(&p->link);
    fli_list_push(&group.packets, &p->link);
    group.packets_n++;
    group_deliver(&group, p);
}

static void pass(unsigned ms)
{
    group.now_ms += ms;
    for (unsigned i = 0; i < group.n; i++) {
        group_turn(&group, i);
    }
}

/* What leader `by` does about server `id`. */
static bool obey_leader(const char *word, unsigned by, unsigned id)
{
    struct replica *r = group_replica(&group, by - 1);
    struct configuration c = *replica_configuration(r);
    char address[16];
    (void)snprintf(address, sizeof address, "s%u:1", id);
    if (strcmp(word, "transfer") == 0) {
        assert_int_equal(replica_transfer(r, group.now_ms, id), 0);
        return true;
    }
    int rv = FL_ENOTFOUND;
    if (strcmp(word, "add") == 0) {
        rv = configuration_add(&c, id, id, address, CONFIGURATION_LEARNER);
    } else if (strcmp(word, "promote") == 0 && replica_has_caught_up(r, group.now_ms, id)) {
        configuration_find(&c, id)->role = CONFIGURATION_VOTER;
        rv = 0;
    } else if (strcmp(word, "remove") == 0) {
        rv = configuration_remove(&c, id);
    }
    return rv == 0 && replica_change(r, group.now_ms, &c) == 0;
}

static bool obey_message(const char *line)
{
    unsigned from = 0;
    unsigned to = 0;
    unsigned nth = 1;
    char word[16];
    if (sscanf(line, "%15s %u->%u %u", word, &from, &to, &nth) < 3) {
        return false;
    }
    if (strcmp(word, "deliver") == 0) {
        group_deliver(&group, packet(from, to, nth));
    } else if (strcmp(word, "copy") == 0) {
        copy(packet(from, to, nth));
    } else if (strcmp(word, "drop") == 0) {
        group.cut[from][to] = true;
        group_deliver(&group, packet(from, to, nth));
        group.cut[from][to] = false;
    } else {
        return from >= 1 && from <= group.n && obey_leader(word, from, to);
    }
    return true;
}

/* Servers with empty logs. The first of them are to found a group. */
static void found(unsigned founders, unsigned n)
{
    story.begun = true;
    group_init(&group, n);
    for (unsigned i = founders; i < n; i++) {
        assert_int_equal(configuration_remove(&group.conf, i + 1), 0);
    }
    group.founds = true;
    group_up_all(&group);
}

static bool obey_server(const char *word, unsigned n)
{
    if (strcmp(word, "servers") == 0 && !story.begun) {
        story.begun = true;
        group_init(&group, n);
        group_up_all(&group);
    } else if (strcmp(word, "pass") == 0) {
        pass(n);
    } else if (n == 0 || n > group.n) {
        return false;
    } else if (strcmp(word, "begin") == 0) {
        struct replica *r = group_replica(&group, n - 1);
        assert_int_equal(replica_begin(r, group.now_ms, &group.conf), 0);
    } else if (strcmp(word, "campaign") == 0) {
        (void)replica_campaign(group_replica(&group, n - 1), group.now_ms);
    } else if (strcmp(word, "submit") == 0) {
        assert_int_equal(group_submit(&group, n - 1), 0);
    } else if (strcmp(word, "disk") == 0) {
        group_write(&group, n - 1);
    } else if (strcmp(word, "snapshot") == 0) {
        group_snapshot(&group, n - 1, replica_applied_index(group_replica(&group, n - 1)));
    } else if (strcmp(word, "crash") == 0) {
        group_crash(&group, n - 1, SIM_CRASH_POWER);
    } else if (strcmp(word, "start") == 0) {
        group_up(&group, n - 1);
    } else if (strcmp(word, "cut") == 0 || strcmp(word, "heal") == 0) {
        group_isolate(&group, n - 1, strcmp(word, "cut") == 0);
    } else {
        return false;
    }
    return true;
}

static bool obey(const char *line)
{
    char word[16] = "";
    unsigned n = 0;
    unsigned of = 0;
    int read = sscanf(line, "%15s %u of %u", word, &n, &of);
    if (read == 3 && strcmp(word, "founders") == 0 && !story.begun) {
        found(n, of);
    } else if (strcmp(line, "deliver all") == 0) {
        deliver_all();
    } else if (strcmp(line, "settle") == 0) {
        settle();
    } else if (strcmp(line, "drop all") == 0) {
        group_drop(&group);
    } else if (strcmp(line, "replay") == 0) {
        replay();
    } else {
        return obey_message(line) || (read == 2 && obey_server(word, n));
    }
    return true;
}

/* ---- files ---- */

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "re");
    char *text = calloc(1, FILE_MAX);
    if (f == NULL || text == NULL || fread(text, 1, FILE_MAX - 1, f) == 0) {
        fail_msg("cannot read %s: %s", path, strerror(errno));
    }
    (void)fclose(f);
    return text;
}

static void write_file(const char *path, const struct fli_buf *b)
{
    FILE *f = fopen(path, "we");
    if (f == NULL || fwrite(b->data, 1, b->len, f) != b->len || fclose(f) != 0) {
        fail_msg("cannot write %s: %s", path, strerror(errno));
    }
}

/* Runs the orders of the text, and puts them down with what came of them. */
static void run(char *text)
{
    char *save = NULL;
    unsigned number = 0;
    for (char *line = text; line != NULL && *line != '\0'; line = save) {
        save = strchr(line, '\n');
        if (save != NULL) {
            *save++ = '\0';
        }
        number++;
        if (strncmp(line, "    ", 4) == 0) {
            continue; /* what came of it before */
        }
        say("%s\n", line);
        if (*line == '\0' || *line == '#') {
            continue;
        }
        if (!obey(line)) {
            fail_msg("%s:%u: no order is called so: %s", story.path, number, line);
        }
        tell();
    }
}

static void compare(const char *text)
{
    unsigned line = 1;
    size_t at = 0;
    size_t begin = 0;
    for (; at < story.out.len && story.out.data[at] == (uint8_t)text[at]; at++) {
        if (text[at] == '\n') {
            line++;
            begin = at + 1;
        }
    }
    if (at < story.out.len || text[at] != '\0') {
        fail_msg("%s:%u: the story goes on like this now (--rewrite writes it down):\n%.*s",
                 story.path, line, (int)(story.out.len - begin),
                 (const char *)story.out.data + begin);
    }
}

static void tell_story(void **state)
{
    const char *path = *state;
    char *text = read_file(path);
    char *orders = strdup(text);
    assert_non_null(orders);
    story = (struct story){.path = path};
    fli_buf_init(&story.out, FILE_MAX);
    run(orders);
    free(orders);
    if (rewrite) {
        write_file(path, &story.out);
    } else {
        compare(text);
    }
    free(text);
}

static int end_story(void **state)
{
    free(story.copy);
    fli_buf_fini(&story.out);
    if (story.begun) {
        group_fini(&group);
    }
    return 0;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rewrite") == 0) {
            rewrite = true;
        } else {
            unit_add((struct CMUnitTest){argv[i], tell_story, NULL, end_story, argv[i]}, i);
        }
    }
    return unit_run(1, argv, NULL, NULL);
}
