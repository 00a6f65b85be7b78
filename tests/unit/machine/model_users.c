/* model_users.c: users of the model: who asks, what it lacks, and changes of users. Rights to names
 * are looked up in the words that were given, one letter a pattern (? is any). */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "machine/acl.h"

#define ALL_RIGHTS 255u
#define LOCK_RIGHTS 31u
#define HASH_WORD_MIN 20u /* of '#' or '!' with a hash */

static void reset(struct model_user *u)
{
    *u = (struct model_user){.name = u->name, .uid = u->uid, .login = u->login, .n_rules = 1};
}

void model_users_init(struct model *m)
{
    struct model_user *u = &m->users[m->n_users++];
    *u = (struct model_user){.name = 'd', .login = 1, .on = true, .nopass = true, .n_rules = 1};
    u->rules[0].rights = ALL_RIGHTS;
    u->rules[0].all = true;
}

static int find_name(const struct model *m, char name)
{
    for (unsigned i = 0; i < m->n_users; i++) {
        if (m->users[i].name == name) {
            return (int)i;
        }
    }
    return -1;
}

static int find_uid(const struct model *m, uint32_t uid)
{
    for (unsigned i = 0; i < m->n_users; i++) {
        if (m->users[i].uid == uid) {
            return (int)i;
        }
    }
    return -1;
}

char model_user_name(const struct model *m, uint32_t uid)
{
    int i = uid == 0 ? -1 : find_uid(m, uid);
    return i < 0 ? 0 : m->users[i].name;
}

/* ---- what a user may ------------------------------------------------------------------------- */

static bool may(const struct model_user *u, unsigned right, char name)
{
    for (unsigned i = 0; i < u->n_rules; i++) {
        const struct model_rule *r = &u->rules[i];
        bool named = r->all || strchr(r->names, '?') != NULL || strchr(r->names, name) != NULL;
        if ((r->rights & right) != 0 && named) {
            return true;
        }
    }
    return false;
}

static bool may_some(const struct model_user *u, unsigned right)
{
    unsigned rights = 0;
    for (unsigned i = 0; i < u->n_rules; i++) {
        rights |= u->rules[i].rights;
    }
    return (rights & right) != 0;
}

static bool is_open(const struct model_user *u)
{
    return u->on && u->nopass && u->rules[0].rights == ALL_RIGHTS && u->rules[0].all;
}

int model_find_login(const struct model *m, uint64_t login)
{
    int i = find_uid(m, (uint32_t)login);
    if (i < 0 || !m->users[i].on) {
        return -1;
    }
    bool in = login == 0 ? m->users[i].nopass : m->users[i].login == login >> 32;
    return in ? i : -1;
}

static bool is_free(const struct model *m)
{
    return m->asker < 0 || (m->users[m->asker].uid == 0 && is_open(&m->users[m->asker]));
}

bool model_asker_may(const struct model *m, unsigned right, char name)
{
    return is_free(m) || may(&m->users[m->asker], right, name);
}

bool model_asker_may_some(const struct model *m, unsigned right)
{
    return is_free(m) || may_some(&m->users[m->asker], right);
}

bool model_owns(const struct model *m, unsigned session)
{
    return m->asker < 0 || m->sessions[session].uid == m->users[m->asker].uid;
}

bool model_wait_may(const struct model *m, const char *names, unsigned session)
{
    int i = find_uid(m, m->sessions[session].uid);
    if (i >= 0 && m->users[i].uid == 0 && is_open(&m->users[i])) {
        return true;
    }
    for (const char *p = names; *p != 0; p++) {
        if (i < 0 || !m->users[i].on || !may(&m->users[i], ACL_ACQUIRE, *p)) {
            return false;
        }
    }
    return true;
}

/* ---- who asks -------------------------------------------------------------------------------- */

static bool is_of_clients(unsigned op)
{
    bool of_nodes = (op >= MACHINE_OP_NODE_ADD && op <= MACHINE_OP_VERSION_RAISE) ||
                    op <= MACHINE_OP_LIMITS || op == MACHINE_OP_RAISE || op == MACHINE_OP_CANCEL;
    return !of_nodes;
}

