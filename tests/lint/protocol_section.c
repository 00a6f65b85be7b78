/* protocol_section.c: prints the command section of docs/COMMANDS.md from the command table.
 * protocol.py puts it there, or checks that it is there. */
#include <stdio.h>
#include <string.h>

#include "wire/commands.h"

struct group {
    const char *name;
    const char *heading;
    const char *text;
};

static const struct group groups[] = {
    {"lock", "Locks", "Served by `fencelockd`, on any node."},
    {"redis", "As Redis",
     "For lock libraries that were written for Redis: a key is a lock, and its value says whose it "
     "is. Served by `fencelockd`, on any node, unless `--front-door no`. "
     "[FRONTDOOR.md](FRONTDOOR.md) tells what differs from Redis."},
    {"session", "Sessions",
     "A session is a lease on a client's own liveness. It may hold many locks, and they end with "
     "it. Served by `fencelockd`, on any node."},
    {"pubsub", "Events",
     "Served by `fencelockd`: any node tells of the log that it applies itself. "
     "[PROTOCOL.md](PROTOCOL.md#events) has the messages."},
    {"users", "Users", "Served by `fencelockd`, on any node."},
    {"cluster", "Cluster", "Served by `fencelockd`."},
    {"storage", "Storage", "Served by `fencelock-store`."},
    {"server", "Server", "Served by both."},
    {"connection", "Connection",
     "Served by both; this is what Redis drivers send at connect. `COMMAND DOCS` describes each. "
     "`SELECT` and `CLIENT TRACKING` do nothing; `CLIENT LIST` is for operators."},
};

/* What kind of command it is, for the last column. */
static void print_kind(const struct fli_command *c)
{
    const char *kind = "local";
    if ((c->flags & FLI_CMD_QUERY) != 0) {
        kind = "read";
    } else if ((c->flags & FLI_CMD_WRITE) != 0) {
        kind = "write";
    }
    printf("%s%s", kind, (c->flags & FLI_CMD_ADMIN) != 0 ? ", operator" : "");
}

/* A cell of a table may hold no bar that is not escaped. */
static void print_cell(const char *text)
{
    for (; *text != '\0'; text++) {
        printf(*text == '|' ? "\\|" : "%c", *text);
    }
}

static void print_row(const struct fli_command *c)
{
    printf("| `%s%s%s%s", c->name, c->subcommand == NULL ? "" : " ",
           c->subcommand == NULL ? "" : c->subcommand, c->syntax[0] == '\0' ? "" : " ");
    print_cell(c->syntax);
    printf("` | ");
    print_cell(c->reply);
    printf(" | ");
    print_cell(c->help);
    printf(" | ");
    print_kind(c);
    printf(" |\n");
}

/* A command of a group whose commands are those of Redis: the words alone. */
static void print_words(const struct fli_command *c)
{
    printf("- `%s%s%s%s%s`\n", c->name, c->subcommand == NULL ? "" : " ",
           c->subcommand == NULL ? "" : c->subcommand, c->syntax[0] == '\0' ? "" : " ", c->syntax);
}

/* By id, which is the order in which a person learns them. */
static void print_group(const char *group, void (*print)(const struct fli_command *))
{
    for (int id = FLI_CMD_NONE + 1; id <= FLI_CMD_ID_MAX; id++) {
        for (size_t i = 0; i < fli_commands_len; i++) {
            const struct fli_command *c = &fli_commands[i];
            if ((int)c->id == id && strcmp(fli_command_group(c), group) == 0) {
                print(c);
            }
        }
    }
}

int main(void)
{
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        printf("%s### %s\n\n%s\n\n", g == 0 ? "" : "\n", groups[g].heading, groups[g].text);
        if (strcmp(groups[g].name, "connection") == 0) {
            print_group(groups[g].name, print_words);
            continue;
        }
        printf("| command | answer | what it does | kind |\n|---|---|---|---|\n");
        print_group(groups[g].name, print_row);
    }
    return 0;
}
