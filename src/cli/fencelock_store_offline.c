/* fencelock_store_offline.c: backup, verification and restore of a storage. */
#include "cli/fencelock_store_offline.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/daemon.h"
#include "store/store.h"

#define PROGRAM "fencelock-store"

const char store_help[] =
    "Usage: " PROGRAM " [options]\n"
    "A key-value server that checks fencing tokens: it refuses every operation whose token is "
    "below\n"
    "the highest one it has seen for the lock. Speaks the Redis protocol.\n"
    "\n"
    "  --listen HOST:PORT   address to serve (default " STORE_LISTEN_DEFAULT "; port 0 picks one;\n"
    "                       off: none without TLS)\n"
    "  --data DIR           directory of the database (default " STORE_DATA_DEFAULT ")\n"
    "  --size-max BYTES     how much keys, values and marks may take (K, M, G; default 1G);\n"
    "                       the file may become a sixteenth (at least 1M) larger\n"
    "  --protected-mode no  listen beyond this machine where nothing proves who a client is\n"
    "  --tls-port [HOST:]PORT, --tls-cert-file F, --tls-key-file F, --tls-ca-cert-file F,\n"
    "  --tls-auth-clients yes|no|optional, --tls-protocols LIST\n"
    "                       a port for TLS, as of fencelockd: beside --listen, or instead of it\n"
    "  --aclfile FILE       users and what they may do (read, write, claim, admin) to which "
    "locks;\n"
    "                       read again at SIGHUP. Without it everybody may do everything\n"
    "  --tls-auth-clients-user CN|SAN|off  the part of a client's certificate that names the user\n"
    "                       (off)\n"
    "  --strict HOST:PORT[,HOST:PORT...]\n"
    "                       strict mode: ask these nodes of the lock service about every token\n"
    "                       before it is compared with the mark (CHECK). NOTHELD: no lock is held\n"
    "                       under it. UNCHECKED: they do not say. Not for Redlock: its tokens are\n"
    "                       never held, so everything would be refused\n"
    "  --strict-timeout MS  how long the lock service may take to answer (10 to 60000, default\n"
    "                       1000); after half of it the next node is asked\n"
    "  --strict-tls         talk to the lock service with TLS: its certificates must lead to\n"
    "                       --tls-ca-cert-file and bear the hosts of --strict; --tls-cert-file is\n"
    "                       shown to it\n"
    "  --strict-user NAME, --strict-password-file FILE\n"
    "                       log in to the lock service; the password is the file's first line. "
    "The\n"
    "                       user needs the right to see the locks\n"
    "  --log-level LEVEL    error, warning, info or debug (info); SIGUSR1: debug and back\n"
    "  --log-format FORMAT  text, or json: an object a line (text)\n"
    "\n"
    "Instead of serving:\n"
    "  --backup FILE        write all keys, values and marks to a file, of one commit; --data "
    "DIR,\n"
    "                       whose server goes on if there is one. The file is a SQLite file\n"
    "  --verify FILE        print what a backup file holds, or what is wrong with it\n"
    "  --restore FILE       make --data DIR, a new directory, out of it. --above TOKEN: from then\n"
    "                       on tokens up to this one are refused, and no key is written before "
    "its\n"
    "                       lock was claimed with a newer one. --size-max as above\n"
    "\n"
    "  --help, --version\n"
    "\n"
    "Each option may be given as an environment variable instead: FENCELOCK_STORE_LISTEN, _DATA,\n"
    "_SIZE_MAX, _STRICT (empty: off), _STRICT_TIMEOUT, _TLS_PORT, _LOG_LEVEL and so on;\n"
    "_STRICT_TLS and _PROTECTED_MODE (1 or 0). Options override variables.\n"
    "\n"
    "Commands: CLAIM lock token | GET key [FENCE lock token] | SET key value FENCE lock token |\n"
    "DEL key FENCE lock token | MARK lock | INFO [section] | COMMAND DOCS\n"
    "\n"
    "Tokens are compared with the marks kept here. Without --strict nobody asks the lock service,\n"
    "and a token that was never issued is accepted when it is high enough: keep strangers out.\n";

static void check_options(const struct store_offline *o)
{
    bool restores = o->restore != NULL;
    if ((o->backup != NULL) + (o->verify != NULL) + restores != 1) {
        daemon_die(DAEMON_USAGE, "--backup, --verify and --restore exclude each other, and --above "
                                 "is for --restore; see --help");
    }
    if (o->verify == NULL && o->data == NULL) {
        daemon_die(DAEMON_USAGE, "--data DIR is missing: it must be named here; see --help");
    }
    if (restores && o->above == 0) {
        daemon_die(DAEMON_USAGE, "--restore needs --above TOKEN, the last token that was issued: "
                                 "the lock service's INFO tells it (last_token); see --help");
    }
    if (!restores && o->above != 0) {
        daemon_die(DAEMON_USAGE, "--above is for --restore; see --help");
    }
}

static void print_facts(const char *path, const struct store_facts *f)
{
    (void)printf("file          %s\ncommit        %" PRIu64 "\nkeys          %" PRIu64
                 "\ndeleted keys  %" PRIu64 "\nmarks         %" PRIu64 "\nhighest mark  %" PRIu64
                 "\nbytes         %" PRIu64 "\n",
                 path, f->commit, f->keys, f->tombstones, f->marks, f->highest_mark, f->bytes);
}

void store_offline(const struct store_offline *o)
{
    struct store_facts facts = {0};
    char errmsg[1024] = "";
    check_options(o);
    int rc = o->backup != NULL   ? store_backup(o->data, o->backup, &facts, errmsg, sizeof errmsg)
             : o->verify != NULL ? store_verify(o->verify, &facts, errmsg, sizeof errmsg)
                                 : store_restore(o->restore, o->data, o->size_max, o->above, &facts,
                                                 errmsg, sizeof errmsg);
    if (rc != 0) {
        daemon_die(DAEMON_FAILED, "%s", errmsg);
    }
    print_facts(o->backup != NULL ? o->backup : o->verify != NULL ? o->verify : o->restore, &facts);
    if (o->restore != NULL) {
        (void)printf("restored      %s; tokens up to %" PRIu64 " are refused\n", o->data, o->above);
    }
}