static unsigned missing(const struct model *m, const struct machine_command *c)
{
    const struct model_user *u = &m->users[m->asker];
    struct fli_slice names[MACHINE_NAMES_MAX];
    unsigned n = 0;
    unsigned right = 0;
    switch (c->op) {
    case MACHINE_OP_ACQUIRE:
    case MACHINE_OP_RENEW:
        right = ACL_ACQUIRE;
        break;
    case MACHINE_OP_BREAK:
        right = ACL_BREAK;
        break;
    case MACHINE_OP_TOKEN:
        right = ACL_TOKEN;
        break;
    case MACHINE_OP_SESSION_OPEN:
    case MACHINE_OP_SESSION_RENEW:
        return may_some(u, ACL_ACQUIRE) ? 0 : ACL_ACQUIRE;
    case MACHINE_OP_USER_SET:
    case MACHINE_OP_USER_DELETE:
    case MACHINE_OP_USERS_LOAD:
    case MACHINE_OP_USERS_SEAL:
        return may_some(u, ACL_ADMIN) ? 0 : ACL_ADMIN;
    default:
        return 0;
    }
    n = c->op == MACHINE_OP_ACQUIRE ? machine_command_names(c, names) : 1;
    names[0] = c->name;
    for (unsigned i = 0; i < n; i++) {
        if (!may(u, right, (char)names[i].data[0])) {
            return right;
        }
    }
    return 0;
}

void model_refuse(struct machine_result *r, unsigned right)
{
    r->code = MACHINE_NOPERM;
    r->number = right;
}

bool model_enter(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    m->asker = -1;
    m->by = 0;
    if (c->user == MACHINE_USER_NODE || !is_of_clients(c->op)) {
        return true;
    }
    m->asker = model_find_login(m, c->user);
    if (m->asker < 0) {
        r->code = MACHINE_NOAUTH;
        return false;
    }
    m->by = model_user_name(m, m->users[m->asker].uid);
    unsigned right = is_free(m) ? 0 : missing(m, c);
    if (right != 0) {
        model_refuse(r, right);
    }
    return right == 0;
}

uint32_t model_asker_uid(const struct model *m)
{
    return m->asker < 0 ? 0 : m->users[m->asker].uid;
}

/* ---- words ----------------------------------------------------------------------------------- */

enum verdict { RIGHT, WRONG, TOO_MANY };

static bool is(const char *word, const char *text)
{
    return strcmp(word, text) == 0;
}

static enum verdict take_right(struct model_rule *r, const char *word)
{
    static const char *const names[] = {"see", "acquire", "token", "break", "admin"};
    unsigned bits = is(word + 2, "all") ? ALL_RIGHTS : 0;
    for (unsigned i = 0; i < 5; i++) {
        bits |= is(word + 2, names[i]) ? 1u << i : 0;
    }
    if (bits == 0) {
        return WRONG;
    }
    if (word[0] == '+') {
        r->rights |= bits;
    } else {
        r->rights = (r->rights == ALL_RIGHTS ? LOCK_RIGHTS : r->rights) & ~bits;
    }
    return RIGHT;
}

static enum verdict take_pattern(struct model_rule *r, char pattern)
{
    if (pattern == '*') {
        *r = (struct model_rule){.all = true, .rights = r->rights};
        return RIGHT;
    }
    if (r->all) {
        return WRONG;
    }
    if (strchr(r->names, pattern) == NULL) {
        r->names[strlen(r->names)] = pattern;
    }
    return RIGHT;
}

/* Hashes are told apart by their last digit. */
static enum verdict take_hash(struct model_user *u, const char *word)
{
    char digit = word[strlen(word) - 1];
    char *known = strchr(u->passwords, digit);
    if (word[0] == '!') {
        if (known == NULL) {
            return WRONG;
        }
        memmove(known, known + 1, strlen(known));
    } else if (known == NULL) {
        u->passwords[strlen(u->passwords)] = digit;
        u->nopass = false;
    }
    return RIGHT;
}

static enum verdict take_word(struct model_user *u, struct model_rule *r, const char *word)
{
    if (word[0] == '~') {
        return take_pattern(r, word[1]);
    }
    if (word[0] == '+' || word[0] == '-') {
        return take_right(r, word);
    }
    if (strlen(word) > HASH_WORD_MIN) {
        return take_hash(u, word);
    }
    if (is(word, "on") || is(word, "off")) {
        u->on = word[1] == 'n';
    } else if (is(word, "nopass") || is(word, "resetpass")) {
        u->nopass = word[0] == 'n';
        memset(u->passwords, 0, sizeof u->passwords);
    } else if (is(word, "resetkeys")) {
        *r = (struct model_rule){.rights = r->rights};
    } else if (is(word, "clearselectors")) {
        memset(&u->rules[1], 0, sizeof u->rules - sizeof u->rules[0]);
        u->n_rules = 1;
    } else if (is(word, "reset")) {
        reset(u);
    } else {
        return WRONG;
    }
    return RIGHT;
}

