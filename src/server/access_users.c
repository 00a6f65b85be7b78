/* access_users.c: the ACL commands, and the users of a new cluster.
 *
 *   SETUSER   passwords into hashes (worker) -> USER_SET
 *   DELUSER   USER_DELETE for each name
 *   GETUSER LIST USERS SAVE   USERS (a query) -> answer, or file (worker)
 *   LOAD      file (worker) -> USERS_LOAD, with all users of the file
 *
 * The commands of one request are handed over together, so they are one batch of the log unless
 * they are too many for that; each by itself is one change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/access_private.h"
#include "server/render.h"
#include "wire/resp.h"

#define LIST_MAX ((size_t)512 << 10)

static struct fli_slice slice_of(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

static struct fli_slice text_of(const struct access_call *c)
{
    return (struct fli_slice){c->text.data, c->text.len};
}

/* A command of this call, with the client as its sender. */
static struct machine_command asked(const struct access_call *c, unsigned op)
{
    return (struct machine_command){
        .op = (uint8_t)op, .user = c->login, .address = {c->address, c->address_len}};
}

static void end(struct access_call *c, const char *word, const char *text)
{
    access_error(c, word, text);
    access_free(c);
}

static void end_ok(struct access_call *c)
{
    struct net_request *r = access_detach(c);
    if (r != NULL) {
        access_finish(r, fli_resp_simple(net_reply(r), "OK"));
    }
    access_free(c);
}

static void end_failure(struct access_call *c, int status)
{
    (void)access_answer_refusal(c, status, NULL);
    access_free(c);
}

static void work(struct access_call *c, struct auth_worker *worker,
                 void (*begin)(struct auth_job *), void (*done)(struct auth_job *))
{
    c->job.work = begin;
    c->job.done = done;
    if (worker == NULL || auth_worker_submit(worker, &c->job) != 0) {
        end_failure(c, FL_EBUSY);
    }
}

/* ---- several commands ------------------------------------------------------------------------ */

/* Those that DELUSER names before the refused one are deleted. */
static void refuse_last(struct access_call *c)
{
    char deleted[64] = "";
    char text[400];
    if (c->parts_done > 0) {
        (void)snprintf(deleted, sizeof deleted, " (%u other%s deleted)", c->parts_done,
                       c->parts_done == 1 ? " was" : "s were");
    }
    (void)snprintf(text, sizeof text,
                   "nobody who can log in would have @admin, and nobody could undo that: give "
                   "another user +@admin and a password first%s",
                   deleted);
    end(c, "ERR", text);
}

static void end_parts(struct access_call *c)
{
    if (c->status != 0 || c->result.code == MACHINE_NOPERM || c->result.code == MACHINE_NOAUTH ||
        c->result.code == MACHINE_LIMIT) {
        (void)access_answer_refusal(c, c->status, &c->result);
        access_free(c);
    } else if (c->result.code == MACHINE_WRONG) {
        end(c, "ERR", "the words do not fit the user as it is now; look at it with ACL GETUSER");
    } else if (c->result.code == MACHINE_NOADMIN) {
        refuse_last(c);
    } else if (c->id == FLI_CMD_ACL_DELUSER) {
        struct net_request *r = access_detach(c);
        if (r != NULL) {
            access_finish(r, fli_resp_int(net_reply(r), c->parts_done));
        }
        access_free(c);
    } else {
        end_ok(c);
    }
}

/* The first unexpected result becomes that of the call. */
static void merge_part_result(struct access_call *c, int status,
                              const struct machine_result *result)
{
    c->parts_done += status == 0 && result->code == MACHINE_DONE;
    if (status != 0 && c->status == 0) {
        c->status = status;
    } else if (status == 0 && c->result.code == 0 && result->code != MACHINE_DONE &&
               result->code != MACHINE_NO && result->code != MACHINE_EXISTS) {
        c->result = *result;
    }
}

static void part_back(struct access_call *c)
{
    FLI_ASSERT(c->parts_left > 0);
    if (--c->parts_left > 0) {
        return;
    }
    if (c->access->initial == c) {
        c->access->initial = NULL;
        access_free(c);
    } else {
        end_parts(c);
    }
}

static void on_part(struct node_ticket *t, int status, const struct machine_result *result,
                    struct fli_slice payload)
{
    struct access_call *c = FLI_CONTAINER_OF(t, struct access_part, ticket)->call;
    merge_part_result(c, status, result);
    part_back(c);
}

