/* A team of OpenMP threads that meets at a barrier again and again, as libraries of linear algebra do. */
void team(int threads, int rounds, int units) {
    volatile double sink = 0;
#pragma omp parallel num_threads(threads)
    for (int round = 0; round < rounds; round++) {
        double sum = 0;
        for (int i = 0; i < units / threads; i++) sum += i * 0.5;
#pragma omp barrier
#pragma omp single
        sink += sum;
    }
}
