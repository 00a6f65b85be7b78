/* commands.c: the rows, and the lookup of a request's row.
 *
 * Rows are sorted by name and then by subcommand (none first), so a lookup is a binary search of
 * six steps. COMMAND, the error messages and docs/COMMANDS.md take their texts from the rows. */
#include "wire/commands.h"

#include <stdio.h>
#include <string.h>

#include "wire/text.h"

#define WORD_MAX 24u /* longer than every name, subcommand and sensible typing error */

#define BOTH (FLI_CMD_LOCK | FLI_CMD_STORE)
#define CONN (BOTH | FLI_CMD_LOCAL | FLI_CMD_CONNECTION)
#define LOCK_WRITE (FLI_CMD_LOCK | FLI_CMD_WRITE)
#define LOCK_QUERY (FLI_CMD_LOCK | FLI_CMD_QUERY)
#define FRONTDOOR_WRITE (LOCK_WRITE | FLI_CMD_FRONTDOOR)
#define FRONTDOOR_QUERY (LOCK_QUERY | FLI_CMD_FRONTDOOR)
#define FRONTDOOR_LOCAL (FLI_CMD_LOCK | FLI_CMD_LOCAL | FLI_CMD_FRONTDOOR)
#define PUBSUB (FLI_CMD_LOCK | FLI_CMD_LOCAL | FLI_CMD_CONNECTION)
#define CLUSTER (FLI_CMD_LOCK | FLI_CMD_LOCAL | FLI_CMD_ADMIN)

_Static_assert((unsigned)FLI_CMD_LOCK == FLI_SERVICE_LOCK, "a service is a flag");
_Static_assert((unsigned)FLI_CMD_STORE == FLI_SERVICE_STORE, "a service is a flag");

