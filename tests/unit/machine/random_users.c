/* random_users.c: who asks, and random changes of users and of nodes. */
#include "random_run.h"

#define NAMES_PATTERNS "abcde?*"

static char pick(struct random_run *w, const char *letters)
{
    return letters[random_below(w, strlen(letters))];
}

static void put(struct random_run *w, const char *text)
{
    size_t len = strlen(w->words);
    snprintf(w->words + len, sizeof w->words - len, "%s%s",
             len == 0 || w->words[len - 1] == '(' ? "" : " ", text);
}

static void put_right(struct random_run *w)
{
    static const char *const rights[] = {"all", "all", "acquire", "acquire", "acquire",
                                         "see", "see", "token",   "break",   "admin"};
    char word[16];
    snprintf(word, sizeof word, "%c@%s", pick(w, "+++-"), rights[random_below(w, 10)]);
    put(w, word);
}

/* `*` behind another pattern is one for all; a pattern behind `*` is wrong. */
static void put_pattern(struct random_run *w)
{
    char word[4] = {'~', pick(w, NAMES_PATTERNS), 0};
    put(w, word);
}

static void put_hash(struct random_run *w, char sign)
{
    char word[160];
    snprintf(word, sizeof word, "%cscrypt:10:1:1:%032d:%064d", sign, 0, 0);
    word[strlen(word) - 1] = pick(w, "123");
    put(w, word);
}

static void put_selector(struct random_run *w)
{
    put(w, "(");
    put_pattern(w);
    put_right(w);
    size_t len = strlen(w->words);
    snprintf(w->words + len, sizeof w->words - len, ")");
}

static void put_word(struct random_run *w)
{
    switch (random_below(w, 20)) {
    case 0:
        put(w, "off");
        break;
    case 1:
        put(w, "resetpass");
        break;
    case 2:
        put(w, "resetkeys");
        break;
    case 3:
        put(w, "reset");
        break;
    case 4:
        put(w, "clearselectors");
        break;
    case 5:
        put(w, random_below(w, 4) == 0 ? "sesame" : "on");
        break;
    case 6:
        put_hash(w, '#');
        break;
    case 7:
        put_hash(w, random_below(w, 3) == 0 ? '!' : '#');
        break;
    case 8:
    case 9:
        put_selector(w);
        break;
    case 10:
    case 11:
        put(w, "on");
        break;
    case 12:
        put(w, "nopass");
        break;
    case 13:
    case 14:
    case 15:
        put_pattern(w);
        break;
    default:
        put_right(w);
        break;
    }
}

static struct fli_slice any_words(struct random_run *w)
{
    w->words[0] = 0;
    if (random_below(w, 3) == 0) { /* or too many users may nothing at all */
        put(w, "on nopass ~* +@all");
    }
    for (uint64_t n = 1 + random_below(w, 4); n > 0; n--) {
        put_word(w);
    }
    return fixture_slice(w->words);
}

static struct fli_slice any_user(struct random_run *w)
{
    uint64_t i = random_below(w, MODEL_USERS + 1);
    return i == 0 ? fixture_slice("default") : letter_slice((char)('p' + i % (MODEL_USERS - 1)));
}

/* Some of the users, by name, of words of their own. */
static struct machine_command any_load(struct random_run *w)
{
    static const char *const names[] = {"default", "p", "q", "r"};
    char unused[256];
    size_t len = 0;
    for (unsigned i = 0; i < MODEL_USERS; i++) {
        struct acl_user u;
        if (random_below(w, 3) == 0) {
            continue;
        }
        acl_user_init(&u, fixture_slice(names[i]));
        bool known = random_below(w, 2) == 0 && w->loaded[i].name_len != 0;
        u = known ? w->loaded[i] : u; /* as it was in the last list, as a rule */
        if (!known && acl_apply(&u, any_words(w), ACL_LOCK_RIGHTS, unused, sizeof unused) != 0) {
            continue;
        }
        w->loaded[i] = u;
        len += acl_encode(&u, w->records + len);
    }
    return (struct machine_command){.op = MACHINE_OP_USERS_LOAD, .value = {w->records, len}};
}

struct machine_command random_any_change_of_users(struct random_run *w)
{
    struct machine_command c = {.op = MACHINE_OP_USER_SET};
    uint64_t dice = random_below(w, 100);
    if (dice < 60) {
        c.owner = any_user(w);
        c.words = any_words(w);
    } else if (dice < 80) {
        c.op = MACHINE_OP_USER_DELETE;
        c.owner = any_user(w);
    } else if (dice < 99) {
        c = any_load(w);
    } else {
        c.op = MACHINE_OP_USERS_SEAL;
    }
    if (c.op != MACHINE_OP_USER_DELETE && c.op != MACHINE_OP_USERS_SEAL &&
        random_below(w, 10) == 0) {
        c.flags |= MACHINE_USER_INITIAL;
    }
    return c;
}

/* Somebody who is logged in, as a rule; or who was, or is going to be, or never is. */
uint64_t random_any_login(struct random_run *w)
{
    const struct model_user *u = &w->model.users[random_below(w, w->model.n_users)];
    uint64_t dice = random_below(w, 20);
    if (dice == 0) {
        return machine_user_of(u->uid, u->login + 1 - 2 * (uint32_t)random_below(w, 2));
    }
    if (dice == 1) {
        return machine_user_of((uint32_t)random_below(w, w->model.last_uid + 2u), 1);
    }
    return dice < 5 || u->uid == 0 ? 0 : machine_user_of(u->uid, u->login);
}

void random_set_user(struct random_run *w, struct machine_command *c)
{
    bool of_node = c->op == MACHINE_OP_RELEASE || c->op == MACHINE_OP_USER_SET ||
                   c->op == MACHINE_OP_USERS_LOAD; /* what a node asks for by itself */
    bool by_node = of_node && random_below(w, 8) == 0;
    uint64_t login = by_node ? MACHINE_USER_NODE : random_any_login(w);
    if (login != 0) {
        c->user = login;
        c->flags |= MACHINE_COMMAND_BY;
    }
}

/* ---- nodes ---- */

struct machine_command random_any_change_of_nodes(struct random_run *w)
{
    static const uint8_t ops[] = {
        MACHINE_OP_NODE_ADD,     MACHINE_OP_NODE_REPLACE, MACHINE_OP_NODE_REMOVE,
        MACHINE_OP_NODE_SETTLED, MACHINE_OP_NODE_VERSION, MACHINE_OP_VERSION_RAISE,
    };
    struct machine_command c = {.op = ops[random_below(w, sizeof ops)],
                                .number = 1 + random_below(w, random_below(w, 2) == 0 ? 3 : 11)};
    switch (c.op) {
    case MACHINE_OP_NODE_ADD:
    case MACHINE_OP_NODE_REPLACE:
        c.number2 = random_below(w, 1 + MACHINE_NODE_FLAGS);
        c.value = letter_slice((char)('h' + random_below(w, 3)));
        c.flags =
            c.op == MACHINE_OP_NODE_REPLACE && random_below(w, 2) == 0 ? MACHINE_NODE_FORCED : 0;
        break;
    case MACHINE_OP_NODE_REMOVE:
        c.flags = random_below(w, 2) == 0 ? MACHINE_NODE_FORCED : 0;
        break;
    case MACHINE_OP_NODE_VERSION: /* a snapshot of a higher one cannot be read by this build */
        c.number2 = 1;
        break;
    case MACHINE_OP_VERSION_RAISE:
        c.number = 1 + random_below(w, 2);
        break;
    default:
        break;
    }
    return c;
}
