/* Naps some times in NAME_nap, DEPTH calls deep, then becomes the program its first argument names, with itself as
   that one's argument. Without an argument it ends. */
#include <time.h>
#include <unistd.h>

#define JOINED(a, b) a##b
#define NAP(name) JOINED(name, _nap)

__attribute__((noinline)) static int NAP(NAME)(int depth) {
    if (depth == 0) {
        struct timespec t = {0, 1500000};
        return nanosleep(&t, NULL) == 0;
    }
    int more = NAP(NAME)(depth - 1);
    /* Keeps the compiler from making a loop of it. */
    __asm__ volatile("" : "+r"(more));
    return more + 1;
}

int main(int count, char **arguments) {
    for (int i = 0; i < 100; i++) NAP(NAME)(DEPTH - 1);
    if (count < 2) return 0;
    char *next[] = {arguments[1], arguments[0], NULL};
    return execv(next[0], next);
}