/* Makes room for n commands. One more counts as open until send_end(), so that the call does not
 * end while commands are still being sent. */
static bool send_begin(struct access_call *c, unsigned n)
{
    c->parts = calloc(n, sizeof *c->parts);
    c->n_parts = n;
    c->parts_left = c->parts != NULL;
    return c->parts != NULL;
}

static void send_part(struct access_call *c, struct machine_command *m)
{
    FLI_ASSERT(c->n_parts > 0);
    struct access_part *part = &c->parts[--c->n_parts];
    part->call = c;
    c->parts_left++;
    int rc = access_submit(c->access, m, &part->ticket, on_part);
    if (rc != 0) {
        struct machine_result none = {.code = 0};
        merge_part_result(c, rc, &none);
        c->parts_left--;
    }
}

static void send_end(struct access_call *c)
{
    part_back(c);
}

/* ---- SETUSER, DELUSER ------------------------------------------------------------------------ */

static bool copy_args(struct access_call *c, const struct fli_slice *args, unsigned n)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        bytes += args[i].len;
    }
    c->args = malloc(n * sizeof *c->args + bytes + 1);
    if (c->args == NULL) {
        return false;
    }
    uint8_t *p = (uint8_t *)(c->args + n);
    for (unsigned i = 0; i < n; i++) {
        memcpy(p, args[i].data, args[i].len);
        c->args[i] = (struct fli_slice){p, args[i].len};
        p += args[i].len;
    }
    c->n_args = n;
    return true;
}

/* Finds mistakes in the words by applying them to the user's last known record. If the user has
 * changed meanwhile and the words are wrong now, the machine refuses them. */
static void work_words(struct auth_job *job)
{
    struct access_call *c = FLI_CONTAINER_OF(job, struct access_call, job);
    const struct acl_user *known = c->found ? &c->acl : NULL;
    struct acl_user tried;
    c->worked = true;
    c->text.max = ACL_TEXT_MAX;
    c->status = auth_words(c->args, c->n_args, known, &c->text, c->error, sizeof c->error);
    for (unsigned i = 0; i < c->n_args; i++) { /* passwords in clear */
        explicit_bzero((void *)(uintptr_t)c->args[i].data, c->args[i].len);
    }
    if (c->status == 0) {
        if (known != NULL) {
            tried = *known;
        } else {
            acl_user_init(&tried, slice_of(c->user));
        }
        c->status = acl_apply(&tried, text_of(c), ACL_LOCK_RIGHTS, c->error, sizeof c->error);
    }
}

static void done_words(struct auth_job *job)
{
    struct access_call *c = FLI_CONTAINER_OF(job, struct access_call, job);
    if (!c->worked) {
        end_failure(c, FL_EBUSY);
        return;
    }
    if (c->status != 0) {
        char text[600];
        (void)snprintf(text, sizeof text, "ACL SETUSER: %s", c->error);
        end(c, "ERR", text);
        return;
    }
    struct machine_command m = asked(c, MACHINE_OP_USER_SET);
    m.owner = slice_of(c->user);
    m.words = text_of(c);
    if (!send_begin(c, 1)) {
        end_failure(c, FL_ENOMEM);
        return;
    }
    send_part(c, &m);
    send_end(c);
}

/* Refuses a call early, before it costs anything; the machine checks again. True: it was
 * answered. */
static bool refuse_early(struct access_call *c)
{
    const struct machine *m = access_machine(c->access);
    if (m == NULL || machine_may(m, c->login, ACL_ADMIN, NULL)) {
        return false;
    }
    struct machine_result r = {.code = MACHINE_NOPERM, .number = ACL_ADMIN};
    r.code = machine_may(m, c->login, 0, NULL) ? r.code : MACHINE_NOAUTH;
    (void)access_answer_refusal(c, 0, &r);
    access_free(c);
    return true;
}

static void set_user(struct access_call *c, const struct fli_slice *args, unsigned n)
{
    if (refuse_early(c)) {
        return;
    }
    if (!acl_name_ok(args[0])) {
        end(c, "ERR", "ACL SETUSER: a user's name has 1 to 64 visible characters");
        return;
    }
    memcpy(c->user, args[0].data, args[0].len);
    c->found = access_local_user(c->access, c->user, &c->acl);
    if (!copy_args(c, args + 1, n - 1)) {
        end_failure(c, FL_ENOMEM);
        return;
    }
    work(c, c->access->worker, work_words, done_words);
}