const struct fli_command fli_commands[] = {
    {FLI_CMD_ACL_CAT, "ACL", "CAT", 0, 1, FLI_CMD_LOCK | FLI_CMD_LOCAL, "[right]",
     "an array of rights, or of commands", "Lists the rights, or the commands that need one."},
    {FLI_CMD_ACL_DELUSER, "ACL", "DELUSER", 1, -1, LOCK_WRITE | FLI_CMD_ADMIN, "user [user ...]",
     "how many there were (integer)",
     "Deletes users; their connections can do nothing more, their locks end with their leases."},
    {FLI_CMD_ACL_GETUSER, "ACL", "GETUSER", 1, 1, LOCK_QUERY | FLI_CMD_ADMIN, "user",
     "a map, or nil when there is no such user", "Describes one user."},
    {FLI_CMD_ACL_LIST, "ACL", "LIST", 0, 0, LOCK_QUERY | FLI_CMD_ADMIN, "",
     "an array of lines as in a file of users", "Lists the users with all their words."},
    {FLI_CMD_ACL_LOAD, "ACL", "LOAD", 0, 0, LOCK_WRITE | FLI_CMD_ADMIN, "", "OK",
     "Replaces the users by those in this node's file of users, as one change."},
    {FLI_CMD_ACL_SAVE, "ACL", "SAVE", 0, 0, LOCK_QUERY | FLI_CMD_ADMIN, "", "OK",
     "Writes the users to this node's file of users."},
    {FLI_CMD_ACL_SETUSER, "ACL", "SETUSER", 1, -1, LOCK_WRITE | FLI_CMD_ADMIN, "user [word ...]",
     "OK",
     "Creates or changes a user by words as in Redis: on, off, >password, ~pattern, +@right, "
     "-@right..."},
    {FLI_CMD_ACL_USERS, "ACL", "USERS", 0, 0, LOCK_QUERY | FLI_CMD_ADMIN, "", "an array of names",
     "Lists the names of the users."},
    {FLI_CMD_ACL_WHOAMI, "ACL", "WHOAMI", 0, 0, FLI_CMD_LOCK | FLI_CMD_LOCAL, "", "a name",
     "Names the user of this connection."},
    {FLI_CMD_ACQUIRE, "ACQUIRE", NULL, 1, -1, LOCK_WRITE,
     "name [TTL ms | SESSION owner] [OWNER id] [WAIT ms] [VALUE bytes] [ALSO name]... "
     "[MODE SHARED | PERMITS n] [ATTEMPT n]",
     "the token (integer); nil when others hold the lock or wait for it (with WAIT: when they "
     "still do at the end of the wait)",
     "Takes the lock alone, with other readers (MODE SHARED), as one of n holders (PERMITS), or "
     "together with others (ALSO), all or none. An owner that holds it already gets the same token "
     "again. A client that repeats the request numbers its attempts (ATTEMPT). An attempt that "
     "arrives after a later one is refused (LATE)."},
    {FLI_CMD_AUTH, "AUTH", NULL, 1, 2, CONN, "[user] password", "OK",
     "Logs the connection in as a user (by default as the user `default`), until it ends."},
    {FLI_CMD_BLPOP, "BLPOP", NULL, 2, -1, FRONTDOOR_QUERY, "lock-signal:X seconds",
     "an array of the key and 1, or nil when the time is over",
     "Waits until the lock lock:X may be free, as python-redis-lock does. Only for keys of that "
     "form."},
    {FLI_CMD_BREAK, "BREAK", NULL, 1, 1, LOCK_WRITE | FLI_CMD_ADMIN, "name",
     "the token burnt (integer) when the lock was held or delayed, otherwise 0",
     "Takes the lock away from its holders, or ends its delay, and burns a token, larger than "
     "theirs and smaller than any granted next. A storage that claims with it refuses the broken "
     "holders; until then, or the next holder's claim, they can still write."},
    {FLI_CMD_CHECK, "CHECK", NULL, 2, 2, LOCK_QUERY, "name token", "1 or 0",
     "Says whether the lock is held under exactly this token."},
    {FLI_CMD_CLAIM, "CLAIM", NULL, 2, 2, FLI_CMD_STORE | FLI_CMD_WRITE, "lock token", "OK",
     "Raises the mark of the lock without writing, so that older tokens are refused from here on."},
    {FLI_CMD_CLIENT_GETNAME, "CLIENT", "GETNAME", 0, 0, CONN, "",
     "the name, or nil when none was set", "Gives the name of this connection."},
    {FLI_CMD_CLIENT_ID, "CLIENT", "ID", 0, 0, CONN, "", "integer",
     "Gives the number of this connection on this node."},
    {FLI_CMD_CLIENT_INFO, "CLIENT", "INFO", 0, 0, CONN, "", "one line of field=value",
     "Describes this connection."},
    {FLI_CMD_CLIENT_LIST, "CLIENT", "LIST", 0, 0, CONN | FLI_CMD_ADMIN, "",
     "one line of field=value for each connection",
     "Describes the connections of this node, the oldest first, as many as fit into the answer."},
    {FLI_CMD_CLIENT_SETINFO, "CLIENT", "SETINFO", 2, 2, CONN, "attribute value", "OK",
     "Takes note of the name or version of the client's library; drivers send it by themselves."},
    {FLI_CMD_CLIENT_SETNAME, "CLIENT", "SETNAME", 1, 1, CONN, "name", "OK",
     "Names this connection, for CLIENT LIST; an empty name takes it away."},
    {FLI_CMD_CLIENT_TRACKING, "CLIENT", "TRACKING", 1, 2, CONN, "ON OPTIN | OFF", "OK",
     "Does nothing: no key is tracked until CLIENT CACHING asks for one, which is not served."},
    {FLI_CMD_CLUSTER_ADD, "CLUSTER", "ADD", 2, 3, CLUSTER, "id host:port [LEARNER]", "OK",
     "Makes a node a member: it is brought up to date, and then votes (a LEARNER never does). "
     "Sent to the leader; OK once the log has it, and the leader then carries it out."},
    {FLI_CMD_CLUSTER_BACKUP, "CLUSTER", "BACKUP", 0, 2, CLUSTER, "[id offset]",
     "without arguments the id of a new backup; otherwise the bytes at offset, nil while they are "
     "not ready, an empty string at its end",
     "Makes a backup of this node's state, one at a time, and gives it piece by piece."},
    {FLI_CMD_CLUSTER_CONFIG, "CLUSTER", "CONFIG", 1, 3, CLUSTER, "GET | SET name value",
     "GET: a map of name to value; SET: OK",
     "Shows or changes the limits of the cluster, and the times and log level of all nodes. No "
     "limit goes below what is in use. With the value default each node's own option applies."},
    {FLI_CMD_CLUSTER_INFO, "CLUSTER", "INFO", 0, 0, FLI_CMD_LOCK | FLI_CMD_LOCAL, "",
     "lines of field:value", "Tells how the cluster looks from this node."},
    {FLI_CMD_CLUSTER_MEMBERS, "CLUSTER", "MEMBERS", 0, 0, FLI_CMD_LOCK | FLI_CMD_LOCAL, "",
     "an array of one map a node",
     "Lists the nodes with their addresses and roles as this node knows them."},
    {FLI_CMD_CLUSTER_MOVE, "CLUSTER", "MOVE", 2, 3, CLUSTER, "id host:port [FORCE]", "OK",
     "Gives a member another address for the other nodes, at which it is started next. Sent to "
     "the leader. FORCE: also when the others cannot decide without it until then."},
    {FLI_CMD_CLUSTER_REMOVE, "CLUSTER", "REMOVE", 1, 2, CLUSTER, "id [FORCE]", "OK",
     "Removes a member, or cancels an ADD that is not done. Sent to the leader; a leader that is "
     "to "
     "be removed hands leadership over first. FORCE: also when the others have no majority."},
    {FLI_CMD_CLUSTER_REPLACE, "CLUSTER", "REPLACE", 1, 5, CLUSTER,
     "id [host:port] [OF incarnation] [FORCE]", "OK",
     "Puts a node with an empty data directory in the place of a member, at its address or another "
     "one. The member's old data directory must not be used again. Sent to the leader. A member "
     "that is connected is replaced only at another address. OF: only that incarnation (CLUSTER "
     "MEMBERS), so that it can be asked again."},
    {FLI_CMD_CLUSTER_TRANSFER, "CLUSTER", "TRANSFER", 0, 1, CLUSTER, "[id]", "OK",
     "Asks the leader to hand leadership to node id, by default the most advanced of the others."},
    {FLI_CMD_COMMAND, "COMMAND", NULL, 0, 0, CONN, "",
     "an array of one entry a command, as Redis gives it", "Describes the commands for programs."},
    {FLI_CMD_COMMAND_COUNT, "COMMAND", "COUNT", 0, 0, CONN, "", "integer", "Counts the commands."},
    {FLI_CMD_COMMAND_DOCS, "COMMAND", "DOCS", 0, -1, CONN, "[command ...]",
     "a map of one entry a command", "Describes commands for people, all of them by default."},
    {FLI_CMD_COMMAND_INFO, "COMMAND", "INFO", 0, -1, CONN, "[command ...]",
     "an array of one entry, or nil, a command",
     "Describes some commands for programs, all of them by default."},
    {FLI_CMD_COMMAND_LIST, "COMMAND", "LIST", 0, 0, CONN, "", "an array of names",
     "Lists the names of the commands."},
    {FLI_CMD_KEY_DEL, "DEL", NULL, 1, -1, FRONTDOOR_WRITE, "key [key ...]", "how many",
     "Is refused, since it does not name the lock's owner: see DELEX. With `--front-door-del yes` "
     "it ends the keys of all owners."},
    {FLI_CMD_DEL, "DEL", NULL, 1, 4, FLI_CMD_STORE | FLI_CMD_WRITE, "key FENCE lock token",
     "1 when the key existed, otherwise 0", "Deletes a key, unless the token is stale."},
    {FLI_CMD_DELEX, "DELEX", NULL, 1, 3, FRONTDOOR_WRITE, "key IFEQ value", "1, or 0",
     "Gives the lock back if the value holds it."},
    {FLI_CMD_DELIFEQ, "DELIFEQ", NULL, 2, 2, FRONTDOOR_WRITE, "key value", "1, or 0",
     "Gives the lock back if the value holds it."},
    {FLI_CMD_ECHO, "ECHO", NULL, 1, 1, CONN, "message", "the message", "Gives the message back."},
    {FLI_CMD_EVAL, "EVAL", NULL, 2, -1, FRONTDOOR_WRITE, "script numkeys [key ...] [arg ...]",
     "as the form of the script says",
     "Recognises a script as one of the forms of docs/FRONTDOOR.md and does what the script would "
     "do; no script is run."},
    {FLI_CMD_EVALSHA, "EVALSHA", NULL, 2, -1, FRONTDOOR_WRITE, "sha1 numkeys [key ...] [arg ...]",
     "as the form of the script says; NOSCRIPT when it is not known",
     "Does the same for a script by its SHA-1; a known script need not have been loaded."},
    {FLI_CMD_EXISTS, "EXISTS", NULL, 1, -1, FRONTDOOR_QUERY, "key [key ...]", "integer",
     "Counts the keys whose locks are not free."},
    {FLI_CMD_KEY_GET, "GET", NULL, 1, 1, FRONTDOOR_QUERY, "key",
     "the value that holds the lock, or nil when it is free", "Says which value holds the lock."},
    {FLI_CMD_GET, "GET", NULL, 1, 4, FLI_CMD_STORE | FLI_CMD_QUERY, "key [FENCE lock token]",
     "the value, or nil when there is none",
     "Reads a key; with FENCE it also claims, so that no holder of an older token can write after "
     "this read."},
    {FLI_CMD_HELLO, "HELLO", NULL, 0, -1, CONN, "[protover [AUTH user password] [SETNAME name]]",
     "a map: server, version, proto, id, mode, role, modules and more",
     "Greets, and chooses RESP2 or RESP3 for this connection."},
    {FLI_CMD_HEXISTS, "HEXISTS", NULL, 2, 2, FRONTDOOR_QUERY, "key value", "1, or 0",
     "Says whether the value has taken the lock as Redisson does."},
    {FLI_CMD_HGET, "HGET", NULL, 2, 2, FRONTDOOR_QUERY, "key value",
     "digits, or nil when the value has not taken the lock as Redisson does",
     "Says how often the value has taken the lock and not given it back."},
    {FLI_CMD_INFO, "INFO", NULL, 0, -1, BOTH | FLI_CMD_LOCAL, "[section ...]",
     "lines of field:value", "Tells about this node: state, load and limits."},
    {FLI_CMD_LEADER, "LEADER", NULL, 0, 0, FLI_CMD_LOCK | FLI_CMD_LOCAL, "",
     "an array: the leader's id, and its address for clients; nil when no leader is known",
     "Names the node that leads, for clients that want to save the relay."},
    {FLI_CMD_LOCKS, "LOCKS", NULL, 0, 6, LOCK_QUERY,
     "[MATCH glob] [CURSOR c] [COUNT n] | BY WAIT [COUNT n]",
     "an array: the cursor of the next page, empty at the end, and an array of one map a lock",
     "Lists the locks that are held, awaited or delayed, page by page. BY WAIT: the locks that "
     "were waited for most, as the asked node has seen it in the log."},
    {FLI_CMD_LOCKTOKEN, "LOCKTOKEN", NULL, 2, 2, FRONTDOOR_QUERY, "key value",
     "the token (integer) while the value holds the lock, otherwise nil",
     "Gives the fencing token of a lock that the value took through SET or a script."},
    {FLI_CMD_MARK, "MARK", NULL, 1, 1, FLI_CMD_STORE | FLI_CMD_QUERY, "lock",
     "the mark (integer), 0 when there is none", "Gives the highest token accepted for the lock."},
    {FLI_CMD_PEXPIRE, "PEXPIRE", NULL, 2, -1, FRONTDOOR_WRITE, "key ms [XX]", "1, or 0",
     "Is refused, since it does not name the lock's owner: see SET with XX. With `--front-door-del "
     "yes` it prolongs the lease of any owner."},
    {FLI_CMD_PING, "PING", NULL, 0, 1, CONN, "[message]", "PONG, or the message",
     "Says that this node is there."},
    {FLI_CMD_PSUBSCRIBE, "PSUBSCRIBE", NULL, 1, -1, PUBSUB, "pattern [pattern ...]",
     "for each pattern: psubscribe, the pattern, how many subscriptions this connection has",
     "Sends the events of all channels that a pattern matches, from now on; `*`, `?` and `[a-z]` "
     "as in LOCKS MATCH."},
    {FLI_CMD_PTTL, "PTTL", NULL, 1, 1, FRONTDOOR_QUERY, "key",
     "milliseconds (integer), or -2 when the lock is free",
     "Says how much is left of the lease of the lock's holder."},
    {FLI_CMD_PUNSUBSCRIBE, "PUNSUBSCRIBE", NULL, 0, -1, PUBSUB, "[pattern ...]",
     "for each pattern: punsubscribe, the pattern, how many subscriptions are left",
     "Ends subscriptions to patterns, all of them by default."},
    {FLI_CMD_QUIT, "QUIT", NULL, 0, -1, CONN, "", "OK",
     "Closes the connection after the answers that are due."},
    {FLI_CMD_RELEASE, "RELEASE", NULL, 2, 2, LOCK_WRITE, "name token",
     "1; 0 when the lock is not held under this token",
     "Gives the lock back; a stale token releases nothing."},
    {FLI_CMD_RENEW, "RENEW", NULL, 2, 8, LOCK_WRITE, "name token [TTL ms] [JEOPARDY n] [LOST n]",
     "1; 0 when the lock is not held under this token",
     "Makes the holder's lease last its TTL from now on, or the TTL given; a lost lock is not "
     "taken again. A client reports how many leases it could not renew for half their TTL "
     "(JEOPARDY), and how many it lost (LOST), since its last report."},
    {FLI_CMD_RESET, "RESET", NULL, 0, 0, CONN, "", "RESET",
     "Makes the connection as it was when it was opened."},
    {FLI_CMD_SCRIPT_EXISTS, "SCRIPT", "EXISTS", 1, -1, FRONTDOOR_LOCAL, "sha1 [sha1 ...]",
     "an array of 1 or 0", "Says which scripts this node knows."},
    {FLI_CMD_SCRIPT_FLUSH, "SCRIPT", "FLUSH", 0, 1, FRONTDOOR_LOCAL, "[ASYNC | SYNC]", "OK",
     "Forgets the scripts that were loaded at this node."},
    {FLI_CMD_SCRIPT_LOAD, "SCRIPT", "LOAD", 1, 1, FRONTDOOR_LOCAL, "script", "its SHA-1",
     "Makes a script known to this node, if it is recognised."},
    {FLI_CMD_SELECT, "SELECT", NULL, 1, 1, CONN, "index", "OK",
     "Does nothing: there is only database 0."},
    {FLI_CMD_SENTINEL, "SENTINEL", NULL, 1, 2, FRONTDOOR_LOCAL, "question [name]",
     "as Redis Sentinel answers",
     "Answers GET-MASTER-ADDR-BY-NAME, MASTERS, MASTER, SENTINELS and REPLICAS: the master is the "
     "node that leads, the nodes are its sentinels, and it has no replicas."},
    {FLI_CMD_SESSION_CLOSE, "SESSION", "CLOSE", 1, 1, LOCK_WRITE, "owner",
     "1; 0 when there is no such session",
     "Ends the session: releases its locks and gives up its waits."},
    {FLI_CMD_SESSION_LIST, "SESSION", "LIST", 0, 4, LOCK_QUERY, "[CURSOR c] [COUNT n]",
     "an array: the cursor of the next page, empty at the end, and an array of one map a session",
     "Lists the sessions, page by page."},
    {FLI_CMD_SESSION_OPEN, "SESSION", "OPEN", 3, 7, LOCK_WRITE,
     "owner TTL ms [LOCKDELAY ms] [LABEL text]", "OK",
     "Opens a session that may hold many locks and lives as long as it is renewed. Opening it "
     "again renews it, with the arguments that are given now."},
    {FLI_CMD_SESSION_RENEW, "SESSION", "RENEW", 1, 5, LOCK_WRITE, "owner [JEOPARDY n] [LOST n]",
     "1; 0 when there is no such session",
     "Makes the session, and every lock it holds, last its TTL from now on. JEOPARDY and LOST: "
     "see RENEW."},
    {FLI_CMD_SESSION_SHOW, "SESSION", "SHOW", 1, 1, LOCK_QUERY, "owner",
     "a map, or nil when there is no such session", "Describes one session."},
    {FLI_CMD_KEY_SET, "SET", NULL, 2, -1, FRONTDOOR_WRITE,
     "key value [NX | XX | IFEQ value] [GET] [PX ms | EX s | PXAT ms | EXAT s | KEEPTTL]",
     "OK; nil when another value holds the lock; with GET the value before",
     "Takes the lock for the value (NX), prolongs its lease (XX), or does one of both. Without "
     "NX, XX and IFEQ it is an error when another value holds it. The longest lease is a day."},
    {FLI_CMD_SET, "SET", NULL, 2, -1, FLI_CMD_STORE | FLI_CMD_WRITE, "key value FENCE lock token",
     "OK", "Writes a key, unless the token is stale; the first write binds the key to the lock."},
    {FLI_CMD_SHOW, "SHOW", NULL, 1, 1, LOCK_QUERY, "name", "a map, or nil when the lock is free",
     "Describes one lock: its holder, its token and its queue."},
    {FLI_CMD_SUBSCRIBE, "SUBSCRIBE", NULL, 1, -1, PUBSUB, "channel [channel ...]",
     "for each channel: subscribe, the channel, how many subscriptions this connection has",
     "Sends the events of locks (channel `lock:name`) or the moves of the smallest live token "
     "(`fencelock:min_live_token`), from now on."},
    {FLI_CMD_TOKEN, "TOKEN", NULL, 1, 1, LOCK_WRITE, "name", "a new token (integer)",
     "Issues a token without holding the lock, for Redlock or any other election outside of this "
     "service."},
    {FLI_CMD_TTL, "TTL", NULL, 1, 1, FRONTDOOR_QUERY, "key",
     "seconds (integer, rounded), or -2 when the lock is free",
     "Says how much is left of the lease of the lock's holder."},
    {FLI_CMD_UNLINK, "UNLINK", NULL, 1, -1, FRONTDOOR_WRITE, "key [key ...]", "how many",
     "As DEL."},
    {FLI_CMD_UNSUBSCRIBE, "UNSUBSCRIBE", NULL, 0, -1, PUBSUB, "[channel ...]",
     "for each channel: unsubscribe, the channel, how many subscriptions are left",
     "Ends subscriptions to channels, all of them by default."},
};

