// ShedLock's provider for Redis through Spring as a peer: see redlock_peers.py for the lines that it reads and writes.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

public class Shed {
    private static SimpleLock lock;

    private static LockProvider provider(String host, int port) {
        LettuceConnectionFactory factory = new LettuceConnectionFactory(new RedisStandaloneConfiguration(host, port));
        factory.afterPropertiesSet();
        factory.start();
        return new RedisLockProvider(factory, "peer");
    }

    private static String run(LockProvider provider, String[] words) {
        if (words[0].equals("lock")) {
            Duration length = Duration.ofMillis(Long.parseLong(words[2]));
            Optional<SimpleLock> got = provider.lock(new LockConfiguration(Instant.now(), words[1], length, Duration.ZERO));
            lock = got.orElse(lock);
            return got.isPresent() ? "held" : "refused";
        }
        if (words[0].equals("extend")) {
            Optional<SimpleLock> got = lock.extend(Duration.ofMillis(Long.parseLong(words[1])), Duration.ZERO);
            lock = got.orElse(lock);
            return got.isPresent() ? "held" : "lost";
        }
        lock.unlock();
        return "done";
    }

    public static void main(String[] args) throws Exception {
        String[] place = args[0].split(":");
        LockProvider provider = provider(place[0], Integer.parseInt(place[1]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = run(provider, line.split(" "));
            } catch (RuntimeException e) {
                answer = "error";
                for (Throwable t = e; t != null; t = t.getCause()) {
                    answer += " " + t.toString().replace('\n', ' ');
                }
            }
            System.out.println(answer);
        }
        System.exit(0);
    }
}