/* "(WORD WORD)" is a selector. */
static enum verdict take_words(struct model_user *u, struct fli_slice words)
{
    char text[1024];
    char *rest = text;
    unsigned rule = 0;
    if (words.len >= sizeof text) {
        abort();
    }
    memcpy(text, words.data, words.len);
    text[words.len] = 0;
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        bool closes = false;
        if (word[0] == '(') {
            if (u->n_rules == MODEL_RULES_MAX) {
                return TOO_MANY;
            }
            rule = u->n_rules++;
            word++;
        }
        if (rule > 0 && word[strlen(word) - 1] == ')') {
            closes = true;
            word[strlen(word) - 1] = 0;
        }
        enum verdict v = word[0] == 0 ? RIGHT : take_word(u, &u->rules[rule], word);
        if (v != RIGHT) {
            return v;
        }
        rule = closes ? 0 : rule;
    }
    return RIGHT;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Whether somebody who is logged in might not get in any more. */
static bool locks_out(const struct model_user *a, const struct model_user *b)
{
    bool lost = (a->on && !b->on) || (a->nopass && !b->nopass);
    for (const char *p = a->passwords; *p != 0; p++) {
        lost = lost || strchr(b->passwords, *p) == NULL;
    }
    return lost;
}

static void replace(struct model *m, unsigned i, struct model_user u)
{
    u.uid = m->users[i].uid;
    u.login = m->users[i].login + locks_out(&m->users[i], &u);
    m->users[i] = u;
}

static void insert(struct model *m, struct model_user u)
{
    if (m->n_users == MODEL_USERS) {
        abort();
    }
    u.uid = ++m->last_uid;
    u.login = 1;
    m->users[m->n_users++] = u;
}

static void drop(struct model *m, unsigned i)
{
    if (m->asker == (int)i) {
        m->asker = -1;
        m->by = 0;
    }
    m->asker -= m->asker > (int)i;
    m->n_users--;
    memmove(&m->users[i], &m->users[i + 1], (m->n_users - i) * sizeof m->users[0]);
}

/* Whether this one, as it would be, could change users. The asker counts without a password too,
 * if its login stays: it has come in somehow. */
static bool administers(const struct model *m, int i, const struct model_user *after)
{
    bool comes_in = after->nopass || after->passwords[0] != 0 ||
                    (i >= 0 && i == m->asker && !locks_out(&m->users[i], after));
    return after->on && may_some(after, ACL_ADMIN) && comes_in;
}

/* Whether another than `i` could. */
static bool another_administers(const struct model *m, int i)
{
    bool any = m->asker < 0;
    for (int k = 0; k < (int)m->n_users; k++) {
        any = any || (k != i && administers(m, k, &m->users[k]));
    }
    return any;
}

static void tell(struct model *m, char name, enum machine_reason reason)
{
    model_tell(m, (struct model_event){.type = MACHINE_EVENT_USER_CHANGED,
                                       .reason = (uint8_t)reason,
                                       .owner = name});
}

static char name_of(struct fli_slice name)
{
    return (char)name.data[0];
}

static void set(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    bool initial = (c->flags & MACHINE_USER_INITIAL) != 0;
    int i = find_name(m, name_of(c->owner));
    struct model_user u = {.name = name_of(c->owner), .n_rules = 1};
    if (initial && m->sealed) {
        r->code = MACHINE_EXISTS;
        return;
    }
    u = i < 0 ? u : m->users[i];
    enum verdict v = take_words(&u, c->words);
    if (v == TOO_MANY) {
        model_answer_limit(m, r, MACHINE_LIMIT_USERS);
        return;
    }
    r->code = v == WRONG ? MACHINE_WRONG : MACHINE_DONE;
    if (v == WRONG) {
        return;
    }
    if (i >= 0 && !administers(m, i, &u) && !another_administers(m, i)) {
        r->code = MACHINE_NOADMIN;
        return;
    }
    m->sealed = m->sealed || !initial;
    if (i < 0) {
        insert(m, u);
    } else {
        replace(m, (unsigned)i, u);
    }
    tell(m, u.name, MACHINE_REASON_NONE);
    model_recheck(m);
}

