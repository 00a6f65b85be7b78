// The probe of the Java driver: see tests/drivers/suite. It takes commands from standard input and prints what it believes.

import io.github.fencelock.ClosedException;
import io.github.fencelock.Election;
import io.github.fencelock.Fencelock;
import io.github.fencelock.FencelockException;
import io.github.fencelock.Lease;
import io.github.fencelock.LostException;
import io.github.fencelock.NotAcquiredException;
import io.github.fencelock.Options;
import io.github.fencelock.RefusedException;
import io.github.fencelock.ReleasedException;
import io.github.fencelock.StaleException;
import io.github.fencelock.UnavailableException;
import io.github.fencelock.UncertainException;
import io.github.fencelock.jdbc.Fence;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.sql.Connection;
import java.sql.ResultSet;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.postgresql.ds.PGSimpleDataSource;

public class Probe {
    private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    private static final Map<String, Lease> LEASES = new ConcurrentHashMap<>();
    private static final Map<String, AutoCloseable> CANCELS = new ConcurrentHashMap<>();
    private static Fencelock locks;

    private static final double AHEAD_MS = ahead();

    /** CLOCK_BOOTTIME less the clock of System.nanoTime, measured when /proc/uptime has just gone on by a step. */
    private static double ahead() {
        String first = uptime();
        while (true) {
            String text = uptime();
            if (!text.equals(first)) {
                return Double.parseDouble(text) * 1000 - System.nanoTime() / 1e6;
            }
        }
    }