const size_t fli_commands_len = sizeof fli_commands / sizeof fli_commands[0];

/* Names that people know from other systems. */
static const struct {
    const char *word;
    const char *name;
} synonyms[] = {
    {"LOCK", "ACQUIRE"}, {"SETNX", "ACQUIRE"},    {"UNLOCK", "RELEASE"}, {"EXTEND", "RENEW"},
    {"EXPIRE", "RENEW"}, {"REFRESH", "RENEW"},    {"STATUS", "INFO"},    {"KEYS", "LOCKS"},
    {"SCAN", "LOCKS"},   {"SESSIONS", "SESSION"}, {"NODES", "CLUSTER"},
};

/* Writes the word in upper case, terminated. False when no command can have this name. */
static bool upper(const struct fli_slice *s, char word[WORD_MAX])
{
    if (s->len == 0 || s->len >= WORD_MAX) {
        return false;
    }
    for (size_t i = 0; i < s->len; i++) {
        uint8_t c = s->data[i];
        if (c == '\0') {
            return false;
        }
        word[i] = (char)(c >= 'a' && c <= 'z' ? c - ('a' - 'A') : c);
    }
    word[s->len] = '\0';
    return true;
}

/* strcmp without its call, which costs more than these few letters: every request looks a name
 * up. */
