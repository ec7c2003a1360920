/* A program that is linked with Python, and runs a script in a thread that Python did not begin.
 *
 * usage: embedding SCRIPT ARGUMENT ... */
#include <Python.h>
#include <pthread.h>

static void *script(void *path) {
    PyGILState_STATE state = PyGILState_Ensure();
    FILE *file = fopen(path, "r");
    int failed = !file || PyRun_SimpleFileEx(file, path, 1);
    PyGILState_Release(state);
    return (void *)(long)failed;
}

int main(int n, char **arguments) {
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    config.parse_argv = 0;
    if (PyStatus_Exception(PyConfig_SetBytesArgv(&config, n - 1, arguments + 1)) ||
        PyStatus_Exception(Py_InitializeFromConfig(&config)))
        return 1;
    PyThreadState *own = PyEval_SaveThread();
    pthread_t thread;
    void *failed = &thread;
    if (!pthread_create(&thread, NULL, script, arguments[1])) pthread_join(thread, &failed);
    PyEval_RestoreThread(own);
    return Py_FinalizeEx() || failed;
}
