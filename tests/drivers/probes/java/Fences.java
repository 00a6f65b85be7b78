// Each fence of the Java driver, with an older and a newer lease of one lock: see tests/drivers/suite, test_fences.

import io.github.fencelock.Fencelock;
import io.github.fencelock.Lease;
import io.github.fencelock.LostException;
import io.github.fencelock.Options;
import io.github.fencelock.StaleException;
import io.github.fencelock.jdbc.Fence;
import java.io.InputStream;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import org.postgresql.ds.PGSimpleDataSource;

public class Fences {
    private static final String ADD = "UPDATE account SET balance = balance + 1 WHERE lock = 'job'";
    private static final Options WAITS = Options.NONE.waitFor(Duration.ofMinutes(4));
    private static final String URL = System.getenv("FENCELOCK_URL");
    private static final PGSimpleDataSource DB = new PGSimpleDataSource();

    private interface Step {
        void run() throws Exception;
    }

    /** Ends the program unless the step throws what was wanted; null: nothing. */
    private static void must(String what, Step step, Class<?> wanted) {
        Throwable error = null;
        try {
            step.run();
        } catch (Throwable e) {
            error = e;
        }
        if (wanted == null ? error != null : !wanted.isInstance(error)) {
            fail(what + ": " + error + ", and not " + wanted);
        }
        for (Throwable e = error; error instanceof StaleException && e != null; e = e.getCause()) {
            if (e instanceof SQLException) {
                fail(what + ": the error of the database is inside, so frameworks may repeat it");
            }
        }
    }

    private static void fail(String what) {
        System.err.println(what);
        System.exit(1);
    }

    private interface Write {
        void run(Lease lease, Fence fence) throws SQLException;
    }

    private static void operatorBreaks() throws Exception {
        URI node = URI.create(URL.split(",")[0]);
        try (Socket s = new Socket(node.getHost(), node.getPort())) {
            s.getOutputStream().write("BREAK job\r\n".getBytes(StandardCharsets.US_ASCII));
            InputStream in = s.getInputStream();
            if (in.read() == '-') {
                fail("BREAK was refused");
            }
        }
    }

    /** The older lease is one of a client that does not know yet that it is over. */
    private static void attack(Fencelock locks, String what, Write write) throws Exception {
        try (Fencelock other = Fencelock.connect(URL)) {
            Lease older = other.acquire("job", WAITS.ttl(Duration.ofHours(1)));
            Fence late = Fence.claim(DB, older);
            must(what + ": a write", () -> write.run(older, late), null);
            operatorBreaks();
            Lease newer = locks.acquire("job", WAITS);
            Fence good = Fence.claim(DB, newer);
            must(what + ": a write of the older one", () -> write.run(older, late), StaleException.class);
            must(what + ": a claim of the older one", () -> Fence.claim(DB, older), StaleException.class);
            must(what + ": a write of the newer one", () -> write.run(newer, good), null);
            newer.release();
        }
    }

    /** The commit of a lease that was lost meanwhile is not sent. */
    private static void lostBeforeTheCommit() throws Exception {
        Fencelock other = Fencelock.connect(URL);
        Lease lease = other.acquire("job", WAITS);
        Fence fence = Fence.claim(DB, lease);
        must("a commit after the loss", () -> fence.transaction(c -> {
            c.createStatement().executeUpdate("UPDATE account SET balance = -1 WHERE lock = 'job'");
            other.close();
        }), LostException.class);
        try (Connection c = DB.getConnection(); Statement s = c.createStatement(); var r = s.executeQuery("SELECT balance FROM account")) {
            if (!r.next() || r.getInt(1) < 0) {
                fail("the transaction of a lost lease was committed");
            }
        }
    }

    public static void main(String[] args) throws Exception {
        DB.setUrl(Probe.jdbc(System.getenv("POSTGRES_URL")));
        try (Fencelock locks = Fencelock.connect(URL)) {
            attack(locks, "a transaction", (lease, fence) -> fence.transaction(c -> c.createStatement().executeUpdate(ADD)));
            attack(locks, "a batch", (lease, fence) -> fence.transaction(c -> {
                try (PreparedStatement s = c.prepareStatement(ADD)) {
                    s.addBatch();
                    s.addBatch();
                    s.executeBatch();
                }
            }));
            attack(locks, "a transaction of one's own", (lease, fence) -> {
                try (Connection c = DB.getConnection()) {
                    c.setAutoCommit(false);
                    Fence.use(c, lease);
                    c.createStatement().executeUpdate(ADD);
                    c.commit();
                } catch (SQLException e) {
                    throw Fence.translate(e);
                }
            });
        }
        lostBeforeTheCommit();
    }
}