static void delete_users(struct access_call *c, const struct fli_slice *args, unsigned n)
{
    if (refuse_early(c)) {
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        if (fli_bytes_cmp(args[i].data, args[i].len, "default", 7) == 0) {
            end(c, "ERR",
                "the user 'default' cannot be deleted: switch it off (ACL SETUSER default off)");
            return;
        }
    }
    if (!send_begin(c, n)) {
        end_failure(c, FL_ENOMEM);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        struct machine_command m = asked(c, MACHINE_OP_USER_DELETE);
        m.owner = args[i];
        if (acl_name_ok(args[i])) {
            send_part(c, &m);
        }
    }
    send_end(c);
}

/* ---- answers from the list of all users ------------------------------------------------------ */

static int put_line(struct fli_buf *out, const struct acl_user *u)
{
    int rc = fli_buf_printf(out, "user %.*s ", u->name_len, (const char *)u->name);
    return rc != 0 ? rc : acl_print(u, out);
}

static unsigned count_users(struct fli_slice payload)
{
    struct acl_user u;
    uint64_t login = 0;
    unsigned n = 0;
    while (machine_users_next(&payload, &login, &u) == 1) {
        n++;
    }
    return n;
}

static int render_list(struct fli_buf *b, enum fli_command_id id, struct fli_slice payload)
{
    struct acl_user u;
    struct fli_buf line;
    uint64_t login = 0;
    int rc = fli_resp_array(b, count_users(payload));
    fli_buf_init(&line, LIST_MAX);
    while (rc == 0 && machine_users_next(&payload, &login, &u) == 1) {
        fli_buf_clear(&line);
        rc = id == FLI_CMD_ACL_USERS ? fli_buf_append(&line, u.name, u.name_len)
                                     : put_line(&line, &u);
        rc = rc != 0 ? rc : fli_resp_bulk(b, line.data, line.len);
    }
    fli_buf_fini(&line);
    return rc;
}

static int put_text(struct fli_buf *b, const char *key, const struct fli_buf *text)
{
    int rc = fli_resp_text(b, key);
    return rc != 0 ? rc : fli_resp_bulk(b, text->data, text->len);
}

/* Renders a rule under Redis' names: commands, keys, channels. */
static int render_rule(struct fli_buf *b, const struct acl_user *u, unsigned rule)
{
    struct fli_buf text;
    fli_buf_init(&text, LIST_MAX);
    int rc = acl_print_rights(u, rule, &text);
    rc = rc != 0 ? rc : put_text(b, "commands", &text);
    fli_buf_clear(&text);
    rc = rc != 0 ? rc : acl_print_names(u, rule, &text);
    rc = rc != 0 ? rc : put_text(b, "keys", &text);
    fli_buf_clear(&text);
    rc = rc != 0 ? rc : put_text(b, "channels", &text);
    fli_buf_fini(&text);
    return rc;
}

static int render_flags(struct fli_buf *b, const struct acl_user *u)
{
    int rc = fli_resp_text(b, "flags");
    rc = rc != 0 ? rc : fli_resp_array(b, u->nopass ? 2 : 1);
    rc = rc != 0 ? rc : fli_resp_text(b, u->on ? "on" : "off");
    return rc != 0 || !u->nopass ? rc : fli_resp_text(b, "nopass");
}

static int render_user(struct fli_buf *b, int proto, const struct acl_user *u)
{
    struct fli_buf hash;
    int rc = fli_resp_map(b, proto, 6);
    rc = rc != 0 ? rc : render_flags(b, u);
    rc = rc != 0 ? rc : fli_resp_text(b, "passwords");
    rc = rc != 0 ? rc : fli_resp_array(b, u->n_passwords);
    fli_buf_init(&hash, 256);
    for (unsigned i = 0; i < u->n_passwords && rc == 0; i++) {
        fli_buf_clear(&hash);
        rc = acl_print_hash(&u->passwords[i], &hash);
        rc = rc != 0 ? rc : fli_resp_bulk(b, hash.data, hash.len);
    }
    fli_buf_fini(&hash);
    rc = rc != 0 ? rc : render_rule(b, u, 0);
    rc = rc != 0 ? rc : fli_resp_text(b, "selectors");
    rc = rc != 0 ? rc : fli_resp_array(b, u->n_rules - 1u);
    for (unsigned i = 1; i < u->n_rules && rc == 0; i++) {
        rc = fli_resp_map(b, proto, 3);
        rc = rc != 0 ? rc : render_rule(b, u, i);
    }
    return rc;
}

