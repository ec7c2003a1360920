/* Shows what a CPython shows that says it is of a version of Python 3, in hexadecimal, and whether free-threaded.
 *
 * usage: other_python MINOR FREE_THREADED */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct {
    char cookie[8];
    unsigned long version, free_threaded, offsets[1024];
} _PyRuntime = {"xdebugpy"};

int main(int n, char **arguments) {
    if (n != 3) return 1;
    _PyRuntime.version = 3ul << 24 | strtoul(arguments[1], NULL, 16) << 16;
    _PyRuntime.free_threaded = strtoul(arguments[2], NULL, 10);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
