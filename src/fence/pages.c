/* pages.c: see pages.h.
 *
 * The file, as LMDB 0.9 writes it (native byte order, `word` is size_t):
 *
 *   page    pgno word | pad u16 | flags u16 | lower u16, upper u16 (or: pages u32) | content
 *   meta    pages 0 and 1: magic u32 | version u32 | address word | mapsize word | db free |
 *           db main | last page word | txnid word; transaction N is in page N % 2
 *   db      pad u32 (in db free: the page size) | flags u16 | depth u16 | branch, leaf, overflow
 *           pages word each | entries word | root word, all ones when the tree is empty
 *   branch, leaf   after the header (lower - 16) / 2 offsets u16 of nodes, which fill the page from
 *           `upper` to its end
 *   node    size or child, low and high half u16 | flags u16 | key size u16 | key | value
 *           In a branch the flags hold the top 16 bits of the child. In a leaf flag 1 says that the
 *           value is the number of the first of its own pages, which are contiguous.
 *   free    the records of db free: key txnid word, value count word, then that many page numbers,
 *           strictly descending
 *
 * The walk is iterative; its stack has one page a level, at most DEPTH_MAX. */
#include "fence/pages.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"

#define MAGIC 0xBEEFC0DEu
#define VERSION 1u
#define PAGE_BRANCH 0x01u
#define PAGE_LEAF 0x02u
#define PAGE_OVERFLOW 0x04u
#define PAGE_META 0x08u
#define NODE_BIG 0x01u
#define NODE_HEADER 8u
#define DB_FREE_FLAGS 0x08u /* integer keys */
#define NO_PAGE ((size_t)-1)
#define DEPTH_MAX 32u     /* LMDB's own cursor stack */
#define KEY_MAX 511u      /* LMDB's compiled-in limit */
#define TAIL_MAX 0x20000u /* free pages behind the end of the file: the most of one transaction */

struct page_header {
    size_t pgno;
    uint16_t pad;
    uint16_t flags;
    uint16_t lower;
    uint16_t upper;
};

struct db {
    uint32_t pad;
    uint16_t flags;
    uint16_t depth;
    size_t branch_pages;
    size_t leaf_pages;
    size_t overflow_pages;
    size_t entries;
    size_t root;
};

struct meta {
    uint32_t magic;
    uint32_t version;
    size_t address;
    size_t mapsize;
    struct db dbs[2];
    size_t last_page;
    size_t txnid;
};

struct node {
    struct fli_slice key;
    const uint8_t *value;
    size_t size;  /* of the value; leaf only */
    size_t child; /* branch only */
    bool big;
};

struct frame {
    uint8_t *page;
    unsigned nodes;
    unsigned next;
    bool leaf;
};

struct checker {
    int fd;
    size_t page_size;
    size_t file_pages;
    size_t last_page;
    uint8_t *seen; /* one bit for each page */
    uint8_t *pages;
    uint8_t *taken; /* one byte for each byte of a page: it belongs to a node */
    struct frame stack[DEPTH_MAX];
    unsigned depth;
    bool free_tree; /* the tree being walked */
    struct db found;
    uint8_t previous[KEY_MAX];
    size_t previous_len;
    bool has_previous;
    struct fli_slice bound; /* the next key must not be below this separator; points into a page
                               on the stack */
    bool has_bound;
    size_t tail_free; /* free pages behind the end of the file */
    fli_pages_visit visit;
    void *ctx;
    char *errmsg;
    size_t errmsg_size;
};

static int fail(struct checker *c, int code, const char *fmt, ...) FLI_PRINTF(3, 4);
static int fail(struct checker *c, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(c->errmsg, c->errmsg_size, fmt, args);
    va_end(args);
    return code;
}

