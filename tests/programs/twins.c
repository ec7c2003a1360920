/* Two functions wait in the same call, called from the same place at the same depth, in turns. Each says first which
   one it is. */
#include <unistd.h>

__attribute__((noinline)) static long first(void) {
    char byte = '1';
    if (write(1, &byte, 1) != 1) return 0;
    return read(0, &byte, 1) + (byte == 'x');
}

__attribute__((noinline)) static long second(void) {
    char byte = '2';
    if (write(1, &byte, 1) != 1) return 0;
    return read(0, &byte, 1) + (byte == 'x');
}

int main(void) {
    long (*turns[])(void) = {first, second};
    for (unsigned turn = 0;; turn++) {
        long (*volatile function)(void) = turns[turn % 2];
        if (function() < 2) return 0;
    }
}
