// Jedis as a driver: see ../run for what each has to do and print.

import java.io.FileInputStream;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManagerFactory;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisException;

public class Drive {
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

    private static Jedis connect(SSLContext context, String address, String name, String password) {
        SSLParameters verify = new SSLParameters();
        verify.setEndpointIdentificationAlgorithm("HTTPS");
        return new Jedis(HostAndPort.from(address), DefaultJedisClientConfig.builder().ssl(true)
            .sslSocketFactory(context.getSocketFactory()).sslParameters(verify).user(name).password(password).build());
    }

    private static Object ask(Jedis c, String command, String... args) {
        return c.sendCommand(() -> command.getBytes(StandardCharsets.US_ASCII), args);
    }

    private static String errorOf(Runnable action) {
        try {
            action.run();
        } catch (JedisException e) {
            return String.valueOf(e.getMessage());
        }
        return "";
    }

    public static void main(String[] args) throws Exception {
        SSLContext context = trusting(args[0]);
        String lock = "a-java", owner = "driver-of-java-012345";
        for (String address : args[1].split(",")) {
            try (Jedis c = connect(context, address, args[2], args[3])) {
                Object token = ask(c, "ACQUIRE", lock, "TTL", "60000", "OWNER", owner);
                Object again = ask(c, "ACQUIRE", lock, "TTL", "60000", "OWNER", owner);
                boolean held = ask(c, "ACQUIRE", lock, "TTL", "60000", "OWNER", "another-one-0123456") == null;
                Object renewed = ask(c, "RENEW", lock, token.toString());
                String whoami = c.aclWhoAmI();
                String forbidden = errorOf(() -> ask(c, "ACQUIRE", "b", "TTL", "60000"));
                Object released = ask(c, "RELEASE", lock, token.toString());
                String wrong = errorOf(() -> connect(context, address, args[2], "wrong").ping());
                System.out.printf("{\"token\": %s, \"again\": %s, \"held\": %s, \"renewed\": %s, \"whoami\": \"%s\", "
                    + "\"forbidden\": \"%s\", \"released\": %s, \"wrong\": \"%s\"}%n", token, again, held, renewed, whoami,
                    forbidden, released, wrong);
            }
        }
    }
}