static int read_at(struct checker *c, void *to, size_t len, uint64_t offset)
{
    uint8_t *p = to;
    while (len > 0) {
        ssize_t n = pread(c->fd, p, len, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail(c, FL_EIO, "reading the data file at byte %llu failed: %s",
                        (unsigned long long)offset, strerror(errno));
        }
        if (n == 0) {
            return fail(c, FL_ECORRUPT, "the data file ends before byte %llu",
                        (unsigned long long)offset + len);
        }
        p += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* Marks a page as used or free; fails if it was marked before. */
static int mark_seen(struct checker *c, size_t pgno)
{
    if (pgno < 2 || pgno > c->last_page) {
        return fail(c, FL_ECORRUPT, "page number %zu is out of range", pgno);
    }
    uint8_t bit = (uint8_t)(1u << (pgno % 8));
    if ((c->seen[pgno / 8] & bit) != 0) {
        return fail(c, FL_ECORRUPT, "page %zu is used twice", pgno);
    }
    c->seen[pgno / 8] |= bit;
    return 0;
}

static int read_header(struct checker *c, size_t pgno, struct page_header *ret)
{
    uint8_t raw[sizeof(struct page_header)];
    int rc = read_at(c, raw, sizeof(raw), (uint64_t)pgno * c->page_size);
    if (rc != 0) {
        return rc;
    }
    memcpy(ret, raw, sizeof(raw));
    if (ret->pgno != pgno) {
        return fail(c, FL_ECORRUPT, "page %zu carries the number %zu", pgno, ret->pgno);
    }
    return 0;
}

/* Decodes node `index` of a page; everything it points to must be inside the page. */
static int read_node(struct checker *c, const struct frame *f, unsigned index, struct node *ret)
{
    uint16_t raw[4];
    uint16_t at;
    struct page_header h;
    memcpy(&h, f->page, sizeof(h));
    memcpy(&at, f->page + sizeof(h) + 2u * index, sizeof(at));
    if (at < h.upper || at + sizeof(raw) > c->page_size) {
        return fail(c, FL_ECORRUPT, "page %zu has a node out of bounds", h.pgno);
    }
    memcpy(raw, f->page + at, sizeof(raw));
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    uint32_t word = raw[1] | (uint32_t)raw[0] << 16;
#else
    uint32_t word = raw[0] | (uint32_t)raw[1] << 16;
#endif
    size_t room = c->page_size - at - sizeof(raw);
    if (raw[3] > room || raw[3] > KEY_MAX) {
        return fail(c, FL_ECORRUPT, "page %zu has a key out of bounds", h.pgno);
    }
    *ret = (struct node){.key = {f->page + at + sizeof(raw), raw[3]}};
    room -= raw[3];
    if (!f->leaf) {
        ret->child = (size_t)((uint64_t)word | (uint64_t)raw[2] << 32);
        return 0;
    }
    ret->value = ret->key.data + ret->key.len;
    ret->size = word;
    ret->big = raw[2] == NODE_BIG;
    if ((raw[2] != 0 && !ret->big) || (ret->big ? sizeof(size_t) : ret->size) > room) {
        return fail(c, FL_ECORRUPT, "page %zu has a value out of bounds", h.pgno);
    }
    return 0;
}

/* The nodes of a page must fill it from `upper` to its end, without gaps and overlaps. LMDB relies
 * on that when it moves or removes nodes. */
static int check_nodes(struct checker *c, const struct frame *f, size_t upper)
{
    size_t total = 0;
    memset(c->taken, 0, c->page_size);
    for (unsigned i = 0; i < f->nodes; i++) {
        struct node n;
        int rc = read_node(c, f, i, &n);
        if (rc != 0) {
            return rc;
        }
        size_t at = (size_t)(n.key.data - f->page) - NODE_HEADER;
        size_t value = !f->leaf ? 0 : n.big ? sizeof(size_t) : n.size;
        size_t size = NODE_HEADER + n.key.len + value;
        size += size % 2; /* nodes begin at even offsets */
        if (at % 2 != 0 || size > c->page_size - at || memchr(c->taken + at, 1, size) != NULL) {
            return fail(c, FL_ECORRUPT, "a page has nodes that overlap");
        }
        memset(c->taken + at, 1, size);
        total += size;
    }
    return total == c->page_size - upper
               ? 0
               : fail(c, FL_ECORRUPT, "a page has gaps between its nodes");
}

/* Reads a page of a tree into its level of the stack. */
static int load_page(struct checker *c, size_t pgno, unsigned level, const struct db *db)
{
    if (pgno < 2 || pgno > c->last_page) {
        return fail(c, FL_ECORRUPT, "page number %zu is out of range", pgno);
    }
    FLI_ASSERT(level < DEPTH_MAX);
    struct frame *f = &c->stack[level];
    f->page = c->pages + (size_t)level * c->page_size;
    int rc = read_at(c, f->page, c->page_size, (uint64_t)pgno * c->page_size);
    if (rc != 0) {
        return rc;
    }
    struct page_header h;
    memcpy(&h, f->page, sizeof(h));
    unsigned want = level + 1 == db->depth ? PAGE_LEAF : PAGE_BRANCH;
    if (h.pgno != pgno || h.flags != want) {
        return fail(c, FL_ECORRUPT, "page %zu has a damaged header", pgno);
    }
    if (h.lower <= sizeof(h) || (h.lower - sizeof(h)) % 2 != 0 || h.upper < h.lower ||
        h.upper > c->page_size) {
        return fail(c, FL_ECORRUPT, "page %zu has damaged bounds", pgno);
    }
    f->nodes = (unsigned)(h.lower - sizeof(h)) / 2;
    f->next = 0;
    f->leaf = want == PAGE_LEAF;
    return check_nodes(c, f, h.upper);
}

static int push_page(struct checker *c, size_t pgno, const struct db *db)
{
    if (c->depth >= db->depth) {
        return fail(c, FL_ECORRUPT, "the tree is deeper than its %u levels", db->depth);
    }
    int rc = mark_seen(c, pgno);
    if (rc == 0) {
        rc = load_page(c, pgno, c->depth, db);
    }
    if (rc != 0) {
        return rc;
    }
    bool leaf = c->stack[c->depth].leaf;
    *(leaf ? &c->found.leaf_pages : &c->found.branch_pages) += 1;
    c->depth++;
    return 0;
}

static int compare(const struct checker *c, struct fli_slice a, struct fli_slice b)
{
    if (!c->free_tree) {
        return fli_bytes_cmp(a.data, a.len, b.data, b.len);
    }
    size_t x;
    size_t y;
    memcpy(&x, a.data, sizeof(x));
    memcpy(&y, b.data, sizeof(y));
    return x < y ? -1 : x > y;
}

static int check_key(struct checker *c, struct fli_slice key)
{
    if (c->free_tree ? key.len != sizeof(size_t) : key.len == 0) {
        return fail(c, FL_ECORRUPT, "a key has the wrong length");
    }
    return 0;
}

/* Keys must ascend through the whole tree and not be below the separator they were reached by. */
static int check_order(struct checker *c, struct fli_slice key)
{
    int rc = check_key(c, key);
    if (rc != 0) {
        return rc;
    }
    struct fli_slice previous = {c->previous, c->previous_len};
    if ((c->has_previous && compare(c, previous, key) >= 0) ||
        (c->has_bound && compare(c, c->bound, key) > 0)) {
        return fail(c, FL_ECORRUPT, "the keys of the tree are out of order");
    }
    memcpy(c->previous, key.data, key.len);
    c->previous_len = key.len;
    c->has_previous = true;
    c->has_bound = false;
    return 0;
}

/* The separator of a child must be above everything to its left. */
static int enter_child(struct checker *c, const struct node *n, bool first, const struct db *db)
{
    if (!first) {
        int rc = check_key(c, n->key);
        if (rc != 0) {
            return rc;
        }
        struct fli_slice previous = {c->previous, c->previous_len};
        FLI_ASSERT(c->has_previous);
        if (compare(c, previous, n->key) >= 0) {
            return fail(c, FL_ECORRUPT, "a separator of the tree is out of order");
        }
        c->bound = n->key;
        c->has_bound = true;
    }
    return push_page(c, n->child, db);
}

/* Finds the contiguous pages of a big value and counts them as used. */
static int check_overflow(struct checker *c, const struct node *n, size_t *ret_first)
{
    size_t first;
    memcpy(&first, n->value, sizeof(first));
    if (first < 2 || first > c->last_page) {
        return fail(c, FL_ECORRUPT, "page number %zu is out of range", first);
    }
    struct page_header h;
    int rc = read_header(c, first, &h);
    if (rc != 0) {
        return rc;
    }
    uint32_t pages;
    memcpy(&pages, &h.lower, sizeof(pages));
    size_t need = (sizeof(h) - 1 + n->size) / c->page_size + 1;
    if (h.flags != PAGE_OVERFLOW || pages < need || pages > c->last_page - first + 1) {
        return fail(c, FL_ECORRUPT, "page %zu has a damaged header", first);
    }
    for (size_t i = 0; i < pages; i++) {
        rc = mark_seen(c, first + i);
        if (rc != 0) {
            return rc;
        }
    }
    c->found.overflow_pages += pages;
    *ret_first = first;
    return 0;
}

static int visit_record(struct checker *c, const struct node *n, fli_pages_visit visit)
{
    struct fli_pages_record r = {.key = n->key, .head = {n->value, n->size}, .size = n->size};
    uint8_t *first_page = NULL;
    int rc;
    if (n->big) {
        size_t first;
        rc = check_overflow(c, n, &first);
        if (rc != 0) {
            return rc;
        }
        first_page = malloc(c->page_size);
        if (first_page == NULL) {
            return fail(c, FL_ENOMEM, "out of memory");
        }
        uint64_t start = (uint64_t)first * c->page_size + sizeof(struct page_header);
        size_t room = c->page_size - sizeof(struct page_header);
        r.head.data = first_page;
        r.head.len = n->size < room ? n->size : room;
        rc = read_at(c, first_page, r.head.len, start);
        if (rc == 0 && n->size >= sizeof(r.tail)) {
            rc = read_at(c, r.tail, sizeof(r.tail), start + n->size - sizeof(r.tail));
        }
    } else {
        rc = 0;
        if (n->size >= sizeof(r.tail)) {
            memcpy(r.tail, n->value + n->size - sizeof(r.tail), sizeof(r.tail));
        }
    }
    if (rc == 0) {
        rc = visit(c->ctx, &r);
    }
    free(first_page);
    return rc;
}

static int check_free_list(struct checker *c, const size_t *list, size_t words)
{
    if (words == 0 || list[0] > words - 1) {
        return fail(c, FL_ECORRUPT, "a list of free pages is too long for its record");
    }
    for (size_t i = 1; i <= list[0]; i++) {
        if (i > 1 && list[i] >= list[i - 1]) {
            return fail(c, FL_ECORRUPT, "a list of free pages is out of order");
        }
        int rc = mark_seen(c, list[i]);
        if (rc != 0) {
            return rc;
        }
        c->tail_free += list[i] >= c->file_pages ? 1 : 0;
    }
    return 0;
}

static int visit_free_list(struct checker *c, const struct node *n)
{
    size_t first = 0;
    if (n->big) {
        int rc = check_overflow(c, n, &first);
        if (rc != 0) {
            return rc;
        }
        if (first + (n->size + sizeof(struct page_header) - 1) / c->page_size >= c->file_pages) {
            return fail(c, FL_ECORRUPT, "the data file ends inside page %zu", first);
        }
    }
    size_t *list = malloc(n->size + 1);
    if (list == NULL) {
        return fail(c, FL_ENOMEM, "out of memory");
    }
    int rc = 0;
    if (n->big) {
        rc = read_at(c, list, n->size, (uint64_t)first * c->page_size + sizeof(struct page_header));
    } else {
        memcpy(list, n->value, n->size);
    }
    if (rc == 0) {
        rc = check_free_list(c, list, n->size / sizeof(size_t));
    }
    free(list);
    return rc;
}

static int check_counts(struct checker *c, const struct db *db)
{
    const struct db *f = &c->found;
    if (f->branch_pages != db->branch_pages || f->leaf_pages != db->leaf_pages ||
        f->overflow_pages != db->overflow_pages || f->entries != db->entries) {
        return fail(c, FL_ECORRUPT, "a tree does not have the size its meta page says");
    }
    return 0;
}

/* One step of the walk: handles the next node of the page on top of the stack. */
static int step(struct checker *c, const struct db *db)
{
    struct frame *f = &c->stack[c->depth - 1];
    if (f->next == f->nodes) {
        c->depth--;
        return 0;
    }
    struct node n;
    unsigned index = f->next++;
    int rc = read_node(c, f, index, &n);
    if (rc != 0) {
        return rc;
    }
    if (!f->leaf) {
        return enter_child(c, &n, index == 0, db);
    }
    rc = check_order(c, n.key);
    if (rc != 0) {
        return rc;
    }
    c->found.entries++;
    return c->free_tree ? visit_free_list(c, &n) : visit_record(c, &n, c->visit);
}

static int walk(struct checker *c, const struct db *db, bool free_tree)
{
    c->free_tree = free_tree;
    c->found = (struct db){0};
    c->has_previous = false;
    c->has_bound = false;
    if (db->flags != (free_tree ? DB_FREE_FLAGS : 0)) {
        return fail(c, FL_ECORRUPT, "a tree has unknown flags");
    }
    if (db->root == NO_PAGE) {
        return db->depth != 0 ? fail(c, FL_ECORRUPT, "a tree has lost its root")
                              : check_counts(c, db);
    }
    if (db->depth == 0 || db->depth > DEPTH_MAX) {
        return fail(c, FL_ECORRUPT, "a tree has an impossible depth");
    }
    FLI_ASSERT(c->depth == 0);
    int rc = push_page(c, db->root, db);
    while (rc == 0 && c->depth > 0) {
        rc = step(c, db);
    }
    return rc != 0 ? rc : check_counts(c, db);
}

/* Shows the caller the first record of the commit before. LMDB reuses its pages only after the next
 * commit, so they are intact; the present tree may share them. */
static int show_previous(struct checker *c, const struct db *db, fli_pages_visit previous)
{
    struct node n;
    size_t pgno = db->root;
    if (db->depth == 0 || db->depth > DEPTH_MAX || db->root == NO_PAGE) {
        return fail(c, FL_ECORRUPT, "the tree of the commit before has an impossible depth");
    }
    for (unsigned level = 0; level < db->depth; level++) {
        int rc = load_page(c, pgno, level, db);
        if (rc == 0) {
            rc = read_node(c, &c->stack[level], 0, &n);
        }
        if (rc != 0) {
            return rc;
        }
        pgno = n.child;
    }
    if (n.big) {
        return fail(c, FL_ECORRUPT, "the first record of the commit before is damaged");
    }
    return visit_record(c, &n, previous);
}

static int read_meta(struct checker *c, unsigned which, struct meta *ret)
{
    uint8_t raw[sizeof(struct page_header) + sizeof(struct meta)];
    int rc = read_at(c, raw, sizeof(raw), (uint64_t)which * c->page_size);
    if (rc != 0) {
        return rc;
    }
    struct page_header h;
    memcpy(&h, raw, sizeof(h));
    memcpy(ret, raw + sizeof(h), sizeof(*ret));
    if (ret->magic != MAGIC || ret->version != VERSION) {
        return fail(c, FL_EVERSION, "meta page %u is not of a known LMDB format", which);
    }
    if (h.pgno != which || h.flags != PAGE_META) {
        return fail(c, FL_ECORRUPT, "meta page %u has a damaged header", which);
    }
    return 0;
}

/* Reads both meta pages and picks the one of the last commit. */
static int pick_meta(struct checker *c, struct meta *ret, struct meta *ret_previous)
{
    struct meta meta[2];
    int rc = read_meta(c, 0, &meta[0]);
    if (rc != 0) {
        return rc;
    }
    size_t size = meta[0].dbs[0].pad;
    if (size < 512 || size > 32768 || (size & (size - 1)) != 0) {
        return fail(c, FL_ECORRUPT, "the page size is damaged");
    }
    c->page_size = size;
    rc = read_meta(c, 1, &meta[1]);
    if (rc != 0) {
        return rc;
    }
    if (meta[1].dbs[0].pad != size) {
        return fail(c, FL_ECORRUPT, "the meta pages disagree about the page size");
    }
    size_t a = meta[0].txnid;
    size_t b = meta[1].txnid;
    bool fresh = a == 0 && b == 0;
    if (!fresh && (a % 2 != 0 || b % 2 != 1 || (a > b ? a - b : b - a) != 1)) {
        return fail(c, FL_ECORRUPT, "the meta pages are not of two consecutive commits");
    }
    *ret = meta[a > b ? 0 : 1];
    *ret_previous = meta[a > b ? 1 : 0];
    return 0;
}

static int check_file(struct checker *c, fli_pages_visit previous, struct meta *ret,
                      struct meta *ret_previous)
{
    struct stat st;
    if (fstat(c->fd, &st) != 0) {
        return fail(c, FL_EIO, "the data file cannot be examined: %s", strerror(errno));
    }
    int rc = pick_meta(c, ret, ret_previous);
    if (rc != 0) {
        return rc;
    }
    c->file_pages = (size_t)st.st_size / c->page_size;
    c->last_page = ret->last_page;
    if (c->last_page < 1 || c->last_page >= c->file_pages + TAIL_MAX) {
        return fail(c, FL_ECORRUPT, "the data file is shorter than its meta page says");
    }
    c->seen = calloc(1, c->last_page / 8 + 1);
    c->pages = malloc(DEPTH_MAX * c->page_size);
    c->taken = malloc(c->page_size);
    if (c->seen == NULL || c->pages == NULL || c->taken == NULL) {
        return fail(c, FL_ENOMEM, "out of memory");
    }
    rc = walk(c, &ret->dbs[0], true);
    if (rc == 0) {
        rc = walk(c, &ret->dbs[1], false);
    }
    if (rc != 0) {
        return rc;
    }
    /* LMDB does not write pages that were allocated and freed in one transaction. So the file may
     * end early, but only by such pages. */
    if (c->last_page >= c->file_pages && c->tail_free != c->last_page + 1 - c->file_pages) {
        return fail(c, FL_ECORRUPT, "the data file is cut short");
    }
    return ret_previous->txnid == 0 ? 0 : show_previous(c, &ret_previous->dbs[1], previous);
}

int fli_pages_check(int fd, fli_pages_visit visit, fli_pages_visit previous, void *ctx,
                    struct fli_pages_info *ret, char *errmsg, size_t errmsg_size)
{
    struct checker c = {
        .fd = fd, .visit = visit, .ctx = ctx, .errmsg = errmsg, .errmsg_size = errmsg_size};
    struct meta meta;
    struct meta before = {0};
    int rc = check_file(&c, previous, &meta, &before);
    free(c.seen);
    free(c.pages);
    free(c.taken);
    if (rc != 0) {
        return rc;
    }
    *ret = (struct fli_pages_info){.txnid = meta.txnid,
                                   .previous_txnid = before.txnid,
                                   .page_size = c.page_size,
                                   .pages = (uint64_t)meta.last_page + 1};
    return 0;
}