    private static String uptime() {
        try {
            return Files.readString(Path.of("/proc/uptime")).split(" ")[0];
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static double bootMs() {
        return System.nanoTime() / 1e6 + AHEAD_MS;
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number) {
            return String.valueOf(value);
        }
        StringBuilder b = new StringBuilder("\"");
        for (char c : value.toString().toCharArray()) {
            b.append(c == '"' || c == '\\' || c < ' ' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        return b.append('"').toString();
    }

    private static void say(String id, String event, Object... more) {
        StringBuilder b = new StringBuilder("{\"at\": " + bootMs() + ", \"id\": " + json(id) + ", \"event\": " + json(event));
        for (int i = 0; i < more.length; i += 2) {
            b.append(", ").append(json(more[i])).append(": ").append(json(more[i + 1]));
        }
        OUT.println(b.append('}'));
    }

    private static String wordOf(Throwable e) {
        if (e == null) {
            return null;
        }
        Map<Class<?>, String> words = Map.of(NotAcquiredException.class, "notacquired", UncertainException.class, "uncertain",
            InterruptedException.class, "uncertain", UnavailableException.class, "unavailable", ReleasedException.class, "released",
            LostException.class, "lost", ClosedException.class, "closed", IllegalArgumentException.class, "argument");
        return e instanceof RefusedException r ? r.word() : words.getOrDefault(e.getClass(), e.toString());
    }

    private static Options options(String[] words, int from) {
        Options o = Options.NONE;
        for (int i = from; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            o = switch (pair[0]) {
                case "ttl" -> o.ttl(Duration.ofMillis(Long.parseLong(pair[1])));
                case "wait" -> o.waitFor(Duration.ofMillis(Long.parseLong(pair[1])));
                case "shared" -> o.shared();
                case "permits" -> o.permits(Integer.parseInt(pair[1]));
                case "also" -> o.also(pair[1].split(","));
                default -> throw new IllegalStateException(words[i]);
            };
        }
        return o;
    }

    private static Throwable errorOf(Lease l) {
        try {
            l.check();
            return null;
        } catch (FencelockException e) {
            return e;
        }
    }

    /** Notes the last moment at which the lease was believed in, every few milliseconds, and tells of the loss. */
    private static void believe(String id, Lease l) {
        double last = 0; // it may have been stopped before its first look
        for (double at = bootMs(); errorOf(l) == null; at = bootMs()) {
            last = at;
            try {
                Thread.sleep(5);
            } catch (InterruptedException e) {
                // it goes on
            }
        }
        double noticed = bootMs();
        if (errorOf(l) instanceof LostException) {
            Semaphore told = new Semaphore(0);
            l.onLost(told::release);
            told.acquireUninterruptibly();
        }
        say(id, "ended", "why", wordOf(errorOf(l)), "believed", last, "noticed", noticed);
    }

    private static void acquire(String id, String[] words) {
        Lease l;
        try {
            l = locks.acquire(words[2], options(words, 3));
        } catch (Exception e) {
            say(id, "failed", "error", wordOf(e), "text", String.valueOf(e));
            return;
        }
        LEASES.put(id, l);
        say(id, "acquired", "token", l.token());
        believe(id, l);
    }

    private static void release(String id) {
        double began = bootMs();
        Throwable error = null;
        try {
            LEASES.get(id).release();
        } catch (FencelockException e) {
            error = e;
        }
        say(id, "released", "error", wordOf(error), "took", bootMs() - began);
    }

    private static void many(String id, String[] words) throws Exception {
        int n = Integer.parseInt(words[3]);
        Semaphore gate = new Semaphore(32);
        Semaphore done = new Semaphore(0);
        AtomicInteger failed = new AtomicInteger();
        AtomicInteger lost = new AtomicInteger();
        for (int i = 0; i < n; i++) {
            String name = words[2] + "-" + i;
            gate.acquire();
            locks.acquireAsync(name, options(words, 4)).whenComplete((l, e) -> {
                gate.release();
                if (e != null) {
                    failed.incrementAndGet();
                } else {
                    l.onLost(lost::incrementAndGet);
                }
                done.release();
            });
        }
        done.acquire(n);
        say(id, "many", "acquired", n - failed.get());
        while (true) {
            Thread.sleep(200);
            say(id, "count", "lost", lost.get());
        }
    }

    private static void elect(String id, String[] words) {
        Election e = locks.elect(words[2], options(words, 3), (Lease l) -> {
            say(id, "leads", "token", l.token());
            start(() -> believe(id, l));
            Thread.sleep(Long.MAX_VALUE);
        });
        CANCELS.put(id, () -> start(() -> {
            e.close();
            say(id, "resigned", "error", null);
        }));
    }

    /** Adds one to a balance, n times, under the lock and through the guard, and prints how each addition ended. */
    private static void work(String id, String[] words) throws Exception {
        String name = words[2];
        PGSimpleDataSource db = new PGSimpleDataSource();
        db.setUrl(jdbc(words[3]));
        for (int i = 0; i < Integer.parseInt(words[4]); i++) {
            boolean[] committing = {false};
            Exception error = null;
            try (Lease l = locks.acquire(name, options(words, 5))) {
                Fence fence = Fence.claim(db, l);
                int balance;
                try (Connection c = db.getConnection()) {
                    ResultSet r = c.createStatement().executeQuery("SELECT balance FROM account WHERE lock = '" + name + "'");
                    r.next();
                    balance = r.getInt(1);
                }
                committing[0] = true;
                fence.transaction(c -> c.createStatement().executeUpdate("UPDATE account SET balance = " + (balance + 1) + " WHERE lock = '" + name + "'"));
            } catch (Exception e) {
                error = e;
            }
            if (error == null) {
                say(id, "added");
            } else if (error instanceof StaleException) {
                say(id, "stale");
            } else {
                say(id, committing[0] ? "perhaps" : "not added", "text", String.valueOf(error));
            }
        }
        say(id, "worked");
    }

    /** The URL of libpq as one of JDBC. */
    static String jdbc(String url) {
        URI u = URI.create(url);
        Map<String, String> more = new HashMap<>();
        for (String pair : (u.getRawQuery() == null ? "" : u.getRawQuery()).split("&")) {
            String[] kv = pair.split("=", 2);
            more.put(kv[0], kv.length > 1 ? kv[1] : "");
        }
        String host = u.getHost() != null ? u.getHost() : "127.0.0.1"; // it listens there beside its socket, which JDBC cannot use
        String port = u.getPort() > 0 ? String.valueOf(u.getPort()) : more.getOrDefault("port", "5432");
        String[] login = (u.getUserInfo() == null ? more.getOrDefault("user", "postgres") : u.getUserInfo()).split(":", 2);
        return "jdbc:postgresql://" + host + ":" + port + u.getPath() + "?user=" + login[0] + (login.length > 1 ? "&password=" + login[1] : "");
    }

    private interface Does {
        void run() throws Exception;
    }

    private static Thread start(Does what) {
        Thread t = new Thread(() -> {
            try {
                what.run();
            } catch (Throwable e) {
                say("", "died", "text", String.valueOf(e));
            }
        });
        t.setDaemon(true);
        t.start();
        return t;
    }

    private static void command(String[] words) throws Exception {
        String id = words[1];
        switch (words[0]) {
            case "acquire" -> CANCELS.put(id, start(() -> acquire(id, words))::interrupt);
            case "elect" -> elect(id, words);
            case "watch" -> CANCELS.put(id, locks.watch(words[2], e -> say(id, "event", "kind", e.kind(), "lock", e.lock(), "token", e.token())));
            case "many" -> start(() -> many(id, words));
            case "work" -> start(() -> work(id, words));
            case "cancel" -> CANCELS.get(id).close();
            case "release" -> start(() -> release(id));
            case "state" -> say(id, "state", "state", LEASES.get(id).state().toString().toLowerCase(), "remaining",
                LEASES.get(id).remaining().toMillis(), "error", wordOf(errorOf(LEASES.get(id))));
            case "threads" -> say(id, "threads", "n", Thread.activeCount());
            case "close" -> {
                locks.close();
                say(id, "closed", "error", null);
            }
            case "die" -> Runtime.getRuntime().halt(137);
            default -> throw new IllegalStateException(words[0]);
        }
    }

    private static SSLContext trusting(String ca) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream in = new FileInputStream(ca)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, factory.getTrustManagers(), null);
        return context;
    }

    public static void main(String[] args) throws Exception {
        String ca = System.getenv("PROBE_CA");
        locks = ca == null ? Fencelock.connect(args[0]) : Fencelock.connect(args[0], trusting(ca));
        say("", "ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            command(line.trim().split(" +"));
        }
    }
}
