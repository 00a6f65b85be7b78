/* forms.c: the table of forms. T1 to T36 are the numbers in docs/FRONTDOOR.md. The scripts are our
 * own wording. A text that differs from one only in blanks, comments or quotes is recognised by
 * it. */
#include "frontdoor/forms.h"

#include <string.h>

#define EXTEND_OR_GRANT (MACHINE_KEYS_EXTEND | MACHINE_KEYS_GRANT)
#define ENTER (MACHINE_KEYS_COUNT | MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND)
#define LEAVE (MACHINE_KEYS_COUNT | MACHINE_KEYS_RELEASE)
#define ONE_KEY .keys_min = 1, .keys_max = 1
#define SOME_KEYS .keys_min = 1, .keys_max = MACHINE_NAMES_MAX
#define VALUE_AND_TTL .value_at = 1, .ttl_at = 2
#define ONE_WITH_VALUE ONE_KEY, .value_at = 1
#define ONE_WITH_TTL ONE_KEY, VALUE_AND_TTL
#define REENTERS .value_at = 2, .ttl_at = 1
/* The further keys are Redisson's channel, and a key that identifies a release: no locks, so
 * ignored. */
#define KEYS_OF(n) .keys_min = (n), .keys_max = (n), .first_key = true
#define ANSWERS(g, w, t, a) .answers = {.granted = (g), .own = (w), .other = (t), .absent = (a)}