static int compare(const char *a, const char *b)
{
    for (; *a == *b && *a != '\0'; a++, b++) {
    }
    return (unsigned char)*a - (unsigned char)*b;
}

static bool have_one_name(size_t i, size_t k)
{
    return compare(fli_commands[i].name, fli_commands[k].name) == 0;
}

/* The index of the first row with this name; fli_commands_len: there is none. */
static size_t first_row(const char *name)
{
    size_t lo = 0;
    size_t hi = fli_commands_len;
    bool found = false; /* the row at `hi` has this name */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = compare(fli_commands[mid].name, name);
        if (order < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
            found = order == 0;
        }
    }
    return found ? hi : fli_commands_len;
}

/* The index of the first row of a name that this service serves; else fli_commands_len. */
static size_t family(enum fli_service service, const char *name)
{
    size_t i = first_row(name);
    while (i < fli_commands_len && !fli_command_served(&fli_commands[i], service)) {
        i = i + 1 < fli_commands_len && have_one_name(i, i + 1) ? i + 1 : fli_commands_len;
    }
    return i;
}

size_t fli_command_family_end(size_t first)
{
    FLI_ASSERT(first < fli_commands_len);
    unsigned program = fli_commands[first].flags & BOTH;
    size_t i = first + 1;
    while (i < fli_commands_len && have_one_name(i, first) &&
           (fli_commands[i].flags & program) != 0) {
        i++;
    }
    return i;
}

