/* fuzz_marks.c: what a storage finds on disk: the data file as a whole (first byte of the input
 * even) or one record (odd: one byte for the length of the key, the key, the value). */
#include "fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fence/mark.h"
#include "fence/pages.h"

struct seen {
    uint8_t key[FLI_ENV_KEY_MAX];
    size_t key_len;
    uint64_t records;
    unsigned sum; /* so that every byte that is shown is read */
};

static int visit(void *ctx, const struct fli_pages_record *r)
{
    struct seen *s = ctx;
    FLI_ASSERT(r->key.len >= 1 && r->key.len <= FLI_ENV_KEY_MAX);
    FLI_ASSERT(r->head.len <= r->size);
    if (s->records > 0) { /* keys ascend */
        size_t least = r->key.len < s->key_len ? r->key.len : s->key_len;
        int order = memcmp(s->key, r->key.data, least);
        FLI_ASSERT(order < 0 || (order == 0 && s->key_len < r->key.len));
    }
    memcpy(s->key, r->key.data, r->key.len);
    s->key_len = r->key.len;
    s->records++;
    for (size_t i = 0; i < r->head.len; i++) {
        s->sum += r->head.data[i];
    }
    return 0;
}

static int visit_previous(void *ctx, const struct fli_pages_record *r)
{
    unsigned *sum = ctx;
    for (size_t i = 0; i < r->head.len; i++) {
        *sum += r->head.data[i];
    }
    return 0;
}

static int previous_of(void *ctx, const struct fli_pages_record *r)
{
    struct seen *s = ctx;
    return visit_previous(&s->sum, r);
}

static void check_file(const uint8_t *data, size_t size)
{
    struct seen s = {.records = 0};
    struct fli_pages_info info;
    char errmsg[256] = "";
    int fd = memfd_create("data.mdb", MFD_CLOEXEC);
    FLI_ASSERT(fd >= 0);
    FLI_ASSERT(write(fd, data, size) == (ssize_t)size);
    int rc = fli_pages_check(fd, visit, previous_of, &s, &info, errmsg, sizeof errmsg);
    FLI_ASSERT(rc == 0 || errmsg[0] != '\0');
    FLI_ASSERT(memchr(errmsg, '\0', sizeof errmsg) != NULL);
    FLI_ASSERT(rc != 0 || (info.pages >= 2 && info.page_size >= 512));
    (void)close(fd);
}

static void check_record(const uint8_t *data, size_t size)
{
    if (size < 1 || data[0] > size - 1) {
        return;
    }
    struct fli_slice key = {data + 1, data[0]};
    struct fli_slice value = {data + 1 + key.len, size - 1 - key.len};
    fl_token mark = 0;
    if (key.len > 0 && fli_mark_decode(key, value, &mark) == 0) {
        FLI_ASSERT(value.len == FLI_MARK_SIZE);
        FLI_ASSERT(key.data[0] == FLI_MARK_KEY || key.data[0] == FLI_MARK_FLOOR);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    if (data[0] % 2 == 0) {
        check_file(data + 1, size - 1);
    } else {
        check_record(data + 1, size - 1);
    }
    return 0;
}
