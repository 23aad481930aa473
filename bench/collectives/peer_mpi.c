// Latency of an MPI's collectives, with the lines of collectives_bench.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void call(int operation, float* whole, float* part, int count, int world) {
  switch (operation) {
    case 0:
      MPI_Allreduce(MPI_IN_PLACE, whole, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case 1:
      MPI_Reduce_scatter_block(whole, part, count / world, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case 2:
      MPI_Allgather(part, count / world, MPI_FLOAT, whole, count / world, MPI_FLOAT, MPI_COMM_WORLD);
      break;
    default:
      MPI_Bcast(whole, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  }
}

int main(int argc, char** argv) {
  static const char* const names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"};
  static const long sizes[] = {4L << 10, 64L << 10, 1L << 20, 4L << 20, 64L << 20};
  int rank, world;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  for (int s = 0; s < 5; ++s) {
    const long bytes = sizes[s];
    float* whole = malloc((size_t)bytes);
    float* part = malloc((size_t)(bytes / world));
    memset(part, 0, (size_t)(bytes / world));
    for (int operation = 0; operation < 4; ++operation) {
      long repetitions = (1L << 29) / (bytes + 65536);
      if (repetitions > 300) repetitions = 300;
      if (repetitions < 10) repetitions = 10;
      const int batch = bytes <= 65536 ? 50 : 1;
      double* micros = malloc(sizeof(double) * (size_t)repetitions);
      for (long i = -repetitions / 10 - 2; i < repetitions; ++i) {
        memset(operation == 2 ? part : whole, 0, (size_t)(operation == 2 ? bytes / world : bytes));
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        for (int j = 0; j < batch; ++j) call(operation, whole, part, (int)(bytes / 4), world);
        if (i >= 0) micros[i] = (MPI_Wtime() - begin) * 1e6 / batch;
      }
      qsort(micros, (size_t)repetitions, sizeof(double), compare);
      if (rank == 0) {
        printf("%s %ld private %.1f %.1f\n", names[operation], bytes, micros[repetitions / 2],
               micros[0]);
        fflush(stdout);
      }
      free(micros);
    }
    free(whole);
    free(part);
  }
  MPI_Finalize();
  return 0;
}
