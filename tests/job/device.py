"""The CUDA driver API by ctypes, as much of it as a training loop needs."""

import ctypes

NON_BLOCKING_STREAM = 1
BLOCKING_SYNC = 4
EVENT_BLOCKING_SYNC = 1


class CudaError(RuntimeError):
    pass


class Device:
    """A primary context on one device. Calls release the interpreter lock, as a framework's do."""

    def __init__(self, library, ordinal=0, blocking=False):
        self.cuda = ctypes.CDLL(library)
        self.event_flags = EVENT_BLOCKING_SYNC if blocking else 0
        self._call("cuInit", ctypes.c_uint(0))
        if blocking:
            self._call("cuDevicePrimaryCtxSetFlags_v2", ctypes.c_int(ordinal), ctypes.c_uint(BLOCKING_SYNC))
        self.context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), ctypes.c_int(ordinal))
        self.use()
        self.module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(self.module), ctypes.c_char_p(b""))

    def use(self):
        """Makes the context current on the calling thread."""
        self._call("cuCtxSetCurrent", self.context)

    def function(self, name):
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self.module, name.encode())
        return function

    def stream(self):
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(NON_BLOCKING_STREAM))
        return stream

    def alloc(self, size):
        address = ctypes.c_void_p()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def free(self, address):
        self._call("cuMemFree_v2", address)

    def load(self, image):
        """Loads a module and unloads it."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image.encode()))
        self._call("cuModuleUnload", module)

    def event(self):
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(self.event_flags))
        return event

    def record(self, event, stream):
        self._call("cuEventRecord", event, stream)

    def wait_event(self, event):
        self._call("cuEventSynchronize", event)

    def host_alloc(self, size):
        """Pinned host memory."""
        address = ctypes.c_void_p()
        self._call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_uint(0))
        return address

    def launch(self, function, microseconds, stream):
        """A kernel with one block a microsecond: what it lasts on the simulated device."""
        grid = ctypes.c_uint(max(1, microseconds))
        one, none = ctypes.c_uint(1), ctypes.c_void_p()
        self._call("cuLaunchKernel", function, grid, one, one, one, one, one, ctypes.c_uint(0), stream, none, none)

    def copy_to_device(self, to, source, size, stream):
        self._call("cuMemcpyHtoDAsync_v2", to, ctypes.c_void_p(getattr(source, "value", source)), ctypes.c_size_t(size), stream)

    def synchronize(self, stream):
        self._call("cuStreamSynchronize", stream)

    def _call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            raise CudaError(f"{name} failed with {code}")
