"""`fencelock guard` for s3://bucket/prefix?endpoint=...&region=...&profile=..., through boto3, which finds the credentials.
writer=PROFILE: the credentials of a writer, for servers that apply no policy to administrators."""

import json
import re
import secrets
import time
import urllib.parse

from .child import Missing
from .driver import Usage, count, tell, tell_found
from .s3 import OLD_ETAG, S3, fencelock_s3, judged
from .storage import Refused, Unknown
from .suite import Broken, Skip

KNOWN = {'endpoint', 'region', 'profile', 'writer'}
SETTLE_S = 5


def boto3():
    try:
        import boto3 as found
    except ImportError:
        found = None
    if found is None or tuple(int(n) for n in found.__version__.split('.')[:2]) < (1, 36):
        raise Missing('boto3, 1.36 or newer, is not installed for this python3')
    return found


class Driver:
    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.bucket, self.prefix, self.made, self.sessions = parts.netloc, parts.path[1:], None, {}
        asked = dict(urllib.parse.parse_qsl(parts.query))
        if not self.bucket or '@' in self.bucket or set(asked) - KNOWN:
            raise Usage("'%s' is no s3://BUCKET or s3://BUCKET/PREFIX, with ?endpoint=URL&region=NAME&profile=NAME&writer=PROFILE as needed" % (
                url[:80]))
        self.endpoint, self.region, self.profiles = asked.get('endpoint'), asked.get('region'), (asked.get('profile'), asked.get('writer'))
        self.admin = self.client(self.profiles[0])

    def client(self, profile):
        library = boto3()
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
        style = {'addressing_style': 'path'} if self.endpoint else {}
        try:
            if profile not in self.sessions: # it reads and keeps what is long to read
                self.sessions[profile] = library.session.Session(profile_name=profile, region_name=self.region)
            return self.sessions[profile].client(
                's3', endpoint_url=self.endpoint, config=Config(retries={'total_max_attempts': 1}, s3=style, connect_timeout=10, read_timeout=30))
        except (BotoCoreError, ValueError) as e:
            raise Usage(str(e)) from None

    def writer(self):
        return self.client(self.profiles[1] or self.profiles[0])

    def name(self):
        return 's3://%s/%s' % (self.bucket, self.prefix)

    @staticmethod
    def no_tables(tables):
        if tables:
            raise Usage("'%s': an object gets its lock when it is first claimed; leave it out" % tables[0])

    # -- the policy ------------------------------------------------------------------------------------------
    def policy_of(self, bucket):
        try:
            return json.loads(judged(self.admin.get_bucket_policy, Bucket=bucket)['Policy'])
        except Refused as e:
            if 'NoSuchBucketPolicy' in str(e):
                return {'Version': '2012-10-17', 'Statement': []}
            raise

    def ours(self, bucket):
        return json.loads(fencelock_s3.policy(bucket, prefix=self.prefix if bucket == self.bucket else ''))['Statement']

    def others(self, policy, bucket):
        """The statements that are not ours."""
        found = policy['Statement'] if isinstance(policy['Statement'], list) else [policy['Statement']]
        names = {s['Sid'] for s in self.ours(bucket)}
        return [s for s in found if s.get('Sid') not in names]

    def put_policy(self, bucket, policy):
        if policy['Statement']:
            judged(self.admin.put_bucket_policy, Bucket=bucket, Policy=json.dumps(policy))
        else:
            try:
                judged(self.admin.delete_bucket_policy, Bucket=bucket)
            except Refused as e:
                if 'NoSuchBucketPolicy' not in str(e):
                    raise

    def missing(self):
        """Our statements that the bucket's policy lacks or has changed."""
        def words(statement):
            listed = {k: sorted(v) if isinstance(v, list) else [v] for k, v in statement.items() if k in ('Action', 'Resource')}
            who = statement.get('Principal')
            who = '*' if who in ({'AWS': '*'}, {'AWS': ['*']}) else who
            condition = {o: {k: v if isinstance(v, list) else [v] for k, v in c.items()} for o, c in statement.get('Condition', {}).items()}
            return statement.get('Effect'), who, listed, condition
        policy = self.policy_of(self.bucket)
        found = policy['Statement'] if isinstance(policy['Statement'], list) else [policy['Statement']]
        there = [words(s) for s in found]
        return [s for s in self.ours(self.bucket) if words(s) not in there]

    # -- the commands ----------------------------------------------------------------------------------------
    def install(self, tables, as_json):
        self.no_tables(tables)
        policy = self.policy_of(self.bucket)
        before = json.loads(json.dumps(policy))
        policy['Statement'] = self.others(policy, self.bucket) + self.ours(self.bucket)
        try:
            self.put_policy(self.bucket, policy)
        except (Refused, Unknown) as e:
            raise Refused('ERROR', 'the store does not take the policy that forbids writes without a condition: %s' % e) from None
        state = self.settled(self.bucket, self.writer(), self.prefix)
        if state == 'bans':
            self.put_policy(self.bucket, before)
            raise Refused('ERROR', 'this store does not know If-Match in a policy, and would refuse every write with it: the policy is as it was')
        told = '' if state == 'holds' else ('\nwith these credentials a write without a condition still goes through: the store does not heed the policy, or '
                                            'not for its administrators. fencelock guard attack URL&writer=PROFILE tells')
        tell(as_json, 'policy installed on %s: no PUT without If-Match or If-None-Match, no deletion%s' % (self.name(), told),
             installed=True, enforced=state == 'holds')
        return 0

    def settled(self, bucket, writer, prefix=''):
        """Waits for a new policy to be in force. Returns 'holds', 'ignored' or 'bans' (all PUTs). Tries two PUTs on an unused name: one whose condition cannot hold,
        and one without a condition, which the policy forbids. What is stored all the same is deleted."""
        key = '%sfencelock-probe-%s' % (prefix, secrets.token_hex(6))
        end = time.monotonic() + SETTLE_S
        while True:
            with_one = not self.denied(writer.put_object, Bucket=bucket, Key=key, Body=b'', IfMatch=OLD_ETAG)
            without = self.allowed(writer.put_object, Bucket=bucket, Key=key + '-', Body=b'')
            if without:
                self.allowed(writer.delete_object, Bucket=bucket, Key=key + '-')
            if with_one and not without:
                return 'holds'
            if time.monotonic() > end:
                return 'ignored' if without else 'bans'
            time.sleep(0.2) # the policy may not be in force yet; no call tells when it is

    @staticmethod
    def denied(function, **arguments):
        try:
            judged(function, **arguments)
            return False
        except Refused as e:
            return 'AccessDenied' in str(e) or '(403)' in str(e)

    def there(self, bucket, key):
        return self.allowed(self.admin.head_object, Bucket=bucket, Key=key)

    @staticmethod
    def allowed(function, **arguments):
        try:
            judged(function, **arguments)
            return True
        except Refused:
            return False

    def objects(self, prefix):
        token = {}
        while True:
            page = judged(self.admin.list_objects_v2, Bucket=self.bucket, Prefix=prefix, **token)
            yield from (o['Key'] for o in page.get('Contents', []))
            if not page.get('IsTruncated'):
                return
            token = {'ContinuationToken': page['NextContinuationToken']}

    def check(self, tables, as_json, colours):
        rows = []
        for statement in self.missing():
            rows.append(['bad', 'the policy of %s lacks %s' % (self.bucket, statement['Sid']), 'fencelock guard install URL'])
        fence, guarded, foreign = fencelock_s3.FencedObjects(self.admin, self.bucket), [], []
        for key in tables or self.objects(self.prefix):
            try:
                (guarded if judged(fence.peek, key)[1] else foreign).append(key)
            except Refused as e:
                if e.word != 'FOREIGN':
                    raise
                foreign.append(key)
        if foreign:
            rows.append(['bad' if tables else 'note', '%s no mark, first %s' % (count(len(foreign), 'objects') + (' has' if len(foreign) == 1 else ' have'), foreign[0]),
                         'adopt() of the module takes one in, under its lock'])
        rows += self.losses()
        return tell_found(rows, guarded, as_json, colours, of='objects')

    def losses(self):
        rows = []
        try:
            rules = judged(self.admin.get_bucket_lifecycle_configuration, Bucket=self.bucket)['Rules']
        except (Refused, Unknown): # there is none, or the store knows none
            rules = []
        for rule in rules:
            if rule.get('Status') == 'Enabled' and 'Expiration' in rule:
                rows.append(['loss', 'the lifecycle rule %s deletes objects, and their marks with them' % rule.get('ID', '(no name)'),
                             'Limit it to a prefix that has no guarded objects.'])
        return rows

    def adopt(self, token, as_json):
        fence, again = fencelock_s3.FencedObjects(self.admin, self.bucket), 'not every object has the new mark: adopt again'
        try:
            raised = sum(self.raised(fence, key, token) for key in self.objects(self.prefix))
        except Refused as e:
            raise Refused(e.word, '%s; %s' % (e, again)) from None
        except Unknown as e:
            raise Unknown('%s; %s' % (e, again)) from None
        tell(as_json, 'every token below %d is refused from here on, in %s there' % (token, count(raised, 'objects') + (' that is' if raised == 1 else ' that are')), adopted=True, token=token,
             objects=raised)
        return 0

    @staticmethod
    def raised(fence, key, token):
        """Whether this raised the mark of an object. One without a mark has none to raise: claims of it are refused."""
        try:
            return judged(fence.raise_mark, key, token)
        except Refused as e:
            if e.word != 'FOREIGN':
                raise
            return False

    def uninstall(self, as_json):
        policy = self.policy_of(self.bucket)
        policy['Statement'] = self.others(policy, self.bucket)
        self.put_policy(self.bucket, policy)
        tell(as_json, 'the policy no longer asks for conditions; marks stay in their objects', uninstalled=True)
        return 0

    # -- the attack ------------------------------------------------------------------------------------------
    def scratch(self):
        """Makes a bucket with a policy, for the attack alone."""
        self.made = 'fencelock-attack-%s' % secrets.token_hex(6)
        where = {'CreateBucketConfiguration': {'LocationConstraint': self.region}} if self.region not in (None, 'us-east-1') and not self.endpoint else {}
        judged(self.admin.create_bucket, Bucket=self.made, **where)
        policy = {'Version': '2012-10-17', 'Statement': self.allowance(self.made)}
        try:
            self.put_policy(self.made, dict(policy, Statement=policy['Statement'] + self.ours(self.made)))
            state = self.settled(self.made, self.writer())
        except (Refused, Unknown) as e:
            state = 'the server takes no such policy: %s' % re.sub('.*: ', '', str(e))[:100]
        if state not in ('holds', 'ignored'):
            self.put_policy(self.made, policy)
        return S3(self.writer, self.made, policy=state, name='S3 at %s' % (self.endpoint or 'AWS'))

    def allowance(self, bucket):
        """A statement that lets the writer use the scratch bucket, which belongs to the administrator."""
        if not self.profiles[1]:
            return []
        return [{'Sid': 'Writers', 'Effect': 'Allow', 'Principal': '*', 'Action': ['s3:GetObject', 's3:PutObject', 's3:DeleteObject'],
                 'Resource': 'arn:aws:s3:::%s/*' % bucket}]

    def drop_scratch(self):
        if not self.made:
            return
        self.put_policy(self.made, {'Statement': []})
        self.empty_scratch()
        judged(self.admin.delete_bucket, Bucket=self.made)

    def empty_scratch(self):
        while True:
            found = judged(self.admin.list_objects_v2, Bucket=self.made).get('Contents', [])
            if not found:
                return
            for one in found:
                judged(self.admin.delete_object, Bucket=self.made, Key=one['Key'])

    def attack_tables(self, report, tables):
        """Tries on unused names of the user's bucket what the policy forbids."""
        self.no_tables(tables)
        try:
            there = not self.missing()
        except (Refused, Unknown):
            there = False
        key = '%sfencelock-attack-%s' % (self.prefix, secrets.token_hex(6))
        client, at = self.writer(), {'Bucket': self.bucket, 'Key': key}

        def parts():
            upload = judged(client.create_multipart_upload, **at)['UploadId']
            judged(client.abort_multipart_upload, UploadId=upload, **at)
        for what, act in (('PUT without a condition', lambda: judged(client.put_object, Body=b'', **at)),
                          ('DELETE', lambda: judged(client.delete_object, **at)), ('upload in parts', parts)):
            report.run(4, '%s in %s' % (what, self.name()), self.refused, there, act)
        if there and self.there(self.bucket, key): # it was let through, so it can be taken away
            self.allowed(client.delete_object, **at)

    @staticmethod
    def refused(there, act):
        if not there:
            raise Skip('the policy is not installed there')
        try:
            act()
        except Refused as e:
            return str(e)[:60]
        raise Broken('was carried out (on a name that nobody has)')