static const struct fli_command *row(enum fli_service service, const char *name, const char *sub)
{
    size_t first = family(service, name);
    size_t end = first == fli_commands_len ? first : fli_command_family_end(first);
    for (size_t i = first; i < end; i++) {
        const char *found = fli_commands[i].subcommand;
        if (sub == NULL ? found == NULL : found != NULL && strcmp(found, sub) == 0) {
            return &fli_commands[i];
        }
    }
    return NULL;
}

const struct fli_command *fli_command_find(enum fli_service service, const char *name,
                                           const char *subcommand)
{
    char n[WORD_MAX];
    char s[WORD_MAX];
    struct fli_slice name_slice = {(const uint8_t *)name, strlen(name)};
    if (!upper(&name_slice, n)) {
        return NULL;
    }
    if (subcommand == NULL) {
        return row(service, n, NULL);
    }
    struct fli_slice sub_slice = {(const uint8_t *)subcommand, strlen(subcommand)};
    return upper(&sub_slice, s) ? row(service, n, s) : NULL;
}

size_t fli_command_family(enum fli_service service, const char *name)
{
    char word[WORD_MAX];
    struct fli_slice slice = {(const uint8_t *)name, strlen(name)};
    return upper(&slice, word) ? family(service, word) : fli_commands_len;
}

