/* A program that has a Python in it by a library of any name.
 *
 * usage: trainer LIBRARY SCRIPT ARGUMENT ... */
#include <dlfcn.h>
#include <stdio.h>

int main(int n, char **arguments) {
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*python)(int, char **) = (int (*)(int, char **))dlsym(library, "Py_BytesMain");
    arguments[1] = arguments[0];
    return python ? python(n - 1, arguments + 1) : 1;
}
