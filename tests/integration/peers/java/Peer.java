// Redisson as a peer: see redlock_peers.py for the lines that it reads and writes.
//
// Its RedissonRedLock is a set of hashes, one a server, so a key of ours is an error to it, and not a lock that is
// held by somebody. Such an error is reported as one.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Peer {
    private final List<RedissonClient> clients = new ArrayList<>();
    private RLock held;

    private Peer(String addresses) {
        for (String address : addresses.split(",")) {
            Config config = new Config();
            config.setThreads(2).setNettyThreads(2);
            config.useSingleServer().setAddress("redis://" + address).setConnectionPoolSize(4)
                .setTimeout(240000).setConnectTimeout(240000) // 3 s and 10 s are short for a busy machine
                .setConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1);
            clients.add(Redisson.create(config));
        }
    }

    private RLock lockOf(String key) {
        if (clients.size() == 1) {
            return clients.get(0).getLock(key);
        }
        return new RedissonRedLock(clients.stream().map(c -> c.getLock(key)).toArray(RLock[]::new));
    }

    private String run(String[] words) throws InterruptedException {
        if (words[0].equals("lock")) {
            RLock lock = lockOf(words[1]);
            if (!lock.tryLock(0, Long.parseLong(words[2]), TimeUnit.MILLISECONDS)) {
                return "refused";
            }
            held = lock;
            return "held";
        }
        try {
            held.unlock();
            return "freed";
        } catch (IllegalMonitorStateException e) {
            return "lost";
        }
    }

    public static void main(String[] args) throws Exception {
        Peer peer = new Peer(args[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = peer.run(line.split(" "));
            } catch (RuntimeException e) {
                answer = "error " + String.valueOf(e.getMessage()).replace('\n', ' ');
            }
            System.out.println(answer);
        }
        System.exit(0);
    }
}
