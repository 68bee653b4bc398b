/* gradwire's view of an MPI (plugin.h). Compile with that MPI's compiler:
 *   mpicc -O2 -shared -fPIC -o libgradwire-mpi.so plugin.c
 */
#include "plugin.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* Handles are ints or pointers. */
_Static_assert(sizeof(MPI_Comm) <= sizeof(gradwire_mpi_handle), "handles must fit");

static MPI_Comm comm_of(gradwire_mpi_handle handle) {
  MPI_Comm comm;
  memcpy(&comm, &handle, sizeof comm);
  return comm;
}

static MPI_Op op_of(gradwire_mpi_handle handle) {
  MPI_Op op;
  memcpy(&op, &handle, sizeof op);
  return op;
}

static gradwire_mpi_handle handle_of(const void* value, size_t size) {
  gradwire_mpi_handle handle = 0;
  memcpy(&handle, value, size);
  return handle;
}

static MPI_Datatype type_of(enum gradwire_mpi_type type) {
  switch (type) {
    case GRADWIRE_MPI_FLOAT32:
      return MPI_FLOAT;
    case GRADWIRE_MPI_FLOAT64:
      return MPI_DOUBLE;
    case GRADWIRE_MPI_UINT16:
      return MPI_UINT16_T;
    case GRADWIRE_MPI_INT32:
      return MPI_INT32_T;
    case GRADWIRE_MPI_INT64:
      return MPI_INT64_T;
    case GRADWIRE_MPI_UINT8:
      return MPI_UINT8_T;
    case GRADWIRE_MPI_INT8:
      return MPI_INT8_T;
    default:
      return MPI_INT16_T;
  }
}

/* --- the process --- */

static int initialized_here = 0;

static int init(int* rank, int* size) {
  int initialized = 0, provided = MPI_THREAD_SINGLE;
  int error = MPI_Initialized(&initialized);
  if (error) return error;
  if (initialized) {
    error = MPI_Query_thread(&provided);
  } else {
    error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    initialized_here = !error;
  }
  if (error) return error;
  if (provided < MPI_THREAD_SERIALIZED) return GRADWIRE_MPI_ONE_THREAD;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  return MPI_Comm_size(MPI_COMM_WORLD, size);
}

static void finalize(void) {
  int finalized = 1;
  MPI_Finalized(&finalized);
  if (initialized_here && !finalized) MPI_Finalize();
}

static void abort_job(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
}

/* Copies the first line. */
static void copy_text(const char* from, char* text, int capacity) {
  snprintf(text, (size_t)capacity, "%.*s", (int)strcspn(from, "\n"), from);
}

static void version_text(char* text, int capacity) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  copy_text(version, text, capacity);
}

