"""What of libraries' own suites does not pass at the front door though it does on a real Redis: library -> test -> why. Each
reason is a row of "What differs from Redis" in docs/FRONTDOOR.md."""

NO_TTL = 'without PX or EX a key has a lease of a day, and TTL says so'
OVERWRITES = "SET without NX on the key of another value overwrites in Redis"
SHORTENS = 'prolonging by less than is left shortens in Redis; here no lease is shortened'
LISTS = "it counts the signals in a list; there are no lists, and BLPOP answers when the lock is free"
RESET = 'T11 and T12 take locks from any holder, and are refused'

KNOWN = {
    'bsm/redislock': {
        'TestObtain_custom_token': 'T25 with the same token and other metadata is another value here',
        'TestLock_Refresh': SHORTENS,
        'TestLock_Release_not_own': OVERWRITES,
    },
    'python-redis-lock': {
        'test_extend_lock_without_expire_fail': NO_TTL,
        'test_release_from_nonblocking_leaving_garbage': LISTS,
        'test_signal_expiration': LISTS,
        'test_reset': RESET,
        'test_reset_all': RESET,
        'test_reset_signalizes': RESET,
        'test_reset_all_signalizes': RESET,
    },
    'rslock': {
        'test_redis_key_mismatch': OVERWRITES,
        'test_release_preserves_a_different_owner': OVERWRITES,
    },
    'node-redlock 4': {
        'emits a clientError event when a client error occurs': 'a key of another kind is an error in Redis; here it is a lock of another',
    },
    'redis-py': {
        'test_lock': NO_TTL,
        'test_lock_token': NO_TTL,
        'test_lock_token_thread_local_false': NO_TTL,
        'test_reacquire_lock': 'PEXPIRE by less than is left shortens in Redis; here no lease is shortened',
        'test_extending_lock_no_longer_owned_raises_error': OVERWRITES,
        'test_reacquiring_lock_no_longer_owned_raises_error': OVERWRITES,
        'test_releasing_lock_no_longer_owned_raises_error': OVERWRITES,
        'test_context_manager_reacquiring_lock_no_longer_owned_raises_error': OVERWRITES,
    },
}

# Tests that pass nowhere here, and why.
FAILS_ON_REDIS = {
    'pottery': {'test_releaseunlockedlock_repr': 'it expects the text that an older redis-py gives for a client'},
}
