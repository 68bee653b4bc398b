/* Collectives over MPI, measured as `gradwire bench` measures: the time of an iteration is that of
 * the slowest rank, CPU time is the mean over ranks. Operations in which not every rank receives
 * from every other are preceded by a barrier, which is not counted. Rank 0 prints {"rows": [...]}.
 *
 * usage: mpi_bench COLLECTIVE ITERATIONS SECONDS WARMUP BYTES...
 * ITERATIONS 0: as many as take SECONDS, from 5 to 2000. BYTES is the size of the larger of input
 * and output, of floats that are summed.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum collective {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  barrier,
  reduce,
  gather,
  scatter,
  all_to_all,
  point_to_point,
  collectives
};

static const char* const kNames[collectives] = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast",  "barrier",
    "reduce",     "gather",     "scatter",        "all_to_all", "point_to_point"};

struct test {
  enum collective what;
  int rank, ranks;
  int total, part; /* In floats; part: of one rank, if there are parts. */
  float *input, *output;
};

static void run(const struct test* t) {
  const MPI_Comm world = MPI_COMM_WORLD;
  switch (t->what) {
    case all_reduce:
      MPI_Allreduce(MPI_IN_PLACE, t->output, t->total, MPI_FLOAT, MPI_SUM, world);
      break;
    case all_gather:
      MPI_Allgather(t->input, t->part, MPI_FLOAT, t->output, t->part, MPI_FLOAT, world);
      break;
    case reduce_scatter:
      MPI_Reduce_scatter_block(t->input, t->output, t->part, MPI_FLOAT, MPI_SUM, world);
      break;
    case broadcast:
      MPI_Bcast(t->output, t->total, MPI_FLOAT, 0, world);
      break;
    case reduce:
      MPI_Reduce(t->rank == 0 ? MPI_IN_PLACE : t->output, t->output, t->total, MPI_FLOAT, MPI_SUM,
                 0, world);
      break;
    case gather:
      MPI_Gather(t->input, t->part, MPI_FLOAT, t->output, t->part, MPI_FLOAT, 0, world);
      break;
    case scatter:
      MPI_Scatter(t->input, t->part, MPI_FLOAT, t->output, t->part, MPI_FLOAT, 0, world);
      break;
    case all_to_all:
      MPI_Alltoall(t->input, t->part, MPI_FLOAT, t->output, t->part, MPI_FLOAT, world);
      break;
    case point_to_point:
      MPI_Sendrecv(t->input, t->total, MPI_FLOAT, (t->rank + 1) % t->ranks, 0, t->output, t->total,
                   MPI_FLOAT, (t->rank + t->ranks - 1) % t->ranks, 0, world, MPI_STATUS_IGNORE);
      break;
    default:
      MPI_Barrier(world);
  }
}

/* The expected result: every element of rank r's input is r + 1, so it depends only on the part. */
static float expected(const struct test* t, int i) {
  const float sum = (float)(t->ranks * (t->ranks + 1) / 2);
  switch (t->what) {
    case all_reduce:
    case reduce_scatter:
      return sum;
    case reduce:
      return t->rank == 0 ? sum : (float)(t->rank + 1);
    case gather:
      return t->rank == 0 ? (float)(i / t->part + 1) : (float)(t->rank + 1);
    case all_gather:
    case all_to_all:
      return (float)(i / t->part + 1);
    case point_to_point:
      return (float)((t->rank + t->ranks - 1) % t->ranks + 1);
    default:
      return 1;
  }
}

static long count_wrong(const struct test* t) {
  const int outputs = t->what == reduce_scatter || t->what == scatter ? t->part : t->total;
  long wrong = 0;
  for (int i = 0; i < t->total; ++i) t->input[i] = t->output[i] = (float)(t->rank + 1);
  run(t);
  for (int i = 0; i < outputs; ++i) wrong += t->output[i] != expected(t, i);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  memset(t->input, 0, sizeof(float) * (size_t)t->total);
  memset(t->output, 0, sizeof(float) * (size_t)t->total);
  return wrong;
}

/* Without a barrier one rank would run ahead of the others, and its time would be meaningless. */
static int needs_barrier(const struct test* t) {
  return t->what == broadcast || t->what == reduce || t->what == gather || t->what == scatter;
}

static double seconds_of(const struct test* t) {
  if (needs_barrier(t)) MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  run(t);
  return MPI_Wtime() - start;
}

static double cpu_seconds(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static int iterations_for(double once, double seconds) {
  int wanted = (int)(seconds / once < 2000 ? seconds / once : 2000);
  if (wanted < 5) wanted = 5;
  MPI_Bcast(&wanted, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return wanted;
}

static void measure(const struct test* t, long bytes, int iterations, double seconds, int warmup) {
  const long wrong = count_wrong(t);
  double once = 1;
  for (int i = 0; i < (warmup > 0 ? warmup : 1); ++i) once = seconds_of(t);
  if (iterations <= 0) iterations = iterations_for(once, seconds);
  double* times = malloc(sizeof(double) * (size_t)iterations);
  if (!times) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Barrier(MPI_COMM_WORLD);
  double cpu = cpu_seconds();
  for (int i = 0; i < iterations; ++i) times[i] = seconds_of(t);
  cpu = (cpu_seconds() - cpu) / t->ranks;
  MPI_Allreduce(MPI_IN_PLACE, &cpu, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  qsort(times, (size_t)iterations, sizeof(double), ascending);
  const int last = iterations - 1;
  double figures[2] = {times[(last + 1) / 2], times[(99 * last + 99) / 100]};
  /* Of the slowest rank. */
  MPI_Allreduce(MPI_IN_PLACE, figures, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (t->rank == 0) {
    printf("{\"collective\": \"%s\", \"bytes\": %ld, \"ranks\": %d, \"iterations\": %d, "
           "\"median_us\": %.3f, \"p99_us\": %.3f, \"cpu_seconds\": %.9f, \"wrong\": %ld}",
           kNames[t->what], bytes, t->ranks, iterations, figures[0] * 1e6,
           figures[1] * 1e6, cpu / iterations, wrong);
  }
  free(times);
}

static enum collective named(const char* name) {
  int what = 0;
  while (what < collectives && strcmp(name, kNames[what]) != 0) ++what;
  return (enum collective)what;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  struct test t = {.what = argc > 5 ? named(argv[1]) : collectives};
  MPI_Comm_rank(MPI_COMM_WORLD, &t.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &t.ranks);
  if (t.what == collectives) {
    fprintf(stderr, "usage: mpi_bench COLLECTIVE ITERATIONS SECONDS WARMUP BYTES...\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  if (t.rank == 0) printf("{\"rows\": [");
  for (int i = 5; i < argc; ++i) {
    const long bytes = atol(argv[i]);
    t.part = (int)(bytes / (long)sizeof(float)) / t.ranks;
    const int parted = t.what == all_gather || t.what == reduce_scatter || t.what == gather ||
                       t.what == scatter || t.what == all_to_all;
    t.total = parted ? t.part * t.ranks : (int)(bytes / (long)sizeof(float));
    if (t.what == barrier) t.total = 0;
    t.input = malloc(sizeof(float) * (size_t)t.total + 1);
    t.output = malloc(sizeof(float) * (size_t)t.total + 1);
    if (!t.input || !t.output) MPI_Abort(MPI_COMM_WORLD, 1);
    if (t.rank == 0 && i > 5) printf(", ");
    measure(&t, bytes, atoi(argv[2]), atof(argv[3]), atoi(argv[4]));
    free(t.input);
    free(t.output);
  }
  if (t.rank == 0) printf("]}\n");
  MPI_Finalize();
  return 0;
}
