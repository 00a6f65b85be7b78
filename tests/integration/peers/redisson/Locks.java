// Redisson's locks as a peer: see tests/lib/redlock_peers_lab.py for the lines that it reads and writes.
//
//   Locks ADDRESS,... [single | sentinel [WATCHDOG_MS [TRUSTSTORE USER PASSWORD]]]
//
// `kind K` says which lock is meant from there on: rlock, fenced, spin, multi, redlock or once. Times are milliseconds, and a
// lease of -1 is one that the watchdog renews. Each line is done by a thread of its own name (`as NAME ...`), since a
// thread is an owner; without one it is done by the main thread.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.LongCodec;
import org.redisson.config.BaseConfig;
import org.redisson.config.Config;

public class Locks {
    private static final String TOKEN = "return redis.call('locktoken', KEYS[1], ARGV[1])";
    private final RedissonClient client;
    private final Map<String, ExecutorService> threads = new HashMap<>();
    private String kind = "rlock";
    private String key;
    private RLock held;
    private Object fenced; // what lockAndGetToken() gave

    private static void secure(BaseConfig<?> config, String[] args) throws Exception {
        if (args.length > 5) {
            config.setUsername(args[4]).setPassword(args[5]);
            config.setSslTruststore(new File(args[3]).toURI().toURL()).setSslTruststorePassword("truststore");
        }
    }

    private Locks(String[] args) throws Exception {
        Config config = new Config();
        String scheme = args.length > 5 ? "rediss://" : "redis://";
        String[] at = Arrays.stream(args[0].split(",")).map(a -> scheme + a).toArray(String[]::new);
        config.setThreads(4).setNettyThreads(4).setLockWatchdogTimeout(args.length > 2 ? Long.parseLong(args[2]) : 30000);
        if (args.length > 1 && args[1].equals("sentinel")) {
            secure(config.useSentinelServers().setMasterName("mymaster").addSentinelAddress(at).setScanInterval(200)
                .setMasterConnectionPoolSize(8).setMasterConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionMinimumIdleSize(1), args);
        } else {
            secure(config.useSingleServer().setAddress(at[0]).setConnectionPoolSize(8).setConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionMinimumIdleSize(1), args);
        }
        client = Redisson.create(config);
    }

    // A kind that older releases do not have.
    private RLock newer(String method, String name) throws ReflectiveOperationException {
        return (RLock) client.getClass().getMethod(method, String.class).invoke(client, name);
    }

    private RLock lockOf(String name) throws ReflectiveOperationException {
        switch (kind) {
        case "fenced":
            return newer("getFencedLock", name);
        case "once":
            return newer("getNonReentrantLock", name);
        case "spin":
            return client.getSpinLock(name);
        case "multi":
            return client.getMultiLock(client.getLock(name), client.getLock(name + ".2"), client.getLock(name + ".3"));
        case "redlock":
            return client.getRedLock(client.getLock(name), client.getLock(name + ".2"), client.getLock(name + ".3"));
        default:
            return client.getLock(name);
        }
    }

    private String owner() {
        return client.getId() + ":" + Thread.currentThread().getId();
    }

    private boolean tryLock(RLock lock, long waitMs, long leaseMs) throws Exception {
        if (!kind.equals("fenced")) {
            return lock.tryLock(waitMs, leaseMs, TimeUnit.MILLISECONDS);
        }
        Method method = lock.getClass().getMethod("tryLockAndGetToken", long.class, long.class, TimeUnit.class);
        method.setAccessible(true);
        fenced = method.invoke(lock, waitMs, leaseMs, TimeUnit.MILLISECONDS);
        return fenced != null;
    }

    private String lock(String name, long waitMs, long leaseMs) throws Exception {
        RLock lock = lockOf(name);
        if (!tryLock(lock, waitMs, leaseMs)) {
            return "refused";
        }
        held = lock;
        key = name;
        return "held";
    }

    private String unlock() {
        try {
            held.unlock();
            return "freed";
        } catch (IllegalMonitorStateException e) {
            return "lost";
        }
    }

    private String token() {
        Object token = client.getScript(LongCodec.INSTANCE).eval(RScript.Mode.READ_WRITE, TOKEN,
            RScript.ReturnType.VALUE, Collections.<Object>singletonList(key), owner());
        return token == null ? "none" : "token " + token;
    }

    private String run(String[] words) throws Exception {
        switch (words[0]) {
        case "kind":
            kind = words[1];
            return "done";
        case "lock":
            return lock(words[1], 0, Long.parseLong(words[2]));
        case "wait":
            return lock(words[1], 60000, Long.parseLong(words[2]));
        case "unlock":
            return unlock();
        case "token":
            return token();
        case "fenced": // what the library itself got with the lock
            return "token " + fenced;
        case "gettoken":
            return "token " + held.getClass().getMethod("getToken").invoke(held);
        case "owner":
            return owner();
        case "count":
            return "" + held.getHoldCount();
        case "mine":
            return "" + held.isHeldByCurrentThread();
        case "locked":
            return "" + client.getLock(words[1]).isLocked();
        case "left":
            return "" + client.getLock(words[1]).remainTimeToLive();
        case "force":
            return "" + lockOf(words[1]).forceUnlock();
        default:
            return "error no such word";
        }
    }

    private String answer(String[] words) {
        try {
            return run(words);
        } catch (Exception e) {
            Throwable why = e instanceof java.lang.reflect.InvocationTargetException ? e.getCause() : e;
            return "error " + String.valueOf(why).replace('\n', ' ');
        }
    }

    private String by(String name, String[] words) throws InterruptedException, ExecutionException {
        return threads.computeIfAbsent(name, n -> Executors.newSingleThreadExecutor())
            .submit(() -> answer(words)).get();
    }

    public static void main(String[] args) throws Exception {
        Locks peer = new Locks(args);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            System.out.println(words[0].equals("as") ? peer.by(words[1], Arrays.copyOfRange(words, 2, words.length))
                                                     : peer.answer(words));
        }
        System.exit(0);
    }
}