const char *fli_command_name(enum fli_command_id id)
{
    for (size_t i = 0; i < fli_commands_len; i++) {
        if (fli_commands[i].id == id) {
            return fli_commands[i].name;
        }
    }
    return "";
}

const char *fli_command_group(const struct fli_command *c)
{
    if (strstr(c->name, "SUBSCRIBE") != NULL) {
        return "pubsub";
    }
    if ((c->flags & FLI_CMD_CONNECTION) != 0) {
        return strcmp(c->name, "COMMAND") == 0 ? "server" : "connection";
    }
    if ((c->flags & FLI_CMD_FRONTDOOR) != 0) {
        return "redis";
    }
    if (strcmp(c->name, "INFO") == 0) {
        return "server";
    }
    if (strcmp(c->name, "SESSION") == 0) {
        return "session";
    }
    if (strcmp(c->name, "ACL") == 0) {
        return "users";
    }
    if (strcmp(c->name, "CLUSTER") == 0 || strcmp(c->name, "LEADER") == 0) {
        return "cluster";
    }
    return (c->flags & FLI_CMD_LOCK) != 0 ? "lock" : "storage";
}

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;
    return m < c ? m : c;
}

/* The number of typing errors between two words: letters inserted, dropped, replaced, or swapped
 * with their neighbour (Damerau 1964, restricted form). Both are shorter than WORD_MAX. */
