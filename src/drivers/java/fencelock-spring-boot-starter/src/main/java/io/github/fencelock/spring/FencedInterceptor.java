package io.github.fencelock.spring;

import io.github.fencelock.Fencelock;
import io.github.fencelock.FencelockException;
import io.github.fencelock.Lease;
import io.github.fencelock.Options;
import io.github.fencelock.jdbc.Fence;
import java.lang.reflect.Method;
import java.sql.SQLException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.sql.DataSource;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.convert.DurationStyle;
import org.springframework.core.Ordered;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.dao.DataAccessException;
import org.springframework.jdbc.UncategorizedSQLException;
import org.springframework.jdbc.support.SQLExceptionSubclassTranslator;
import org.springframework.transaction.support.TransactionSynchronizationManager;
import org.springframework.util.ReflectionUtils;

/** Takes the lock, claims, and lets the transactions of the method know the lease. */
final class FencedInterceptor implements MethodInterceptor {
    /** Outside of transactions, which are last; inside of retries, so that each takes the lock again. */
    static final int ORDER = Ordered.LOWEST_PRECEDENCE - 1;

    private final Map<Method, LockName> names = new ConcurrentHashMap<>();
    private final ObjectProvider<Fencelock> locks;
    private final ObjectProvider<FencelockProperties> properties;
    private final ObjectProvider<DataSource> database;

    FencedInterceptor(ObjectProvider<Fencelock> locks, ObjectProvider<FencelockProperties> properties, ObjectProvider<DataSource> database) {
        this.locks = locks;
        this.properties = properties;
        this.database = database;
    }

    @Override
    public Object invoke(MethodInvocation call) throws Throwable {
        Method method = AopUtils.getMostSpecificMethod(call.getMethod(), call.getThis() == null ? null : call.getThis().getClass());
        Fenced fenced = AnnotatedElementUtils.findMergedAnnotation(method, Fenced.class);
        if (TransactionSynchronizationManager.isActualTransactionActive()) {
            throw new IllegalStateException("@Fenced " + method + " is called in a transaction that began before the lock was taken:"
                + " it may have read what an earlier holder changed. Put @Fenced on the method that begins the transaction");
        }
        Options options = Options.NONE.waitFor(DurationStyle.detectAndParse(fenced.waitFor()))
            .ttl(fenced.ttl().isEmpty() ? properties.getObject().ttl() : DurationStyle.detectAndParse(fenced.ttl()));
        String name = names.computeIfAbsent(method, m -> new LockName(fenced.lock(), m)).of(call);
        try (Lease lease = acquire(name, options, method).interruptOnLoss()) {
            return run(call, lease);
        }
    }

    private Lease acquire(String name, Options options, Method method) throws InterruptedException {
        Fencelock client = locks.getIfAvailable();
        if (client == null) {
            throw new IllegalStateException("@Fenced " + method + " has no nodes to take its lock from: set the property fencelock.url");
        }
        try {
            return client.acquire(name, options);
        } catch (InterruptedException e) {
            if (ReflectionUtils.declaresException(method, InterruptedException.class)) {
                throw e;
            }
            Thread.currentThread().interrupt();
            throw new Interrupted(name, e);
        }
    }

    /** For methods that do not declare the checked exception: a proxy would hide it. */
    private static final class Interrupted extends FencelockException {
        private static final long serialVersionUID = 1;

        Interrupted(String name, InterruptedException cause) {
            super("interrupted while it waited for the lock " + name, cause);
        }
    }

    private Object run(MethodInvocation call, Lease lease) throws Throwable {
        Leases.begin(lease);
        try {
            DataSource db = database.getIfUnique();
            if (db != null) {
                claim(db, lease);
            }
            return call.proceed();
        } catch (Exception e) {
            throw Fence.translate(e);
        } finally {
            Leases.end();
        }
    }

    private static void claim(DataSource db, Lease lease) {
        try {
            Fence.claim(db, lease);
        } catch (SQLException e) {
            throw translated("tell the database of a lease (it needs the guard: fencelock guard install)", e);
        }
    }

    /** An error of the database as Spring's programs know it. */
    static DataAccessException translated(String task, SQLException e) {
        DataAccessException known = new SQLExceptionSubclassTranslator().translate(task, null, e);
        return known != null ? known : new UncategorizedSQLException(task, null, e);
    }
}
