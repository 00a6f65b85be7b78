#!lua name=fencelock
-- fencelock's guard for Redis 7 and Valkey: values that only the newest holder of a lock can change.
-- Functions are atomic, so mark and value change together. The commands in a function run with the caller's rights, so
-- rights alone cannot forbid a plain SET: keys therefore begin with a secret, which is in this text and nowhere else,
-- and a writer may call functions, GET and SET below that secret, and list nothing.
local SECRET = '@SECRET@'

-- A value is stored as "lock length:lock value", so that its lock is never lost; a deleted one keeps the lock alone.
local function mark_key(lock) return SECRET .. ':m:' .. lock end
local function data_key(key) return SECRET .. ':d:' .. key end

local function bad_token(token)
    return #token > 16 or not token:match('^[1-9]%d*$') or (#token == 16 and token > '9007199254740991')
end

-- Compares numbers as text, by length first: Lua's numbers are doubles, and two large ones may be equal as doubles.
local function below(a, b) return #a < #b or (#a == #b and a < b) end

local function judge(lock, token)
    if #lock < 1 or #lock > 255 then
        return redis.error_reply('REFUSED the name of a lock has 1 to 255 bytes')
    end
    if bad_token(token) then
        return redis.error_reply('REFUSED a token is a number from 1 to 9007199254740991')
    end
    -- Every token below the floor is refused, for every lock: fencelock guard adopt raises it after a fail-over.
    local floor = redis.call('GET', SECRET .. ':floor')
    if floor and below(token, floor) then
        return redis.error_reply('STALE token ' .. token .. ' is below the floor ' .. floor .. ' of this server; acquire the lock again')
    end
    local mark = redis.call('GET', mark_key(lock))
    if mark and below(token, mark) then
        return redis.error_reply('STALE token ' .. token .. ' is below the mark ' .. mark .. '; acquire the lock again')
    end
    if not mark or below(mark, token) then
        redis.call('SET', mark_key(lock), token)
    end
end

-- Returns the value of a record of this lock (false when there is none), or an error when the record is another lock's.
local function found(lock, key)
    local stored = redis.call('GET', data_key(key))
    if not stored then return false end
    local n, rest = stored:match('^(%d+):(.*)$')
    n = tonumber(n)
    if rest:sub(1, n) ~= lock then
        return false, redis.error_reply('WRONGLOCK this key belongs to another lock')
    end
    if #rest == n then return false end
    return rest:sub(n + 2)
end

local function stored(lock, value) return #lock .. ':' .. lock .. (value and (' ' .. value) or '') end

local function arguments(args, n, usage)
    if #args ~= n then return redis.error_reply('REFUSED write FCALL ' .. usage) end
end

local function claim(_, args)
    return arguments(args, 2, 'fence_claim 0 lock token') or judge(args[1], args[2]) or redis.status_reply('OK')
end

local function get(_, args)
    local wrong = arguments(args, 3, 'fence_get 0 lock token key') or judge(args[1], args[2])
    if wrong then return wrong end
    local value, other = found(args[1], args[3])
    return other or value
end

local function write(args, value)
    local _, other = found(args[1], args[3])
    local wrong = other or judge(args[1], args[2])
    if wrong then return wrong end
    redis.call('SET', data_key(args[3]), stored(args[1], value))
    return redis.status_reply('OK')
end

local function set(_, args) return arguments(args, 4, 'fence_set 0 lock token key value') or write(args, args[4]) end
local function del(_, args) return arguments(args, 3, 'fence_del 0 lock token key') or write(args, nil) end

-- Needs no token. Use it to look at a value, not for read-modify-write.
local function peek(_, args)
    local wrong = arguments(args, 2, 'fence_peek 0 lock key')
    if wrong then return wrong end
    local value, other = found(args[1], args[2])
    return other or value
end

local function mark(_, args)
    return arguments(args, 1, 'fence_mark 0 lock') or redis.call('GET', mark_key(args[1])) or '0'
end

redis.register_function('fence_claim', claim)
redis.register_function('fence_get', get)
redis.register_function('fence_set', set)
redis.register_function('fence_del', del)
redis.register_function{function_name='fence_peek', callback=peek, flags={'no-writes'}}
redis.register_function{function_name='fence_mark', callback=mark, flags={'no-writes'}}
