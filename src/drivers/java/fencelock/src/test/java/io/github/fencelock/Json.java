package io.github.fencelock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Reads the vectors: no escapes, and whole numbers only. */
final class Json {
    private final String text;
    private int at;

    Json(String text) {
        this.text = text;
    }

    private char next() {
        while (Character.isWhitespace(text.charAt(at)) || text.charAt(at) == ',' || text.charAt(at) == ':') {
            at++;
        }
        return text.charAt(at);
    }

    Object value() {
        char c = next();
        at++;
        if (c == '[') {
            List<Object> all = new ArrayList<>();
            while (next() != ']') {
                all.add(value());
            }
            at++;
            return all;
        }
        if (c == '{') {
            Map<String, Object> all = new HashMap<>();
            while (next() != '}') {
                String key = (String) value();
                all.put(key, value());
            }
            at++;
            return all;
        }
        int begin = at;
        if (c == '"') {
            at = text.indexOf('"', at) + 1;
            return text.substring(begin, at - 1);
        }
        while ("0123456789.-+abcdefghijklmnopqrstuvwxyz".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String word = text.substring(begin - 1, at);
        return Character.isLetter(c) ? (word.equals("null") ? null : (Object) word) : (Object) Long.valueOf(word);
    }
}
