/* Nodes stop and start at random while commands come in everywhere. Checked: each command that was
 * accepted is answered exactly once, with an answer that is allowed; tokens are unique, and grow in
 * the order of completion; what was acknowledged is there in the end, on every node. */
#include "../../lib/rng.h"
#include "cluster.h"

#define STEPS 60u
#define OPS_MAX 4000u

static uint64_t seed;

static uint64_t next_random(uint64_t below)
{
    return rng_below(&seed, below);
}

struct tracked {
    struct op op;
    struct churn *churn;
    unsigned node;
    bool query;
    uint64_t floor; /* the largest token that was told before this was sent */
    char name[24];
};

struct churn {
    struct cluster c;
    struct tracked *ops;
    unsigned count;
    unsigned outstanding;
    uint64_t largest; /* token told so far */
    unsigned done, refused, uncertain;
};

static void note(struct churn *ch, struct tracked *t)
{
    assert_int_equal(t->op.answers, 1);
    switch (t->op.status) {
    case 0:
        ch->done++;
        break;
    case FL_ENOLEADER:
    case FL_EBUSY:
        ch->refused++;
        return;
    case FL_EUNCERTAIN:
        assert_false(t->query);
        ch->uncertain++;
        return;
    default:
        fail_msg("%s was answered %d", t->name, t->op.status);
    }
    if (!t->query) {
        assert_int_equal(t->op.result.code, MACHINE_GRANTED);
        if (t->op.result.token <= t->floor) {
            fail_msg("%s got token %llu, but %llu was told before it was sent", t->name,
                     (unsigned long long)t->op.result.token, (unsigned long long)t->floor);
        }
    }
}

/* Looks at what has been answered since; a token counts as told from then on. */
static void collect(struct churn *ch, unsigned *seen)
{
    for (unsigned i = *seen; i < ch->count; i++) {
        struct tracked *t = &ch->ops[i];
        if (t->op.answers > 0 && t->churn != NULL) {
            note(ch, t);
            t->churn = NULL;
            if (t->op.status == 0 && !t->query && t->op.result.token > ch->largest) {
                ch->largest = t->op.result.token;
            }
        }
    }
    while (*seen < ch->count && ch->ops[*seen].churn == NULL) {
        (*seen)++;
    }
}

static void submit_some(struct churn *ch)
{
    unsigned wanted = (unsigned)next_random(40);
    for (unsigned i = 0; i < wanted && ch->count < OPS_MAX; i++) {
        unsigned at = (unsigned)next_random(ch->c.n);
        struct tracked *t = &ch->ops[ch->count];
        if (ch->c.nodes[at].node == NULL || ch->c.nodes[at].stopping) {
            continue;
        }
        memset(t, 0, sizeof *t);
        t->churn = ch;
        t->node = at;
        t->query = next_random(4) == 0;
        t->floor = ch->largest;
        t->op.outstanding = &ch->outstanding;
        snprintf(t->name, sizeof t->name, "lock-%u", ch->count);
        struct machine_command cmd =
            t->query ? cmd_check(t->name, 1) : cmd_acquire(t->name, "owner-1", 3600000, 0);
        ch->outstanding++;
        int rv = op_submit(&ch->c, at, &cmd, &t->op);
        if (rv != 0) {
            assert_true(rv == FL_EBUSY || rv == FL_ENOLEADER);
            ch->outstanding--;
            continue;
        }
        ch->count++;
    }
}

/* A node that is gone has answered all of its own. */
static void expect_none_left(struct churn *ch, unsigned node)
{
    for (unsigned i = 0; i < ch->count; i++) {
        assert_true(ch->ops[i].node != node || ch->ops[i].op.answers == 1);
    }
}

static void transferred_cb(void *ctx, int status)
{
    assert_true(status == 0 || status == FL_ETIMEOUT);
}