const struct frontdoor_form frontdoor_forms[] = {
    /* T1 */
    {.name = "release",
     .script = "if redis.call('get', KEYS[1]) == ARGV[1] then "
               "return redis.call('del', KEYS[1]) else return 0 end",
     .change = MACHINE_KEYS_RELEASE,
     ONE_WITH_VALUE,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    /* T2 */
    {.name = "set-if-own-or-absent-yes",
     .script = "local have = redis.call('get', KEYS[1]) "
               "if have == ARGV[1] or (not have and ARGV[3] == 'yes') then "
               "return redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2]) end",
     .change = MACHINE_KEYS_EXTEND,
     .change_if = EXTEND_OR_GRANT,
     ONE_WITH_TTL,
     .word_at = 3,
     .word = "yes",
     ANSWERS(FRONTDOOR_OK, FRONTDOOR_OK, FRONTDOOR_NIL, FRONTDOOR_NIL)},
    /* T3 */
    {.name = "value-and-pttl",
     .script = "return {redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1])}",
     ONE_KEY,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_VALUE_PTTL, FRONTDOOR_VALUE_PTTL, FRONTDOOR_NIL_PTTL)},
    /* T4 */
    {.name = "pttl-if-own",
     .script = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end "
               "return math.max(redis.call('pttl', KEYS[1]), 0)",
     ONE_WITH_VALUE,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_PTTL, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    /* T5 */
    {.name = "extend",
     .script = "if redis.call('get', KEYS[1]) == ARGV[1] then "
               "return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end",
     .change = MACHINE_KEYS_EXTEND,
     ONE_WITH_TTL,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    /* Spring Integration's registry of locks, which reads a Lua true as 1 and false as nil */
    {.name = "extend-or-set-or-nil",
     .script = "local have = redis.call('get', KEYS[1]) "
               "if have and have ~= ARGV[1] then return false end "
               "redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2]) return true",
     .change = EXTEND_OR_GRANT,
     ONE_WITH_TTL,
     ANSWERS(FRONTDOOR_INT_1, FRONTDOOR_INT_1, FRONTDOOR_NIL, FRONTDOOR_NEVER)},
    {.name = "extend-or-nil",
     .script = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return false end "
               "redis.call('pexpire', KEYS[1], ARGV[2]) return true",
     .change = MACHINE_KEYS_EXTEND,
     ONE_WITH_TTL,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_NIL, FRONTDOOR_NIL)},
    {.name = "release-or-nil",
     .script = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return false end "
               "redis.call('del', KEYS[1]) return true",
     .change = MACHINE_KEYS_RELEASE,
     ONE_WITH_VALUE,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_NIL, FRONTDOOR_NIL)},
    /* T6 */
    {.name = "set-if-own-or-absent",
     .script = "local have = redis.call('get', KEYS[1]) "
               "if have and have ~= ARGV[1] then return redis.error_reply('ERROR') end "
               "return redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])",
     .change = EXTEND_OR_GRANT,
     ONE_WITH_TTL,
     ANSWERS(FRONTDOOR_OK, FRONTDOOR_OK, FRONTDOOR_ERROR_WORD, FRONTDOOR_NEVER)},
    /* T7 */
    {.name = "release-or-error",
     .script = "local have = redis.call('get', KEYS[1]) "
               "if not have then return redis.status_reply('OK') end "
               "if have ~= ARGV[1] then return redis.error_reply('ERROR') end "
               "return redis.call('del', KEYS[1])",
     .change = MACHINE_KEYS_RELEASE,
     ONE_WITH_VALUE,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_ERROR_WORD, FRONTDOOR_OK)},
    /* T8 */
    {.name = "ttl-or-error",
     .script = "if redis.call('get', KEYS[1]) == ARGV[1] then "
               "return redis.call('ttl', KEYS[1]) end return redis.error_reply('ERROR')",
     ONE_WITH_VALUE,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_TTL, FRONTDOOR_ERROR_WORD, FRONTDOOR_ERROR_WORD)},
    /* T9 */
    {.name = "release-with-signal",
     .script = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 end "
               "redis.call('del', KEYS[2]) redis.call('lpush', KEYS[2], 1) "
               "redis.call('pexpire', KEYS[2], ARGV[2]) redis.call('del', KEYS[1]) return 0",
     .change = MACHINE_KEYS_RELEASE,
     .keys_min = 2,
     .keys_max = 2,
     .first_key = true,
     .value_at = 1,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_0, FRONTDOOR_INT_1, FRONTDOOR_INT_1)},
    /* T10 */
    {.name = "extend-seconds",
     .script = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 end "
               "if redis.call('ttl', KEYS[1]) < 0 then return 2 end "
               "redis.call('expire', KEYS[1], ARGV[2]) return 0",
     .change = MACHINE_KEYS_EXTEND,
     .keys_min = 2,
     .keys_max = 2,
     .first_key = true,
     VALUE_AND_TTL,
     .seconds = true,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_0, FRONTDOOR_INT_1, FRONTDOOR_INT_1)},
    /* T13: T1 with a variable */
    {.name = "release-by-variable",
     .script = "local have = redis.call('get', KEYS[1]) "
               "if have ~= ARGV[1] then return 0 end redis.call('del', KEYS[1]) return 1",
     .change = MACHINE_KEYS_RELEASE,
     ONE_WITH_VALUE,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    /* T14 */
    {.name = "extend-or-add",
     .script = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end "
               "local left = redis.call('pttl', KEYS[1]) if left < 0 then return 0 end "
               "local more = ARGV[2] if ARGV[3] == '0' then more = ARGV[2] + left end "
               "redis.call('pexpire', KEYS[1], more) return 1",
     .change = MACHINE_KEYS_EXTEND,
     .change_if = MACHINE_KEYS_EXTEND | MACHINE_KEYS_ADD,
     ONE_WITH_TTL,
     .word_at = 3,
     .word = "0",
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    /* T15: T5 with a variable */
    {.name = "extend-by-variable",
     .script = "local have = redis.call('get', KEYS[1]) "
               "if have ~= ARGV[1] then return 0 end "
               "redis.call('pexpire', KEYS[1], ARGV[2]) return 1",
     .change = MACHINE_KEYS_EXTEND,
     ONE_WITH_TTL,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    /* T16 */
    {.name = "release-or-minus-1",
     .script = "local have = redis.call('get', KEYS[1]) if not have then return -1 end "
               "if have == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
     .change = MACHINE_KEYS_RELEASE,
     ONE_WITH_VALUE,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_MINUS_1)},
    /* T17 */
    {.name = "extend-or-set",
     .script = "if redis.call('get', KEYS[1]) == ARGV[1] then "
               "return redis.call('pexpire', KEYS[1], ARGV[2]) end "
               "if redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2], 'nx') then return 1 end "
               "return 0",
     .change = EXTEND_OR_GRANT,
     ONE_WITH_TTL,
     ANSWERS(FRONTDOOR_INT_1, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_NEVER)},
    /* T18: Redis would take the key from any holder */
    {.name = "overwrite",
     .script = "return redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2], 'xx') or "
               "redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2], 'nx')",
     .change = EXTEND_OR_GRANT,
     ONE_WITH_TTL,
     ANSWERS(FRONTDOOR_OK, FRONTDOOR_OK, FRONTDOOR_NIL, FRONTDOOR_NEVER)},
    /* T19 */
    {.name = "replace",
     .script = "local have = redis.call('get', KEYS[1]) "
               "if have and have ~= ARGV[1] then return false end "
               "return redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3])",
     .change = MACHINE_KEYS_RELEASE | MACHINE_KEYS_GRANT,
     ONE_WITH_VALUE,
     .new_value_at = 2,
     .ttl_at = 3,
     ANSWERS(FRONTDOOR_OK, FRONTDOOR_OK, FRONTDOOR_NIL, FRONTDOOR_NEVER)},
    /* T20 */
    {.name = "extend-or-set-or-minus-1",
     .script = "local have = redis.call('get', KEYS[1]) "
               "if not have then redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2]) return 1 end "
               "if have ~= ARGV[1] then return -1 end "
               "return redis.call('pexpire', KEYS[1], ARGV[2])",
     .change = EXTEND_OR_GRANT,
     ONE_WITH_TTL,
     ANSWERS(FRONTDOOR_INT_1, FRONTDOOR_INT_1, FRONTDOOR_INT_MINUS_1, FRONTDOOR_NEVER)},
    /* T21 */
    {.name = "set-all",
     .script = "for _, key in ipairs(KEYS) do "
               "if redis.call('exists', key) == 1 then return 0 end end "
               "for _, key in ipairs(KEYS) do "
               "redis.call('set', key, ARGV[1], 'px', ARGV[2]) end return #KEYS",
     .change = MACHINE_KEYS_GRANT,
     SOME_KEYS,
     VALUE_AND_TTL,
     ANSWERS(FRONTDOOR_COUNT, FRONTDOOR_INT_0, FRONTDOOR_INT_0, FRONTDOOR_NEVER)},
    /* T22 */
    {.name = "extend-all",
     .script = "for _, key in ipairs(KEYS) do "
               "if redis.call('get', key) ~= ARGV[1] then return 0 end end "
               "for _, key in ipairs(KEYS) do "
               "redis.call('set', key, ARGV[1], 'px', ARGV[2]) end return #KEYS",
     .change = MACHINE_KEYS_EXTEND,
     SOME_KEYS,
     VALUE_AND_TTL,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_COUNT, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    /* T23 */
    {.name = "release-each",
     .script = "local n = 0 for _, key in ipairs(KEYS) do "
               "if redis.call('get', key) == ARGV[1] then n = n + redis.call('del', key) end end "
               "return n",
     .change = MACHINE_KEYS_RELEASE | MACHINE_KEYS_EACH,
     SOME_KEYS,
     .value_at = 1,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_COUNT, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    /* T24 */
    {.name = "extend-by-set",
     .script = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end "
               "redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2]) return 1",
     .change = MACHINE_KEYS_EXTEND,
     ONE_WITH_TTL,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    /* T25: here, a value with the same token and other metadata counts as another value */
    {.name = "obtain-all",
     .script = "for _, key in ipairs(KEYS) do local have = redis.call('get', key) "
               "if have and have ~= ARGV[1] then return false end end "
               "for _, key in ipairs(KEYS) do "
               "redis.call('set', key, ARGV[1], 'px', ARGV[3]) end return {ok = 'OK'}",
     .change = EXTEND_OR_GRANT,
     SOME_KEYS,
     .value_at = 1,
     .ttl_at = 3,
     ANSWERS(FRONTDOOR_OK, FRONTDOOR_OK, FRONTDOOR_NIL, FRONTDOOR_NEVER)},
    /* T26 */
    {.name = "release-all",
     .script = "for _, key in ipairs(KEYS) do "
               "if redis.call('get', key) ~= ARGV[1] then return false end end "
               "redis.call('del', unpack(KEYS)) return {ok = 'OK'}",
     .change = MACHINE_KEYS_RELEASE,
     SOME_KEYS,
     .value_at = 1,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_OK, FRONTDOOR_NIL, FRONTDOOR_NIL)},
    /* T27 */
    {.name = "refresh-all",
     .script = "for _, key in ipairs(KEYS) do "
               "if redis.call('get', key) ~= ARGV[1] then return false end end "
               "for _, key in ipairs(KEYS) do "
               "redis.call('pexpire', key, ARGV[2]) end return {ok = 'OK'}",
     .change = MACHINE_KEYS_EXTEND,
     SOME_KEYS,
     VALUE_AND_TTL,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_OK, FRONTDOOR_NIL, FRONTDOOR_NIL)},
    /* T28 */
    {.name = "pttl-all",
     .script = "local least for _, key in ipairs(KEYS) do "
               "if redis.call('get', key) ~= ARGV[1] then return false end "
               "local left = redis.call('pttl', key) "
               "if not least or left < least then least = left end end return least",
     SOME_KEYS,
     .value_at = 1,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_PTTL, FRONTDOOR_NIL, FRONTDOOR_NIL)},
    /* T28 in releases before 0.10 of the same library, which had one key */
    {.name = "pttl-or-minus-3",
     .script = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return -3 end "
               "return redis.call('pttl', KEYS[1])",
     ONE_WITH_VALUE,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_PTTL, FRONTDOOR_INT_MINUS_3, FRONTDOOR_INT_MINUS_3)},
    /* The token, for libraries that can send scripts but not commands of fencelock */
    {.name = "token",
     .script = "return redis.call('locktoken', KEYS[1], ARGV[1])",
     ONE_WITH_VALUE,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_TOKEN, FRONTDOOR_NIL, FRONTDOOR_NIL)},
    /* T29: Redisson's locks. A key is a hash with one field: the owner, and how often he holds the
     * lock */
    {.name = "enter",
     .script = "if redis.call('exists', KEYS[1]) == 1 and "
               "redis.call('hexists', KEYS[1], ARGV[2]) == 0 then "
               "return redis.call('pttl', KEYS[1]) end "
               "redis.call('hincrby', KEYS[1], ARGV[2], 1) "
               "redis.call('pexpire', KEYS[1], ARGV[1]) return nil",
     .change = ENTER,
     ONE_KEY,
     REENTERS,
     ANSWERS(FRONTDOOR_NIL, FRONTDOOR_NIL, FRONTDOOR_PTTL, FRONTDOOR_NEVER)},
    /* T30 */
    {.name = "leave-once",
     .script = "local done = redis.call('get', KEYS[3]) if done then return tonumber(done) end "
               "if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end "
               "local last = redis.call('hincrby', KEYS[1], ARGV[3], -1) <= 0 "
               "if last then redis.call('del', KEYS[1]) redis.call(ARGV[4], KEYS[2], ARGV[1]) "
               "else redis.call('pexpire', KEYS[1], ARGV[2]) end "
               "redis.call('set', KEYS[3], last and 1 or 0, 'px', ARGV[5]) "
               "return last and 1 or 0",
     .change = LEAVE,
     KEYS_OF(3),
     .value_at = 3,
     .ttl_at = 2,
     .latch_key = 3,
     .keep_at = 5,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_COUNT, FRONTDOOR_NIL, FRONTDOOR_NIL)},
    /* T30 in releases that wait for no message, so none is sent */
    {.name = "leave-once-silently",
     .script = "local done = redis.call('get', KEYS[2]) if done then return tonumber(done) end "
               "if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end "
               "local last = redis.call('hincrby', KEYS[1], ARGV[2], -1) <= 0 "
               "if last then redis.call('del', KEYS[1]) "
               "else redis.call('pexpire', KEYS[1], ARGV[1]) end "
               "redis.call('set', KEYS[2], last and 1 or 0, 'px', ARGV[3]) "
               "return last and 1 or 0",
     .change = LEAVE,
     KEYS_OF(2),
     .value_at = 2,
     .ttl_at = 1,
     .latch_key = 2,
     .keep_at = 3,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_COUNT, FRONTDOOR_NIL, FRONTDOOR_NIL)},
    /* T30 in releases before 3.24, which could not identify a release */
    {.name = "leave",
     .script = "if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end "
               "if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then "
               "redis.call('pexpire', KEYS[1], ARGV[2]) return 0 end "
               "redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], ARGV[1]) return 1",
     .change = LEAVE,
     KEYS_OF(2),
     .value_at = 3,
     .ttl_at = 2,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_COUNT, FRONTDOOR_NIL, FRONTDOOR_NIL)},
    {.name = "leave-silently",
     .script = "if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end "
               "if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then "
               "redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end "
               "redis.call('del', KEYS[1]) return 1",
     .change = LEAVE,
     ONE_KEY,
     .value_at = 2,
     .ttl_at = 1,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_COUNT, FRONTDOOR_NIL, FRONTDOOR_NIL)},
    /* T31 */
    {.name = "break",
     .script = "if redis.call('del', KEYS[1]) == 0 then return 0 end "
               "redis.call('publish', KEYS[2], ARGV[1]) return 1",
     .op = MACHINE_OP_BREAK,
     KEYS_OF(2),
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    {.name = "break-silently",
     .script = "if redis.call('del', KEYS[1]) == 0 then return 0 end return 1",
     .op = MACHINE_OP_BREAK,
     ONE_KEY,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    /* T32: the second key is a counter in Redis; here it is the token of the hold */
    {.name = "enter-with-token",
     .script = "if redis.call('exists', KEYS[1]) == 1 and "
               "redis.call('hexists', KEYS[1], ARGV[2]) == 0 then "
               "return {redis.call('pttl', KEYS[1]), -1} end "
               "redis.call('hincrby', KEYS[1], ARGV[2], 1) "
               "redis.call('pexpire', KEYS[1], ARGV[1]) "
               "return {-1, redis.call('incr', KEYS[2])}",
     .change = ENTER,
     KEYS_OF(2),
     REENTERS,
     ANSWERS(FRONTDOOR_MINUS_1_TOKEN, FRONTDOOR_MINUS_1_TOKEN, FRONTDOOR_PTTL_MINUS_1,
             FRONTDOOR_NEVER)},
    /* T33: the same; the token is asked for later */
    {.name = "enter-and-count",
     .script = "if redis.call('exists', KEYS[1]) == 1 and "
               "redis.call('hexists', KEYS[1], ARGV[2]) == 0 then "
               "return redis.call('pttl', KEYS[1]) end redis.call('incr', KEYS[2]) "
               "redis.call('hincrby', KEYS[1], ARGV[2], 1) "
               "redis.call('pexpire', KEYS[1], ARGV[1]) return nil",
     .change = ENTER,
     KEYS_OF(2),
     REENTERS,
     ANSWERS(FRONTDOOR_NIL, FRONTDOOR_NIL, FRONTDOOR_PTTL, FRONTDOOR_NEVER)},
    /* T34 is T29 in other words, see known.c. This is T35 */
    {.name = "renew-each",
     .script = "local done = {} for i, key in ipairs(KEYS) do "
               "local own = redis.call('hexists', key, ARGV[i + 1]) == 1 "
               "if own then redis.call('pexpire', key, ARGV[1]) end "
               "done[i] = own and 1 or 0 end return done",
     .each = true,
     .change = MACHINE_KEYS_EXTEND | MACHINE_KEYS_EACH,
     .keys_min = 1,
     .keys_max = MACHINE_KEYS_MAX,
     .ttl_at = 1,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_EACH, FRONTDOOR_EACH, FRONTDOOR_EACH)},
    /* T35 in releases before 3.44 */
    {.name = "renew",
     .script = "if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end "
               "redis.call('pexpire', KEYS[1], ARGV[1]) return 1",
     .change = MACHINE_KEYS_EXTEND,
     ONE_KEY,
     REENTERS,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    /* RedissonMultiLock sends it after taking all locks; the only supported condition is
     * "always" */
    {.name = "prolong-each",
     .script = "local done = 0 for _, key in ipairs(KEYS) do "
               "if redis.call('pexpire', key, ARGV[1]) == 1 then done = 1 end end return done",
     .change = MACHINE_KEYS_EXTEND | MACHINE_KEYS_EACH,
     SOME_KEYS,
     .ttl_at = 1,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    {.name = "prolong-each-always",
     .script = "local done = 0 for _, key in ipairs(KEYS) do "
               "local more = ARGV[2] ~= '' and {ARGV[1], ARGV[2]} or {ARGV[1]} "
               "if redis.call('pexpire', key, unpack(more)) == 1 then done = 1 end end return done",
     .change = MACHINE_KEYS_EXTEND | MACHINE_KEYS_EACH,
     SOME_KEYS,
     .ttl_at = 1,
     .empty_at = 2,
     ANSWERS(FRONTDOOR_NEVER, FRONTDOOR_INT_1, FRONTDOOR_INT_0, FRONTDOOR_INT_0)},
    /* T36: a lock that cannot be taken twice */
    {.name = "enter-but-once",
     .script = "if redis.call('exists', KEYS[1]) == 0 then "
               "redis.call('hincrby', KEYS[1], ARGV[2], 1) "
               "redis.call('pexpire', KEYS[1], ARGV[1]) return nil end "
               "if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then "
               "return redis.call('pttl', KEYS[1]) end return redis.error_reply(ARGV[3])",
     .change = MACHINE_KEYS_COUNT | MACHINE_KEYS_GRANT,
     ONE_KEY,
     REENTERS,
     ANSWERS(FRONTDOOR_NIL, FRONTDOOR_ERROR_REENTERS, FRONTDOOR_PTTL, FRONTDOOR_NEVER)},
};

const size_t frontdoor_forms_len = sizeof frontdoor_forms / sizeof frontdoor_forms[0];

const struct frontdoor_form *frontdoor_form_find(struct fli_slice name)
{
    for (size_t i = 0; i < frontdoor_forms_len; i++) {
        const char *own = frontdoor_forms[i].name;
        if (strlen(own) == name.len && memcmp(own, name.data, name.len) == 0) {
            return &frontdoor_forms[i];
        }
    }
    return NULL;
}

bool frontdoor_is_word(struct fli_slice s, const char *word)
{
    size_t i = 0;
    for (; i < s.len && word[i] != '\0'; i++) {
        uint8_t c = s.data[i];
        if ((c >= 'a' && c <= 'z' ? c - ('a' - 'A') : c) != (uint8_t)word[i]) {
            return false;
        }
    }
    return i == s.len && word[i] == '\0';
}
