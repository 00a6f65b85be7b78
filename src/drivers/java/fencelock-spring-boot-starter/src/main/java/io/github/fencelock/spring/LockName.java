package io.github.fencelock.spring;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.ParameterNameDiscoverer;
import org.springframework.expression.Expression;
import org.springframework.expression.ExpressionException;
import org.springframework.expression.spel.standard.SpelExpressionParser;

/** The name that {@link Fenced#lock} gives to each call of a method. Its errors say how to write it. */
final class LockName {
    private static final ParameterNameDiscoverer PARAMETERS = new DefaultParameterNameDiscoverer();
    private static final SpelExpressionParser PARSER = new SpelExpressionParser();
    private static final Pattern QUOTED = Pattern.compile("'[^']*'|\"[^\"]*\"");
    private static final Pattern VARIABLE = Pattern.compile("#(\\w+)");
    private static final Pattern ALWAYS_KNOWN = Pattern.compile("root|this|[ap]\\d+");

    private final String text;
    private final Method method;
    private final Expression expression;

    LockName(String text, Method method) {
        this.text = text;
        this.method = method;
        try {
            expression = PARSER.parseExpression(text);
        } catch (ExpressionException e) {
            throw wrong("is no expression. A fixed name stands in quotes: \"'nightly'\"", e);
        }
        // SpEL makes null of a variable that it does not know, and all calls would have one lock.
        String[] names = PARAMETERS.getParameterNames(method);
        VARIABLE.matcher(QUOTED.matcher(text).replaceAll("")).results().map(MatchResult::group).forEach(variable -> {
            String name = variable.substring(1);
            if (!ALWAYS_KNOWN.matcher(name).matches() && (names == null || !Arrays.asList(names).contains(name))) {
                throw wrong("has no parameter " + variable + ". Compile with -parameters, or write #p0, #p1", null);
            }
        });
    }

    String of(MethodInvocation call) {
        Object name;
        try {
            name = expression.getValue(new MethodBasedEvaluationContext(call.getThis(), method, call.getArguments(), PARAMETERS));
        } catch (ExpressionException e) {
            throw wrong("has no value. A fixed name stands in quotes: \"'nightly'\"", e);
        }
        if (name == null) {
            throw wrong("is null for this call", null);
        }
        return name.toString();
    }

    private IllegalArgumentException wrong(String why, Exception cause) {
        return new IllegalArgumentException("@Fenced(lock = \"" + text + "\") of " + method + " " + why, cause);
    }
}
