/* fuzz_config.c: fencelockd's options. The first byte of an input says where the rest stands: in a
 * config file, on the command line, or in the environment (there words are ended by NUL). Whatever
 * it is, the answer is a usable configuration or a sentence, and the same one twice. */
#include "fuzz.h"

#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/config.h"

#define WORDS_MAX 32

/* Names are not looked up here: that would ask the network. Addresses are still read. */
__attribute__((visibility("default"))) int getaddrinfo(const char *host, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **ret)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    void *found = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy((void *)&real, &found, sizeof found);
    struct addrinfo numeric = {.ai_family = AF_UNSPEC};
    if (hints != NULL) {
        numeric = *hints;
    }
    numeric.ai_flags |= AI_NUMERICHOST;
    return real(host, service, &numeric, ret);
}

struct outcome {
    enum config_outcome outcome;
    struct config config;
    char errmsg[CONFIG_ERRMSG_MAX];
};

static void read_file(const uint8_t *data, size_t size, struct outcome *ret)
{
    char path[64];
    int fd = memfd_create("config", MFD_CLOEXEC);
    FLI_ASSERT(fd >= 0);
    FLI_ASSERT(write(fd, data, size) == (ssize_t)size);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const char *argv[] = {"--config", path};
    ret->outcome = config_read(2, argv, NULL, &ret->config, ret->errmsg);
    (void)close(fd);
}

/* Copies the words and points at each. Their number. */
static int split(const uint8_t *data, size_t size, char *copy, const char *words[WORDS_MAX + 1])
{
    int n = 0;
    size_t start = 0;
    memcpy(copy, data, size);
    copy[size] = '\0';
    while (start <= size && n < WORDS_MAX) {
        words[n++] = copy + start;
        start += strlen(copy + start) + 1;
    }
    words[n] = NULL;
    return n;
}

static void read_words(const uint8_t *data, size_t size, bool env, struct outcome *ret)
{
    const char *words[WORDS_MAX + 1];
    char *copy = malloc(size + 1);
    FLI_ASSERT(copy != NULL);
    int n = split(data, size, copy, words);
    bool opens = false; /* a file of this machine; what stands there is none of ours */
    for (int i = 0; i < n; i++) {
        opens = opens || strstr(words[i], "config") != NULL || strstr(words[i], "CONFIG") != NULL;
    }
    ret->outcome = CONFIG_HELP; /* of what is left out */
    if (!opens) {
        ret->outcome = env ? config_read(0, words + n, words, &ret->config, ret->errmsg)
                           : config_read(n, words, NULL, &ret->config, ret->errmsg);
    }
    free(copy);
}

static void check(const struct outcome *o)
{
    if (o->outcome == CONFIG_WRONG) {
        FLI_ASSERT(memchr(o->errmsg, '\0', sizeof o->errmsg) != NULL);
        FLI_ASSERT(o->errmsg[0] != '\0');
    }
    if (o->outcome == CONFIG_RUN) {
        const struct config *c = &o->config;
        FLI_ASSERT(memchr(c->data, '\0', sizeof c->data) != NULL && c->data[0] != '\0');
        FLI_ASSERT(memchr(c->listen, '\0', sizeof c->listen) != NULL && c->listen[0] != '\0');
        FLI_ASSERT(memchr(c->peer, '\0', sizeof c->peer) != NULL);
        FLI_ASSERT(memchr(c->advertise, '\0', sizeof c->advertise) != NULL);
        FLI_ASSERT(c->id > 0);
        FLI_ASSERT(c->log_level >= 1 && c->log_level <= 4);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    static struct outcome o[2]; /* large */
    memset(o, 0, sizeof o);
    for (int i = 0; i < 2; i++) {
        if (data[0] % 3 == 0) {
            read_file(data + 1, size - 1, &o[i]);
        } else {
            read_words(data + 1, size - 1, data[0] % 3 == 1, &o[i]);
        }
        check(&o[i]);
    }
    FLI_ASSERT(o[0].outcome == o[1].outcome);
    if (data[0] % 3 != 0) { /* else the file's name stands in it, and is not always the same */
        FLI_ASSERT(strcmp(o[0].errmsg, o[1].errmsg) == 0);
    }
    return 0;
}