static void error_text(int error, char* text, int capacity) {
  char message[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (error > 0) MPI_Error_string(error, message, &length);
  if (error == GRADWIRE_MPI_ONE_THREAD) strcpy(message, "MPI was initialized for one thread");
  if (error == GRADWIRE_MPI_SHORT) strcpy(message, "the sender sent fewer elements");
  copy_text(message, text, capacity);
}

/* --- groups --- */

static int world(gradwire_mpi_handle* comm) {
  const MPI_Comm all = MPI_COMM_WORLD;
  *comm = handle_of(&all, sizeof all);
  return 0;
}

static int duplicate(gradwire_mpi_handle comm, gradwire_mpi_handle* made) {
  MPI_Comm copy;
  const int error = MPI_Comm_dup(comm_of(comm), &copy);
  if (!error) *made = handle_of(&copy, sizeof copy);
  return error;
}

static int subgroup(gradwire_mpi_handle comm, const int* ranks, int count,
                    gradwire_mpi_handle* made) {
  MPI_Group all, some;
  MPI_Comm members;
  int error = MPI_Comm_group(comm_of(comm), &all);
  if (error) return error;
  error = MPI_Group_incl(all, count, ranks, &some);
  MPI_Group_free(&all);
  if (error) return error;
  error = MPI_Comm_create_group(comm_of(comm), some, 0, &members);
  MPI_Group_free(&some);
  if (!error) *made = handle_of(&members, sizeof members);
  return error;
}

static int free_comm(gradwire_mpi_handle comm) {
  MPI_Comm freed = comm_of(comm);
  return MPI_Comm_free(&freed);
}

static int largest_tag(gradwire_mpi_handle comm) {
  int* largest = NULL;
  int found = 0;
  MPI_Comm_get_attr(comm_of(comm), MPI_TAG_UB, &largest, &found);
  return found ? *largest : 32767; /* What every MPI has. */
}

/* --- reductions --- */

static gradwire_mpi_handle named_op(enum gradwire_mpi_op op) {
  MPI_Op ops[GRADWIRE_MPI_OPS];
  ops[GRADWIRE_MPI_SUM] = MPI_SUM;
  ops[GRADWIRE_MPI_MIN] = MPI_MIN;
  ops[GRADWIRE_MPI_MAX] = MPI_MAX;
  ops[GRADWIRE_MPI_PRODUCT] = MPI_PROD;
  ops[GRADWIRE_MPI_BIT_AND] = MPI_BAND;
  ops[GRADWIRE_MPI_BIT_OR] = MPI_BOR;
  ops[GRADWIRE_MPI_BIT_XOR] = MPI_BXOR;
  return handle_of(&ops[op], sizeof ops[op]);
}

static int make_op(gradwire_mpi_combine combine, gradwire_mpi_handle* op) {
  MPI_Op made;
  MPI_User_function* function = NULL;
  /* They differ in the last parameter alone, a pointer. */
  memcpy(&function, &combine, sizeof function);
  const int error = MPI_Op_create(function, 1, &made);
  if (!error) *op = handle_of(&made, sizeof made);
  return error;
}

/* --- operations --- */

static int run(const struct gradwire_mpi_call* c) {
  const MPI_Datatype type = type_of(c->type);
  const MPI_Comm comm = comm_of(c->comm);
  const void* in = c->in_place ? MPI_IN_PLACE : c->input;
  switch (c->what) {
    case GRADWIRE_MPI_ALL_REDUCE:
      return MPI_Allreduce(in, c->output, c->count, type, op_of(c->op), comm);
    case GRADWIRE_MPI_BROADCAST:
      return MPI_Bcast(c->output, c->count, type, c->root, comm);
    case GRADWIRE_MPI_ALL_GATHER:
      return MPI_Allgather(in, c->count, type, c->output, c->count, type, comm);
    case GRADWIRE_MPI_REDUCE_SCATTER:
      return MPI_Reduce_scatter_block(in, c->output, c->count, type, op_of(c->op), comm);
    case GRADWIRE_MPI_REDUCE:
      return MPI_Reduce(in, c->output, c->count, type, op_of(c->op), c->root, comm);
    case GRADWIRE_MPI_GATHER:
      return MPI_Gather(in, c->count, type, c->output, c->count, type, c->root, comm);
    case GRADWIRE_MPI_SCATTER:
      return MPI_Scatter(in, c->count, type, c->output, c->count, type, c->root, comm);
    case GRADWIRE_MPI_ALL_TO_ALL:
      return MPI_Alltoall(in, c->count, type, c->output, c->count, type, comm);
    case GRADWIRE_MPI_ALL_TO_ALL_V:
      return MPI_Alltoallv(in, c->input_counts, c->input_begins, type, c->output, c->output_counts,
                           c->output_begins, type, comm);
    default:
      return MPI_Barrier(comm);
  }
}

static int start_request(const struct gradwire_mpi_call* c, MPI_Request* request) {
  const MPI_Datatype type = type_of(c->type);
  const MPI_Comm comm = comm_of(c->comm);
  const void* in = c->in_place ? MPI_IN_PLACE : c->input;
  switch (c->what) {
    case GRADWIRE_MPI_ALL_REDUCE:
      return MPI_Iallreduce(in, c->output, c->count, type, op_of(c->op), comm, request);
    case GRADWIRE_MPI_BROADCAST:
      return MPI_Ibcast(c->output, c->count, type, c->root, comm, request);
    case GRADWIRE_MPI_ALL_GATHER:
      return MPI_Iallgather(in, c->count, type, c->output, c->count, type, comm, request);
    case GRADWIRE_MPI_REDUCE_SCATTER:
      return MPI_Ireduce_scatter_block(in, c->output, c->count, type, op_of(c->op), comm, request);
    case GRADWIRE_MPI_REDUCE:
      return MPI_Ireduce(in, c->output, c->count, type, op_of(c->op), c->root, comm, request);
    case GRADWIRE_MPI_GATHER:
      return MPI_Igather(in, c->count, type, c->output, c->count, type, c->root, comm, request);
    case GRADWIRE_MPI_SCATTER:
      return MPI_Iscatter(in, c->count, type, c->output, c->count, type, c->root, comm, request);
    case GRADWIRE_MPI_ALL_TO_ALL:
      return MPI_Ialltoall(in, c->count, type, c->output, c->count, type, comm, request);
    case GRADWIRE_MPI_ALL_TO_ALL_V:
      return MPI_Ialltoallv(in, c->input_counts, c->input_begins, type, c->output, c->output_counts,
                            c->output_begins, type, comm, request);
    case GRADWIRE_MPI_SEND:
      return MPI_Isend(c->input, c->count, type, c->root, c->tag, comm, request);
    case GRADWIRE_MPI_RECV:
      return MPI_Irecv(c->output, c->count, type, c->root < 0 ? MPI_ANY_SOURCE : c->root, c->tag,
                       comm, request);
    default:
      return MPI_Ibarrier(comm, request);
  }
}

static int start(const struct gradwire_mpi_call* call, gradwire_mpi_handle* request) {
  MPI_Request started;
  const int error = start_request(call, &started);
  if (!error) *request = handle_of(&started, sizeof started);
  return error;
}

static int test(const struct gradwire_mpi_call* call, gradwire_mpi_handle* request, int* done,
                int* source) {
  MPI_Request tested;
  MPI_Status status;
  memcpy(&tested, request, sizeof tested);
  int error = MPI_Test(&tested, done, &status);
  *request = handle_of(&tested, sizeof tested);
  if (error || !*done) return error;
  *source = status.MPI_SOURCE;
  if (call->what != GRADWIRE_MPI_RECV) return 0;
  int count = 0;
  error = MPI_Get_count(&status, type_of(call->type), &count);
  return !error && count != call->count ? GRADWIRE_MPI_SHORT : error;
}

const struct gradwire_mpi* gradwire_mpi_plugin(void) {
  static const struct gradwire_mpi table = {
    .version = GRADWIRE_MPI_PLUGIN_VERSION,
#if defined(OPEN_MPI)
    .name = "Open MPI",
#elif defined(MPICH_VERSION) || defined(MPICH)
    .name = "MPICH",
#else
    .name = "MPI",
#endif
    .init = init,
    .finalize = finalize,
    .abort = abort_job,
    .version_text = version_text,
    .error_text = error_text,
    .world = world,
    .duplicate = duplicate,
    .subgroup = subgroup,
    .free_comm = free_comm,
    .largest_tag = largest_tag,
    .named_op = named_op,
    .make_op = make_op,
    .run = run,
    .start = start,
    .test = test
  };
  return &table;
}
