// Spring Integration's RedisLockRegistry as a peer: see redlock_peers.py for the lines that it reads and writes.

import io.lettuce.core.ClientOptions;
import io.lettuce.core.SslOptions;
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

    public static void main(String[] args) throws Exception {
        Spring peer = new Spring(args[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
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
