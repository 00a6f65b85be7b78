package io.github.fencelock.spring;

import io.github.fencelock.Fencelock;
import io.github.fencelock.Lease;
import io.github.fencelock.Options;
import io.github.fencelock.jdbc.Fence;
import java.lang.reflect.Method;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.sql.DataSource;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.convert.DurationStyle;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.Ordered;
import org.springframework.core.ParameterNameDiscoverer;
import org.springframework.expression.Expression;
import org.springframework.expression.spel.standard.SpelExpressionParser;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/** Takes the lock, claims, and lets the transactions of the method know the lease. */
final class FencedInterceptor implements MethodInterceptor {
    /** Outside of transactions, which are last; inside of retries, so that each takes the lock again. */
    static final int ORDER = Ordered.LOWEST_PRECEDENCE - 1;

    private static final ThreadLocal<Deque<Lease>> LEASES = ThreadLocal.withInitial(ArrayDeque::new);

    private final ParameterNameDiscoverer names = new DefaultParameterNameDiscoverer();
    private final SpelExpressionParser parser = new SpelExpressionParser();
    private final Map<String, Expression> expressions = new ConcurrentHashMap<>();
    private final ObjectProvider<Fencelock> locks;
    private final ObjectProvider<FencelockProperties> properties;
    private final ObjectProvider<DataSource> database;

    FencedInterceptor(ObjectProvider<Fencelock> locks, ObjectProvider<FencelockProperties> properties, ObjectProvider<DataSource> database) {
        this.locks = locks;
        this.properties = properties;
        this.database = database;
    }

    /** The lease of the innermost Fenced method of this thread; null when there is none. */
    static Lease current() {
        return LEASES.get().peekLast();
    }

    @Override
    public Object invoke(MethodInvocation call) throws Throwable {
        Method method = AopUtils.getMostSpecificMethod(call.getMethod(), call.getThis() == null ? null : call.getThis().getClass());
        Fenced fenced = method.getAnnotation(Fenced.class);
        if (TransactionSynchronizationManager.isActualTransactionActive()) {
            throw new IllegalStateException("@Fenced " + method + " is called in a transaction that began before the lock was taken:"
                + " it may have read what an earlier holder changed. Put @Fenced on the method that begins the transaction");
        }
        Options options = Options.NONE.waitFor(DurationStyle.detectAndParse(fenced.waitFor()))
            .ttl(fenced.ttl().isEmpty() ? properties.getObject().ttl() : DurationStyle.detectAndParse(fenced.ttl()));
        try (Lease lease = locks.getObject().acquire(name(fenced, method, call), options).interruptOnLoss()) {
            return run(call, lease);
        }
    }

    private Object run(MethodInvocation call, Lease lease) throws Throwable {
        LEASES.get().addLast(lease);
        try {
            DataSource db = database.getIfUnique();
            if (db != null) {
                Fence.claim(db, lease);
            }
            return call.proceed();
        } catch (Exception e) {
            throw Fence.translate(e);
        } finally {
            LEASES.get().removeLast();
        }
    }

    private String name(Fenced fenced, Method method, MethodInvocation call) {
        Expression e = expressions.computeIfAbsent(fenced.lock(), parser::parseExpression);
        Object name = e.getValue(new MethodBasedEvaluationContext(call.getThis(), method, call.getArguments(), names));
        if (name == null) {
            throw new IllegalArgumentException("@Fenced(lock = \"" + fenced.lock() + "\") is null for this call of " + method);
        }
        return name.toString();
    }
}
