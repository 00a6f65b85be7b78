package io.github.fencelock;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What a URL says: fencelock://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...][/], or fencelocks:// for TLS. */
record Target(boolean tls, List<Address> addresses, String user, String password) {
    private static final int NODES_MAX = 16;
    private static final Pattern ADDRESS = Pattern.compile("(?:\\[([0-9a-fA-F:.%]+)\\]|([^\\[\\]:]+)):([0-9]{1,5})");
    private static final Pattern PERCENT = Pattern.compile("(?:[^%+]|%[0-9a-fA-F]{2}|\\+)+");

    record Address(String host, int port) {
        @Override
        public String toString() {
            return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
        }
    }

    /** Its errors never quote the whole URL, since a password may stand in it. */
    static Target parse(String url) {
        boolean tls = url.startsWith("fencelocks://");
        if (!tls && !url.startsWith("fencelock://")) {
            throw wrong("the URL is of another kind");
        }
        String rest = url.substring(url.indexOf("://") + 3);
        rest = rest.endsWith("/") ? rest.substring(0, rest.length() - 1) : rest;
        String user = null;
        String password = null;
        int at = rest.lastIndexOf('@');
        if (at >= 0) {
            String[] login = rest.substring(0, at).split(":", 2);
            if (login.length < 2 || !PERCENT.matcher(login[0]).matches() || !PERCENT.matcher(login[1]).matches()) {
                throw wrong("the user or the password of the URL is missing, or has a % without two hex digits behind it");
            }
            user = decoded(login[0]);
            password = decoded(login[1]);
            rest = rest.substring(at + 1);
        }
        List<Address> addresses = new ArrayList<>();
        for (String text : rest.split(",", -1)) {
            addresses.add(address(text));
        }
        if (addresses.size() > NODES_MAX) {
            throw wrong("the URL names " + addresses.size() + " nodes, and " + NODES_MAX + " are the most");
        }
        return new Target(tls, List.copyOf(addresses), user, password);
    }

    private static Address address(String text) {
        Matcher m = ADDRESS.matcher(text);
        int port = m.matches() ? Integer.parseInt(m.group(3)) : 0;
        if (port < 1 || port > 65535) {
            throw wrong("\"" + text + "\" is no HOST:PORT");
        }
        return new Address(m.group(1) != null ? m.group(1) : m.group(2), port);
    }

    private static String decoded(String text) {
        return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
    }

    private static IllegalArgumentException wrong(String why) {
        return new IllegalArgumentException(why + ": write fencelock://HOST:PORT, or fencelocks://USER:PASSWORD@HOST:PORT,HOST:PORT");
    }

    /** Without the password. */
    @Override
    public String toString() {
        return (tls ? "fencelocks://" : "fencelock://") + addresses;
    }
}