static unsigned distance(const char *a, const char *b)
{
    unsigned rows[3][WORD_MAX + 1];
    unsigned *before = rows[0];
    unsigned *above = rows[1];
    unsigned *here = rows[2];
    unsigned la = (unsigned)strlen(a);
    unsigned lb = (unsigned)strlen(b);
    for (unsigned j = 0; j <= lb; j++) {
        before[j] = 0;
        above[j] = j;
    }
    for (unsigned i = 1; i <= la; i++) {
        here[0] = i;
        for (unsigned j = 1; j <= lb; j++) {
            unsigned cost = a[i - 1] == b[j - 1] ? 0 : 1;
            here[j] = min3(above[j] + 1, here[j - 1] + 1, above[j - 1] + cost);
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < here[j]) {
                here[j] = before[j - 2] + 1;
            }
        }
        unsigned *spare = before;
        before = above;
        above = here;
        here = spare;
    }
    return above[lb];
}

/* The known word nearest to `word`, among the names of a service or the subcommands of `name`; NULL
 * when none is near enough for a guess. */
static const char *nearest(enum fli_service service, const char *name, const char *word)
{
    const char *best = NULL;
    unsigned best_distance = strlen(word) < 4 ? 2 : 3;
    for (size_t i = 0; i < fli_commands_len; i++) {
        const struct fli_command *c = &fli_commands[i];
        if (!fli_command_served(c, service)) {
            continue;
        }
        if (name != NULL && (c->subcommand == NULL || strcmp(c->name, name) != 0)) {
            continue;
        }
        const char *known = name == NULL ? c->name : c->subcommand;
        unsigned d = distance(word, known);
        if (d < best_distance && d < strlen(known)) {
            best = known;
            best_distance = d;
        }
    }
    return best;
}

static const char *synonym(enum fli_service service, const char *word)
{
    for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; i++) {
        if (strcmp(synonyms[i].word, word) != 0) {
            continue;
        }
        return family(service, synonyms[i].name) < fli_commands_len ? synonyms[i].name : NULL;
    }
    return NULL;
}

static int unknown_command(enum fli_service service, const struct fli_slice *given, char *errmsg,
                           size_t errmsg_size)
{
    char quoted[FLI_QUOTE_SIZE];
    char word[WORD_MAX];
    fli_quote(quoted, sizeof quoted, given);
    const char *hint = NULL;
    if (upper(given, word)) {
        if (first_row(word) < fli_commands_len) {
            snprintf(errmsg, errmsg_size,
                     "unknown command %s: it is served by %s, not by this server", quoted,
                     service == FLI_SERVICE_LOCK ? "fencelock-store" : "fencelockd");
            return FL_ENOTFOUND;
        }
        hint = synonym(service, word);
        hint = hint != NULL ? hint : nearest(service, NULL, word);
    }
    if (hint != NULL) {
        snprintf(errmsg, errmsg_size, "unknown command %s: did you mean %s?", quoted, hint);
    } else {
        snprintf(errmsg, errmsg_size,
                 "unknown command %s: COMMAND LIST names those this server has", quoted);
    }
    return FL_ENOTFOUND;
}

/* Writes for example "OPEN, RENEW or CLOSE". */
static void list_subcommands(enum fli_service service, const char *name, char *out, size_t size)
{
    size_t len = 0;
    size_t first = first_row(name);
    out[0] = '\0';
    for (size_t i = first; i < fli_commands_len && have_one_name(i, first); i++) {
        const struct fli_command *c = &fli_commands[i];
        if (c->subcommand == NULL || !fli_command_served(c, service)) {
            continue;
        }
        bool last = i + 1 == fli_commands_len || strcmp(fli_commands[i + 1].name, name) != 0;
        const char *comma = len == 0 ? "" : last ? " or " : ", ";
        int n = snprintf(out + len, size - len, "%s%s", comma, c->subcommand);
        if (n < 0 || (size_t)n >= size - len) {
            return;
        }
        len += (size_t)n;
    }
}

