/* Runs micro-kernels on a system that is emulated: calls come on the standard input, and what each
 * made of `c` goes to the standard output. Needs no library.
 *
 * A call: the kernel's place in `kernels`, the bytes of five arrays (a, offsets, other, b, c), four
 * sizes, all of 8 bytes; then the arrays. Each array is put before a page that cannot be read. Which
 * turn a call is makes no difference. */
typedef long long i64;
typedef int (*kernel)(void*, void*, void*, void*, void*, void*, i64, i64, i64, i64, i64);
extern const kernel kernels[];

enum { READ = 63, WRITE = 64, EXIT = 93, MUNMAP = 215, MMAP = 222, MPROTECT = 226, PAGE = 65536 };

static i64 call(i64 n, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f) {
    register i64 x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    register i64 x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = e;
    register i64 x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}

static int all(i64 what, char* data, i64 bytes) {
    for (i64 n; bytes > 0; data += n, bytes -= n)
        if ((n = call(what, what == WRITE, (i64)data, bytes, 0, 0, 0)) <= 0) return 0;
    return 1;
}

void _start(void) {
    i64 head[10];
    while (all(READ, (char*)head, sizeof head)) {
        char *maps[5], *at[5];
        i64 room[5];
        for (int k = 0; k < 5; k++) {
            i64 bytes = head[1 + k];
            room[k] = (bytes + PAGE) / PAGE * PAGE;
            maps[k] = (char*)call(MMAP, 0, room[k] + PAGE, 3, 0x22, -1, 0);
            call(MPROTECT, (i64)maps[k] + room[k], PAGE, 0, 0, 0, 0);
            at[k] = maps[k] + room[k] - bytes;
            if (!all(READ, at[k], bytes)) call(EXIT, 2, 0, 0, 0, 0, 0);
        }
        i64* size = head + 6;
        if (kernels[head[0]](0, at[0], at[1], at[2], at[3], at[4], size[0], size[1], size[2], size[3],
                             size[0]))
            call(EXIT, 3, 0, 0, 0, 0, 0);
        if (!all(WRITE, at[4], head[5])) call(EXIT, 4, 0, 0, 0, 0, 0);
        for (int k = 0; k < 5; k++) call(MUNMAP, (i64)maps[k], room[k] + PAGE, 0, 0, 0, 0);
    }
    call(EXIT, 0, 0, 0, 0, 0, 0);
}