static void disturb(struct churn *ch)
{
    struct cluster *c = &ch->c;
    unsigned i = (unsigned)next_random(c->n);
    unsigned down = 0;
    for (unsigned j = 0; j < c->n; j++) {
        down += c->nodes[j].node == NULL;
    }
    if (c->nodes[i].node == NULL) {
        cluster_start(c, i);
    } else if (down == 0 || next_random(6) == 0) {
        if (next_random(4) == 0 && node_transfer(c->nodes[i].node, 0, transferred_cb, ch) == 0) {
            return;
        }
        cluster_stop(c, i, next_random(2) == 0 ? 0 : 2000);
        expect_none_left(ch, i);
    }
}

static bool all_answered(void *ctx)
{
    struct churn *ch = ctx;
    return ch->outstanding == 0;
}

static int compare_tokens(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void expect_unique(struct churn *ch)
{
    uint64_t *tokens = test_calloc(ch->count + 1, sizeof *tokens);
    unsigned n = 0;
    for (unsigned i = 0; i < ch->count; i++) {
        if (ch->ops[i].op.status == 0 && !ch->ops[i].query) {
            tokens[n++] = ch->ops[i].op.result.token;
        }
    }
    qsort(tokens, n, sizeof *tokens, compare_tokens);
    for (unsigned i = 1; i < n; i++) {
        assert_true(tokens[i] != tokens[i - 1]);
    }
    test_free(tokens);
}

/* Asks as long as there are elections. */
static void ask(struct churn *ch, unsigned i, const struct machine_command *cmd,
                enum machine_code code)
{
    struct op op;
    op_run_at_last(&ch->c, i % ch->c.n, cmd, &op);
    assert_int_equal(op.status, 0);
    assert_int_equal(op.result.code, code);
}

/* What was acknowledged is held; what was uncertain can be asked again; what was refused was not
 * done. */
static void expect_kept(struct churn *ch)
{
    for (unsigned i = 0; i < ch->count; i++) {
        struct tracked *t = &ch->ops[i];
        if (t->query) {
            continue;
        }
        if (t->op.status == 0) {
            struct machine_command cmd = cmd_check(t->name, t->op.result.token);
            ask(ch, i, &cmd, MACHINE_DONE);
        } else if (t->op.status == FL_EUNCERTAIN) {
            struct machine_command cmd = cmd_acquire(t->name, "owner-1", 3600000, 0);
            ask(ch, i, &cmd, MACHINE_GRANTED);
        } else {
            struct machine_command cmd = cmd_show(t->name);
            ask(ch, i, &cmd, MACHINE_NOTFOUND);
        }
    }
}

TEST(test_churn)
{
    struct churn *ch = test_calloc(1, sizeof *ch);
    unsigned seen = 0;
    ch->ops = test_calloc(OPS_MAX, sizeof *ch->ops);
    cluster_init(&ch->c, 3);
    ch->c.hold_ms = 1500;
    ch->c.snapshot_bytes = 16 << 10;
    cluster_start_all(&ch->c);
    cluster_wait_formed(&ch->c);
    for (unsigned step = 0; step < STEPS || (ch->done == 0 && ch->count < OPS_MAX); step++) {
        submit_some(ch);
        if (next_random(3) == 0) {
            disturb(ch);
        }
        submit_some(ch);
        cluster_run_ms(&ch->c, (unsigned)next_random(120));
        collect(ch, &seen);
    }
    for (unsigned i = 0; i < ch->c.n; i++) {
        if (ch->c.nodes[i].node == NULL) {
            cluster_start(&ch->c, i);
        }
    }
    cluster_until(&ch->c, all_answered, ch, "everything is answered");
    collect(ch, &seen);
    assert_int_equal(seen, ch->count);
    print_message("%u commands: %u done, %u refused, %u uncertain\n", ch->count, ch->done,
                  ch->refused, ch->uncertain);
    assert_true(ch->done > 0);
    expect_unique(ch);
    ch->c.hold_ms = 0;
    cluster_wait_leader(&ch->c);
    expect_kept(ch);
    cluster_expect_same_hash(&ch->c);
    for (unsigned i = 0; i < ch->c.n; i++) {
        assert_int_equal(ch->c.nodes[i].fatal, 0);
    }
    cluster_fini(&ch->c);
    test_free(ch->ops);
    test_free(ch);
}

int main(int argc, char **argv)
{
    seed = rng_seed();
    return unit_run(argc, argv, NULL, NULL);
}