static void delete (struct model *m, const struct machine_command *c, struct machine_result *r)
{
    int i = find_name(m, name_of(c->owner));
    r->code = i < 0                        ? MACHINE_NO
              : i == 0                     ? MACHINE_WRONG
              : !another_administers(m, i) ? MACHINE_NOADMIN
                                           : MACHINE_DONE;
    if (r->code == MACHINE_DONE) {
        m->sealed = true;
        drop(m, (unsigned)i);
        tell(m, name_of(c->owner), MACHINE_REASON_CLOSE);
        model_recheck(m);
    }
}

/* ---- all at once ----------------------------------------------------------------------------- */

/* A record as acl.h describes it. */
static const uint8_t *read_record(const uint8_t *p, struct model_user *u)
{
    *u = (struct model_user){.on = (p[0] & 1) != 0, .nopass = (p[0] & 2) != 0};
    u->name = (char)p[2];
    p += 2 + p[1];
    unsigned n = *p++;
    for (unsigned i = 0; i < n; i++, p += 3 + ACL_SALT_SIZE + ACL_KEY_SIZE) {
        u->passwords[i] = (char)('0' + (p[3 + ACL_SALT_SIZE + ACL_KEY_SIZE - 1] & 15));
    }
    u->n_rules = *p++;
    for (unsigned i = 0; i < u->n_rules; i++, p += 2) {
        u->rules[i].rights = p[0];
        u->rules[i].all = p[1] != 0;
    }
    const uint8_t *end = p + 2 + p[0] + (size_t)p[1] * 256;
    for (p += 2; p < end; p += 2 + p[1]) {
        char *names = u->rules[p[0]].names;
        names[strlen(names)] = (char)p[2];
    }
    return p;
}

static bool is_equal(const struct model_user *a, const struct model_user *b)
{
    bool same = a->on == b->on && a->nopass == b->nopass && a->n_rules == b->n_rules &&
                is(a->passwords, b->passwords);
    for (unsigned i = 0; i < a->n_rules && same; i++) {
        same = a->rules[i].rights == b->rules[i].rights && a->rules[i].all == b->rules[i].all &&
               is(a->rules[i].names, b->rules[i].names);
    }
    return same;
}

static bool list_administers(const struct model *m, const struct model_user *all, unsigned n)
{
    bool any = m->asker < 0;
    bool has_default = false;
    for (unsigned i = 0; i < n; i++) {
        any = any || administers(m, find_name(m, all[i].name), &all[i]);
        has_default = has_default || all[i].name == m->users[0].name;
    }
    return any || (!has_default && administers(m, 0, &m->users[0]));
}

static void load(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    struct model_user all[MODEL_USERS];
    bool named[MODEL_USERS] = {true}; /* of those there were; the default one stays */
    unsigned n = 0;
    const uint8_t *p = c->value.data;
    if ((c->flags & MACHINE_USER_INITIAL) != 0 && m->sealed) {
        r->code = MACHINE_EXISTS;
        return;
    }
    for (; p < c->value.data + c->value.len; n++) {
        p = read_record(p, &all[n]);
    }
    if (!list_administers(m, all, n)) {
        r->code = MACHINE_NOADMIN;
        return;
    }
    r->code = MACHINE_DONE;
    m->sealed = true;
    for (unsigned k = 0; k < m->n_users; k++) {
        for (unsigned i = 0; i < n; i++) {
            if (all[i].name != m->users[k].name) {
                continue;
            }
            named[k] = true;
            if (!is_equal(&all[i], &m->users[k])) {
                replace(m, k, all[i]);
                tell(m, all[i].name, MACHINE_REASON_NONE);
            }
            all[i].name = 0;
        }
    }
    unsigned before = m->n_users;
    for (unsigned i = 0; i < n; i++) {
        if (all[i].name != 0) {
            insert(m, all[i]);
            tell(m, all[i].name, MACHINE_REASON_NONE);
        }
    }
    for (unsigned k = 0; k < before; k++) {
        if (!named[k]) {
            tell(m, m->users[k].name, MACHINE_REASON_CLOSE);
        }
    }
    for (unsigned k = before; k > 0; k--) {
        if (!named[k - 1]) {
            drop(m, k - 1);
        }
    }
    model_recheck(m);
}

void model_users_apply(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    switch (c->op) {
    case MACHINE_OP_USER_SET:
        set(m, c, r);
        break;
    case MACHINE_OP_USER_DELETE:
        delete (m, c, r);
        break;
    case MACHINE_OP_USERS_LOAD:
        load(m, c, r);
        break;
    default:
        m->sealed = true;
        r->code = MACHINE_DONE;
        break;
    }
}