static int unknown_subcommand(enum fli_service service, const char *name,
                              const struct fli_slice *given, char *errmsg, size_t errmsg_size)
{
    char all[160];
    list_subcommands(service, name, all, sizeof all);
    if (given == NULL) {
        snprintf(errmsg, errmsg_size, "%s needs a subcommand: %s", name, all);
        return FL_EINVAL;
    }
    char quoted[FLI_QUOTE_SIZE];
    char word[WORD_MAX];
    fli_quote(quoted, sizeof quoted, given);
    const char *hint = upper(given, word) ? nearest(service, name, word) : NULL;
    if (hint != NULL) {
        snprintf(errmsg, errmsg_size, "unknown subcommand %s of %s: did you mean %s %s?", quoted,
                 name, name, hint);
    } else {
        snprintf(errmsg, errmsg_size, "unknown subcommand %s of %s: write %s", quoted, name, all);
    }
    return FL_ENOTFOUND;
}

static bool is_among(const char *word, const char *const *list)
{
    while (*list != NULL && strcmp(*list, word) != 0) {
        list++;
    }
    return *list != NULL;
}

static int check_arity(const struct fli_command *c, unsigned n, char *errmsg, size_t errmsg_size)
{
    if ((int)n >= c->arity_min && (c->arity_max < 0 || (int)n <= c->arity_max)) {
        return 0;
    }
    char usage[FLI_USAGE_SIZE];
    fli_command_usage(usage, sizeof usage, c);
    snprintf(errmsg, errmsg_size, "wrong number of arguments for '%s%s%s' command: write %s",
             c->name, c->subcommand == NULL ? "" : " ", c->subcommand == NULL ? "" : c->subcommand,
             usage);
    return FL_EINVAL;
}

static int find_row(enum fli_service service, const struct fli_slice *argv, unsigned argc,
                    const struct fli_command **ret, unsigned *ret_args, char *errmsg,
                    size_t errmsg_size)
{
    char name[WORD_MAX];
    char sub[WORD_MAX];
    if (!upper(&argv[0], name)) {
        return unknown_command(service, &argv[0], errmsg, errmsg_size);
    }
    size_t first = family(service, name);
    if (first == fli_commands_len) {
        return unknown_command(service, &argv[0], errmsg, errmsg_size);
    }
    const struct fli_command *c = &fli_commands[first];
    unsigned words = 1;
    bool several = c->subcommand != NULL || fli_command_family_end(first) > first + 1;
    if (several && (argc > 1 || c->subcommand != NULL)) {
        c = argc > 1 && upper(&argv[1], sub) ? row(service, name, sub) : NULL;
        if (c == NULL) {
            return unknown_subcommand(service, name, argc > 1 ? &argv[1] : NULL, errmsg,
                                      errmsg_size);
        }
        words = 2;
    }
    int rc = check_arity(c, argc - words, errmsg, errmsg_size);
    if (rc != 0) {
        return rc;
    }
    *ret = c;
    *ret_args = words;
    return 0;
}

/* What clients for a Redis Cluster ask, and a Redis without one does not answer either. */
static bool is_of_redis_cluster(const struct fli_slice *argv, unsigned argc)
{
    static const char *const names[] = {"ASKING", "READONLY", "READWRITE", NULL};
    static const char *const subcommands[] = {
        "COUNTKEYSINSLOT", "GETKEYSINSLOT", "HELP",   "KEYSLOT", "LINKS", "MYID", "MYSHARDID",
        "NODES",           "REPLICAS",      "SHARDS", "SLAVES",  "SLOTS", NULL};
    char word[WORD_MAX];
    if (!upper(&argv[0], word)) {
        return false;
    }
    return is_among(word, names) || (strcmp(word, "CLUSTER") == 0 && argc > 1 &&
                                     upper(&argv[1], word) && is_among(word, subcommands));
}

int fli_command_lookup(enum fli_service service, const struct fli_slice *argv, unsigned argc,
                       const struct fli_command **ret, unsigned *ret_args, char *errmsg,
                       size_t errmsg_size)
{
    FLI_ASSERT(argc >= 1);
    int rc = find_row(service, argv, argc, ret, ret_args, errmsg, errmsg_size);
    if (rc == FL_ENOTFOUND && is_of_redis_cluster(argv, argc)) {
        /* Redis' own words come first, for clients that look for them. */
        snprintf(errmsg, errmsg_size,
                 "This instance has cluster support disabled: it is not a Redis cluster. Give the "
                 "client one address, and leave its cluster mode out");
    }
    return rc;
}
