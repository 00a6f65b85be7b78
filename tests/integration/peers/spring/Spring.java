// Spring Integration's RedisLockRegistry as a peer: see redlock_peers.py for the lines that it reads and writes.

import io.lettuce.core.ClientOptions;
import io.lettuce.core.SslOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.ConcurrentModificationException;
import java.util.concurrent.locks.Lock;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;

public class Spring {
    private final LettuceConnectionFactory factory;
    private RedisLockRegistry registry;
    private Lock lock;
    private String key;

    private Spring(String address) {
        String[] place = address.split(":");
        RedisStandaloneConfiguration server = new RedisStandaloneConfiguration(place[0], Integer.parseInt(place[1]));
        LettuceClientConfiguration.LettuceClientConfigurationBuilder client = LettuceClientConfiguration.builder();
        if (System.getenv("PEER_USER") != null) {
            server.setUsername(System.getenv("PEER_USER"));
            server.setPassword(System.getenv("PEER_PASSWORD"));
        }
        if (System.getenv("PEER_CA") != null) {
            SslOptions tls = SslOptions.builder().trustManager(new File(System.getenv("PEER_CA"))).build();
            client.clientOptions(ClientOptions.builder().sslOptions(tls).build()).useSsl();
        }
        factory = new LettuceConnectionFactory(server, client.build());
        factory.afterPropertiesSet();
        factory.start();
    }

    private String run(String[] words) {
        if (words[0].equals("lock")) { // a registry has one length for all its leases
            RedisLockRegistry next = new RedisLockRegistry(factory, "spring", Long.parseLong(words[2]));
            Lock wanted = next.obtain(words[1]);
            if (!wanted.tryLock()) {
                return "refused";
            }
            registry = next;
            lock = wanted;
            key = words[1];
            return "held";
        }
        try {
            if (words[0].equals("extend")) {
                registry.renewLock(key);
                return "held";
            }
            lock.unlock();
            return "freed";
        } catch (IllegalStateException | ConcurrentModificationException e) {
            return "lost";
        }
    }

    /** Lettuce, set up for a Redis Cluster. */
    private static String runCluster(String address) {
        try (RedisClusterClient client = RedisClusterClient.create("redis://" + address)) {
            client.connect().sync().set("key", "value");
            return "held";
        } catch (RuntimeException e) {
            StringBuilder why = new StringBuilder("error");
            for (Throwable t = e; t != null; t = t.getCause()) {
                why.append(' ').append(t);
                for (Throwable also : t.getSuppressed()) {
                    why.append(' ').append(also);
                }
            }
            return why.toString().replace('\n', ' ');
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        if (args.length > 1) {
            lines.readLine();
            System.out.println(runCluster(args[0]));
            System.exit(0);
        }
        Spring peer = new Spring(args[0]);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = peer.run(line.split(" "));
            } catch (RuntimeException e) {
                answer = "error " + (e + " " + e.getCause()).replace('\n', ' ');
            }
            System.out.println(answer);
        }
        System.exit(0);
    }
}
