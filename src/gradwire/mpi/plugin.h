#pragma once

/* What gradwire needs of an MPI, as a table of functions. MPI fixes the names of its functions, and
 * not the size of its handles and the values of its constants; so plugin.c is compiled once for
 * each MPI, into a library of its own, which gradwire loads when MPI is asked for.
 *
 * Functions that return int return an error code of MPI, and 0 for success. All but `abort` must be
 * called by one thread at a time. */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A change of this file that a loaded library must know of. */
#define GRADWIRE_MPI_PLUGIN_VERSION 2
#define GRADWIRE_MPI_PLUGIN_SYMBOL "gradwire_mpi_plugin"

/* Errors of a library's own. */
#define GRADWIRE_MPI_ONE_THREAD (-1)
#define GRADWIRE_MPI_SHORT (-2)

/* An MPI_Comm, MPI_Request or MPI_Op. */
typedef uint64_t gradwire_mpi_handle;

enum gradwire_mpi_what {
  GRADWIRE_MPI_ALL_REDUCE,
  GRADWIRE_MPI_BROADCAST,
  GRADWIRE_MPI_ALL_GATHER,
  GRADWIRE_MPI_REDUCE_SCATTER,
  GRADWIRE_MPI_REDUCE,
  GRADWIRE_MPI_GATHER,
  GRADWIRE_MPI_SCATTER,
  GRADWIRE_MPI_ALL_TO_ALL,
  GRADWIRE_MPI_ALL_TO_ALL_V,
  GRADWIRE_MPI_BARRIER,
  GRADWIRE_MPI_SEND,
  GRADWIRE_MPI_RECV
};

/* Elements of bfloat16 and float16 travel as uint16. */
enum gradwire_mpi_type {
  GRADWIRE_MPI_FLOAT32,
  GRADWIRE_MPI_FLOAT64,
  GRADWIRE_MPI_UINT16,
  GRADWIRE_MPI_INT32,
  GRADWIRE_MPI_INT64,
  GRADWIRE_MPI_UINT8,
  GRADWIRE_MPI_INT8,
  GRADWIRE_MPI_INT16
};

enum gradwire_mpi_op {
  GRADWIRE_MPI_SUM,
  GRADWIRE_MPI_MIN,
  GRADWIRE_MPI_MAX,
  GRADWIRE_MPI_PRODUCT,
  GRADWIRE_MPI_BIT_AND,
  GRADWIRE_MPI_BIT_OR,
  GRADWIRE_MPI_BIT_XOR,
  GRADWIRE_MPI_OPS
};

/* A collective or a message. `count`: elements of each part where ranks have parts, else of all.
 * `input` and `output`: NULL where a rank has no elements. `in_place`: the input is this rank's
 * part of the output. `root`: of the collective, or the other rank of a message, -1: any. */
struct gradwire_mpi_call {
  enum gradwire_mpi_what what;
  enum gradwire_mpi_type type;
  gradwire_mpi_handle op;
  gradwire_mpi_handle comm;
  const void* input;
  void* output;
  int in_place;
  int count;
  int root;
  int tag;
  /* Of each rank, for GRADWIRE_MPI_ALL_TO_ALL_V; kept until the call has completed. */
  const int* input_counts;
  const int* input_begins;
  const int* output_counts;
  const int* output_begins;
};

/* Combines `*count` elements: inout[i] = in[i] op inout[i]. An MPI_User_function. */
typedef void (*gradwire_mpi_combine)(void* in, void* inout, int* count, void* type);

struct gradwire_mpi {
  int version;      /* GRADWIRE_MPI_PLUGIN_VERSION. */
  const char* name; /* Of the MPI that it was compiled for: "Open MPI", "MPICH", "MPI". */

  /* Initializes MPI for calls by one thread at a time, unless the process has done so. Fails with
   * GRADWIRE_MPI_ONE_THREAD if the process has initialized it for fewer threads. */
  int (*init)(int* rank, int* size);
  /* Ends MPI if init() has initialized it. */
  void (*finalize)(void);
  /* Ends all processes of the job. From any thread. */
  void (*abort)(int status);
  void (*version_text)(char* text, int capacity);
  void (*error_text)(int error, char* text, int capacity);

  int (*world)(gradwire_mpi_handle* comm);
  int (*duplicate)(gradwire_mpi_handle comm, gradwire_mpi_handle* made);
  /* `ranks` of `comm`, and collective over them alone. */
  int (*subgroup)(gradwire_mpi_handle comm, const int* ranks, int count, gradwire_mpi_handle* made);
  int (*free_comm)(gradwire_mpi_handle comm);
  int (*largest_tag)(gradwire_mpi_handle comm);

  gradwire_mpi_handle (*named_op)(enum gradwire_mpi_op op);
  int (*make_op)(gradwire_mpi_combine combine, gradwire_mpi_handle* op);

  /* The blocking function of MPI, of collectives: it matches only blocking ones of other ranks. */
  int (*run)(const struct gradwire_mpi_call* call);
  /* The non-blocking one, and its end. `source`: the sender of a received message, which fails with
   * GRADWIRE_MPI_SHORT if it has fewer elements than the call. */
  int (*start)(const struct gradwire_mpi_call* call, gradwire_mpi_handle* request);
  int (*test)(const struct gradwire_mpi_call* call, gradwire_mpi_handle* request, int* done,
              int* source);
};

/* The one function of a library. */
const struct gradwire_mpi* gradwire_mpi_plugin(void);

#ifdef __cplusplus
}
#endif