static int render_get(struct fli_buf *b, int proto, const char *name, struct fli_slice payload)
{
    struct acl_user u;
    uint64_t login = 0;
    while (machine_users_next(&payload, &login, &u) == 1) {
        if (u.name_len == strlen(name) && memcmp(u.name, name, u.name_len) == 0) {
            return render_user(b, proto, &u);
        }
    }
    return fli_resp_null(b, proto);
}

/* A node does not start with a file that it cannot read, so none such replaces the one there is. */
static void work_save(struct auth_job *job)
{
    struct access_call *c = FLI_CONTAINER_OF(job, struct access_call, job);
    const char *path = c->access->config.config->aclfile;
    struct aclfile unused;
    c->worked = true;
    c->status =
        aclfile_parse(path, text_of(c), ACL_LOCK_RIGHTS, &unused, c->error, sizeof c->error);
    aclfile_free(&unused);
    if (c->status == 0) {
        c->status = aclfile_write(path, text_of(c), c->error, sizeof c->error);
    }
}

/* False: the file could not be read or written, and the call was answered. */
static bool file_work_done(struct access_call *c)
{
    if (!c->worked) {
        end_failure(c, FL_EBUSY);
    } else if (c->status != 0) {
        end(c, "ERR", c->error);
    } else {
        return true;
    }
    return false;
}

static void done_save(struct auth_job *job)
{
    struct access_call *c = FLI_CONTAINER_OF(job, struct access_call, job);
    if (file_work_done(c)) {
        end_ok(c);
    }
}

static void save(struct access_call *c, struct fli_slice payload)
{
    struct acl_user u;
    uint64_t login = 0;
    int rc = 0;
    while (rc == 0 && machine_users_next(&payload, &login, &u) == 1) {
        rc = put_line(&c->text, &u);
        rc = rc != 0 ? rc : fli_buf_append(&c->text, "\n", 1);
    }
    if (rc != 0) {
        end_failure(c, rc);
    } else {
        work(c, c->access->files, work_save, done_save);
    }
}

static void answer_users(struct access_call *c, struct fli_slice payload)
{
    struct net_request *r = access_detach(c);
    if (r != NULL) {
        struct fli_buf *b = net_reply(r);
        access_finish(r, c->id == FLI_CMD_ACL_GETUSER ? render_get(b, c->proto, c->user, payload)
                                                      : render_list(b, c->id, payload));
    }
    access_free(c);
}

static void on_users(struct node_ticket *t, int status, const struct machine_result *result,
                     struct fli_slice payload)
{
    struct access_call *c = FLI_CONTAINER_OF(t, struct access_call, ticket);
    if (access_answer_refusal(c, status, result)) {
        access_free(c);
    } else if (c->id == FLI_CMD_ACL_SAVE) {
        save(c, payload);
    } else {
        answer_users(c, payload);
    }
}

static void ask_users(struct access_call *c)
{
    struct machine_command q = asked(c, MACHINE_OP_USERS);
    int rc = access_submit(c->access, &q, &c->ticket, on_users);
    if (rc != 0) {
        end_failure(c, rc);
    }
}

/* ---- LOAD ------------------------------------------------------------------------------------ */

static void work_load(struct auth_job *job)
{
    struct access_call *c = FLI_CONTAINER_OF(job, struct access_call, job);
    struct aclfile file;
    c->worked = true;
    c->status = aclfile_read(c->access->config.config->aclfile, ACL_LOCK_RIGHTS, &file, c->error,
                             sizeof c->error);
    if (c->status == 0 && file.n == 0) {
        (void)snprintf(c->error, sizeof c->error,
                       "the file of users names none, and may have been cut off: write a line for "
                       "each user that is to stay");
        c->status = FL_EINVAL;
    } else if (c->status == 0 && aclfile_pack(&file, &c->text) != 0) {
        (void)snprintf(c->error, sizeof c->error, "out of memory");
        c->status = FL_ENOMEM;
    }
    aclfile_free(&file);
}

/* Sends all users of a file as one command, so that either all of them apply or none. */
static void send_users(struct access_call *c, struct fli_slice users, struct machine_command m)
{
    if (send_begin(c, 1)) {
        m.value = users;
        send_part(c, &m);
        send_end(c);
    } else if (c->access->initial == c) {
        c->access->initial = NULL;
        access_free(c);
    } else {
        end_failure(c, FL_ENOMEM);
    }
}

static void done_load(struct auth_job *job)
{
    struct access_call *c = FLI_CONTAINER_OF(job, struct access_call, job);
    if (file_work_done(c)) {
        send_users(c, text_of(c), asked(c, MACHINE_OP_USERS_LOAD));
    }
}

