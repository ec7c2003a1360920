/* Finds `way_in` in the driver that is loaded already. */
extern int way_in(long);

int cudaLaunchKernel(void) { return way_in(3000000); }
int cudaDeviceSynchronize(void) { return way_in(1000); }
