package io.github.fencelock.quartz;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.fencelock.ClosedException;
import io.github.fencelock.Fencelock;
import io.github.fencelock.Lease;
import io.github.fencelock.Options;
import io.github.fencelock.test.FencelockServer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.quartz.InterruptableJob;
import org.quartz.Job;
import org.quartz.JobBuilder;
import org.quartz.JobDetail;
import org.quartz.JobExecutionContext;
import org.quartz.JobExecutionException;
import org.quartz.JobKey;
import org.quartz.JobListener;
import org.quartz.Scheduler;
import org.quartz.TriggerBuilder;
import org.quartz.UnableToInterruptJobException;
import org.quartz.impl.StdSchedulerFactory;
import org.quartz.simpl.PropertySettingJobFactory;

/** With a node of the service, and schedulers that know nothing of each other. */
@Timeout(value = 240, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FencelockJobFactoryTest {
    private static final Options LONG = Options.NONE.ttl(Duration.ofHours(1));
    private static final Duration HOUR = Duration.ofHours(1);

    private static FencelockServer server;
    private static final List<Long> TOKENS = new ArrayList<>();
    private static CountDownLatch begun;
    private static CountDownLatch finish;

    private final List<Fencelock> clients = new ArrayList<>();
    private final List<Scheduler> schedulers = new ArrayList<>();

    @BeforeAll
    static void start() {
        server = FencelockServer.start();
    }

    @AfterAll
    static void end() {
        server.close();
    }

    @BeforeEach
    void reset() {
        TOKENS.clear();
        begun = new CountDownLatch(1);
        finish = new CountDownLatch(1);
    }

    @AfterEach
    void close() throws Exception {
        finish.countDown();
        for (Scheduler s : schedulers) {
            s.shutdown(true);
        }
        clients.forEach(Fencelock::close);
    }

    /** A run that a scheduler has begun and ended; no error: it went well, or was skipped. */
    private record Ran(JobExecutionException error) { }

    /** A process of its own: scheduler, client, and what its listener was told. */
    private final class Instance implements JobListener {
        private final Fencelock locks = Fencelock.connect(server.url());
        private final Scheduler scheduler;
        private final BlockingQueue<Ran> ran = new LinkedBlockingQueue<>();

        Instance(Duration atLeast) throws Exception {
            Properties p = new Properties();
            p.setProperty("org.quartz.scheduler.instanceName", "scheduler-" + schedulers.size());
            p.setProperty("org.quartz.threadPool.threadCount", "2");
            scheduler = new StdSchedulerFactory(p).getScheduler();
            scheduler.setJobFactory(new FencelockJobFactory(locks, LONG, atLeast, new PropertySettingJobFactory()));
            scheduler.getListenerManager().addJobListener(this);
            schedulers.add(scheduler);
            clients.add(locks);
            scheduler.start();
        }

        JobExecutionException fire(Class<? extends Job> job) throws Exception {
            fireOnly(job);
            return ran.take().error();
        }

        void fireOnly(Class<? extends Job> job) throws Exception {
            JobDetail detail = JobBuilder.newJob(job).withIdentity(key(job)).build();
            scheduler.scheduleJob(detail, TriggerBuilder.newTrigger().startNow().build());
        }

        boolean isFree(Class<? extends Job> job) throws Exception {
            return locks.holder("quartz/" + key(job)).isEmpty();
        }

        @Override
        public String getName() {
            return "test";
        }

        @Override
        public void jobToBeExecuted(JobExecutionContext context) { }

        @Override
        public void jobExecutionVetoed(JobExecutionContext context) { }

        @Override
        public void jobWasExecuted(JobExecutionContext context, JobExecutionException error) {
            ran.add(new Ran(error));
        }
    }

    private static JobKey key(Class<? extends Job> job) {
        return JobKey.jobKey(job.getSimpleName(), "test");
    }

    /** Notes its token. */
    public static class Nightly implements Job {
        @Override
        public void execute(JobExecutionContext context) {
            Lease lease = FencelockJobFactory.lease(context);
            assertEquals("quartz/test.Nightly", lease.name());
            lease.check();
            TOKENS.add(lease.token());
        }
    }

    /** Fails. */
    public static class Failing implements Job {
        @Override
        public void execute(JobExecutionContext context) throws JobExecutionException {
            throw new JobExecutionException("of the job");
        }
    }

    /** Runs until it is interrupted or may finish. */
    public static class Endless implements Job {
        @Override
        public void execute(JobExecutionContext context) throws JobExecutionException {
            begun.countDown();
            try {
                finish.await();
            } catch (InterruptedException e) {
                throw new JobExecutionException(FencelockJobFactory.lease(context).isLost() ? "lost" : "interrupted");
            }
        }
    }

    /** Runs until Quartz is asked to interrupt it. */
    public static class Polite extends Endless implements InterruptableJob {
        @Override
        public void interrupt() {
            finish.countDown();
        }
    }

    @Test
    void oneOfTwoSchedulersRunsIt() throws Exception {
        Instance one = new Instance(HOUR);
        Instance two = new Instance(HOUR);
        one.fireOnly(Nightly.class);
        two.fireOnly(Nightly.class);
        assertNull(one.ran.take().error());
        assertNull(two.ran.take().error());
        assertEquals(1, TOKENS.size());
    }

    /** The other scheduler's clock is late, and the job is over. */
    @Test
    void theLockIsKeptForAWhile() throws Exception {
        Instance one = new Instance(HOUR);
        assertNull(one.fire(Nightly.class));
        assertNull(new Instance(HOUR).fire(Nightly.class));
        assertEquals(1, TOKENS.size());
        one.locks.close();
        assertNull(new Instance(Duration.ofSeconds(2)).fire(Nightly.class));
        assertEquals(2, TOKENS.size());
        Instance three = new Instance(Duration.ZERO);
        while (!three.isFree(Nightly.class)) {
            Thread.sleep(5);
        }
        assertNull(three.fire(Nightly.class));
        assertEquals(TOKENS.stream().sorted().distinct().toList(), TOKENS);
        assertEquals(3, TOKENS.size());
    }

    @Test
    void aJobThatFailsGivesItsLockBack() throws Exception {
        Instance one = new Instance(Duration.ZERO);
        assertEquals("of the job", one.fire(Failing.class).getMessage());
        assertTrue(one.isFree(Failing.class));
    }

    @Test
    void aLossInterruptsTheJob() throws Exception {
        Instance one = new Instance(HOUR);
        one.fireOnly(Endless.class);
        begun.await();
        one.locks.close(); // all its leases are lost
        assertEquals("lost", one.ran.take().error().getMessage());
    }

    @Test
    void quartzCanInterruptTheJob() throws Exception {
        Instance one = new Instance(Duration.ZERO);
        one.fireOnly(Polite.class);
        begun.await();
        one.scheduler.interrupt(key(Polite.class));
        assertNull(one.ran.take().error());
        begun = new CountDownLatch(1);
        finish = new CountDownLatch(1);
        one.fireOnly(Endless.class);
        begun.await();
        UnableToInterruptJobException e = assertThrows(UnableToInterruptJobException.class, () -> one.scheduler.interrupt(key(Endless.class)));
        assertTrue(e.getMessage().contains("Endless is no InterruptableJob"), e.getMessage());
    }

    @Test
    void withoutALockNothingRuns() throws Exception {
        Instance one = new Instance(Duration.ZERO);
        one.locks.close();
        JobExecutionException e = one.fire(Nightly.class);
        assertInstanceOf(ClosedException.class, e.getCause());
        assertTrue(e.getMessage().contains("quartz/test.Nightly"), e.getMessage());
        assertTrue(TOKENS.isEmpty());
    }

    @Test
    void arguments() throws Exception {
        Fencelock locks = Fencelock.connect(server.url());
        clients.add(locks);
        assertThrows(IllegalArgumentException.class, () -> new FencelockJobFactory(locks, Duration.ofMillis(-1)));
        new FencelockJobFactory(locks, Duration.ZERO);
    }
}
