"""A proxy in front of an S3 server that ignores a bucket's policy. It applies the policy: Deny statements for everybody, with the conditions Null
and StringEquals on s3:if-match and s3:if-none-match, as in the manual of S3. No server that knows these keys was available.

    policy_proxy.py PORT SERVER_PORT FAULTS

FAULTS is a file, which need not be there. Each line, METHOD /BUCKET/KEY STATUS, has such requests answered with that status. STATUS 0: not at all."""

import fnmatch
import http.client
import json
import os
import re
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

policies, guard = {}, threading.Lock()


def listed(value):
    return value if isinstance(value, list) else [value]


def holds(condition, context):
    """Every operator and every key has to match."""
    for operator, keys in condition.items():
        for key, values in keys.items():
            found = context.get(key)
            if operator == 'Null':
                ok = (found is None) == (listed(values)[0] == 'true')
            elif operator == 'StringEquals':
                ok = found in listed(values)
            else:
                raise ValueError('MalformedPolicy')
            if not ok:
                return False
    return True


def denied(bucket, key, action, headers):
    context = {'s3:' + name: headers[name].strip('"') for name in ('if-match', 'if-none-match') if headers.get(name)}
    for s in json.loads(policies.get(bucket, '{"Statement": []}'))['Statement']:
        if s['Effect'] == 'Deny' and action in listed(s['Action']) and holds(s.get('Condition', {}), context) and any(
                fnmatch.fnmatchcase('arn:aws:s3:::%s/%s' % (bucket, key), r) for r in listed(s['Resource'])):
            return True
    return False


def fault(command, path):
    """The status that FAULTS has for this request, or None."""
    if os.path.exists(sys.argv[3]):
        with open(sys.argv[3]) as f:
            for line in f:
                method, where, status = line.split()
                if (method, where) == (command, path):
                    return int(status)
    return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    log_message = lambda self, *args: None

    def answer(self, status, body=b'', kind='application/xml'):
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def error(self, status, code):
        self.answer(status, b'<Error><Code>%s</Code><Message>%s</Message></Error>' % (code.encode(), code.encode()))

    def policy(self, bucket, body):
        with guard:
            if self.command == 'PUT':
                policies[bucket] = body.decode()
            elif self.command == 'DELETE':
                policies.pop(bucket, None)
            elif bucket in policies:
                return self.answer(200, policies[bucket].encode(), 'application/json')
            else:
                return self.error(404, 'NoSuchBucketPolicy')
        return self.answer(204)

    def serve(self):
        body = self.body()
        parts = urllib.parse.urlsplit(self.path)
        bucket, _, key = urllib.parse.unquote(parts.path)[1:].partition('/')
        query = urllib.parse.parse_qs(parts.query, keep_blank_values=True)
        status = fault(self.command, parts.path)
        if status == 0:
            self.close_connection = True
            return None
        if status is not None:
            return self.error(status, 'InternalError' if status >= 500 else 'AccessDenied')
        if 'policy' in query:
            return self.policy(bucket, body)
        if key and (self.command == 'PUT' or self.command == 'POST') and denied(bucket, key, 's3:PutObject', self.headers):
            return self.error(403, 'AccessDenied')
        if key and self.command == 'DELETE' and 'uploadId' not in query and denied(bucket, key, 's3:DeleteObject', self.headers):
            return self.error(403, 'AccessDenied')
        if self.command == 'POST' and 'delete' in query:
            for name in re.findall(rb'<Key>(.*?)</Key>', body):
                if denied(bucket, name.decode(), 's3:DeleteObject', self.headers):
                    return self.answer(200, b'<DeleteResult><Error><Key>%s</Key><Code>AccessDenied</Code></Error></DeleteResult>' % escape(
                        name.decode()).encode())
        return self.forward(body)

    def body(self):
        if self.headers.get('Transfer-Encoding', '').lower() != 'chunked':
            return self.rfile.read(int(self.headers.get('Content-Length') or 0))
        found = b''
        while True:
            size = int(self.rfile.readline().split(b';')[0], 16)
            found += self.rfile.read(size)
            self.rfile.readline()
            if size == 0:
                return found

    def forward(self, body):
        server = http.client.HTTPConnection('127.0.0.1', int(sys.argv[2]), timeout=60)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ('content-length', 'transfer-encoding', 'connection', 'expect')}
        server.request(self.command, self.path, body, dict(headers, **{'Content-Length': str(len(body)), 'Connection': 'close'}))
        answer = server.getresponse()
        found = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ('content-length', 'transfer-encoding', 'connection', 'date', 'server'):
                self.send_header(name, value)
        self.send_header('Content-Length', str(len(found) if self.command != 'HEAD' else int(answer.getheader('Content-Length') or 0)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(found)
        server.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve


if __name__ == '__main__':
    ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