/* ---- the users of a new cluster -------------------------------------------------------------- */

void access_initial(struct access *a)
{
    const struct machine *m = access_machine(a);
    struct node_status s;
    if (!a->needs_users || a->initial != NULL || a->stopping || fli_clock_ms() < a->initial_ms) {
        return;
    }
    if (m != NULL && machine_cluster_id(m) != 0 && !machine_users_are_new(m)) {
        a->needs_users = false;
        return;
    }
    a->initial_ms = fli_clock_ms() + ACCESS_AGAIN_MS;
    a->config.node.status(a->config.node.ctx, &s);
    struct access_call *c = s.role != NODE_LEADER ? NULL : access_take(a, NULL, FLI_CMD_ACL_LOAD);
    if (c == NULL) {
        return;
    }
    a->initial = c;
    send_users(c, (struct fli_slice){a->users.data, a->users.len},
               (struct machine_command){.op = MACHINE_OP_USERS_LOAD,
                                        .flags = MACHINE_USER_INITIAL,
                                        .user = MACHINE_USER_NODE});
}

/* ---- CAT ------------------------------------------------------------------------------------- */

#define KNOWN_MAX 12u /* the most commands that need one right */

static int render_cat(struct fli_buf *b, const struct fli_slice *args, unsigned n)
{
    static const struct {
        unsigned right;
        const char *commands[KNOWN_MAX];
    } known[] = {
        {ACL_SEE, {"show", "locks", "check", "subscribe", "psubscribe"}},
        {ACL_ACQUIRE, {"acquire", "renew", "session|open", "session|renew"}},
        {ACL_TOKEN, {"token"}},
        {ACL_BREAK, {"break"}},
        {ACL_ADMIN,
         {"acl", "cluster|add", "cluster|backup", "cluster|config", "cluster|move",
          "cluster|remove", "cluster|replace", "cluster|transfer", "client|list"}},
    };
    size_t rights = sizeof known / sizeof known[0];
    int rc = n > 0 ? 0 : fli_resp_array(b, rights);
    for (size_t i = 0; i < rights && rc == 0; i++) {
        if (n == 0) {
            rc = fli_resp_text(b, acl_right_name(known[i].right));
        } else if (acl_right_of(args[0]) == known[i].right) {
            unsigned len = 0;
            while (len < KNOWN_MAX && known[i].commands[len] != NULL) {
                len++;
            }
            rc = fli_resp_array(b, len);
            for (unsigned k = 0; k < len && rc == 0; k++) {
                rc = fli_resp_text(b, known[i].commands[k]);
            }
            return rc;
        }
    }
    return n == 0 || rc != 0 ? rc
                             : fli_resp_error(b, "ERR",
                                              "ACL CAT: there is no such right; ACL CAT "
                                              "lists them");
}

/* ---- all of them ----------------------------------------------------------------------------- */

static bool needs_file(struct access_call *c)
{
    if (c->access->config.config->aclfile[0] != '\0') {
        return true;
    }
    end(c, "ERR",
        "this node has no file of users: start it with --aclfile FILE. (Users are kept by the "
        "cluster all the same.)");
    return false;
}

void access_users_command(struct access_call *c, const struct fli_slice *args, unsigned n)
{
    switch (c->id) {
    case FLI_CMD_ACL_SETUSER:
        set_user(c, args, n);
        break;
    case FLI_CMD_ACL_DELUSER:
        delete_users(c, args, n);
        break;
    case FLI_CMD_ACL_CAT: {
        struct net_request *r = access_detach(c);
        access_finish(r, render_cat(net_reply(r), args, n));
        access_free(c);
        break;
    }
    case FLI_CMD_ACL_LOAD:
        if (!refuse_early(c) && needs_file(c)) {
            work(c, c->access->files, work_load, done_load);
        }
        break;
    case FLI_CMD_ACL_SAVE:
        if (!refuse_early(c) && needs_file(c)) {
            ask_users(c);
        }
        break;
    case FLI_CMD_ACL_GETUSER:
        (void)snprintf(c->user, sizeof c->user, "%.*s", (int)(args[0].len < 65 ? args[0].len : 0),
                       (const char *)args[0].data);
        ask_users(c);
        break;
    default:
        FLI_ASSERT(c->id == FLI_CMD_ACL_LIST || c->id == FLI_CMD_ACL_USERS);
        ask_users(c);
        break;
    }
}
