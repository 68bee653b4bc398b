#include <climits>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradwire/mpi/mpi_engine.h"

namespace gradwire::mpi {
namespace {

using engine::OperationRequest;
using schedule::Collective;

bool is_send(const OperationRequest& request, Rank rank) {
  if (request.sends_to_self) return true;
  return request.fingerprint.root == rank && request.peer >= 0 && request.peer != rank;
}

/// Open MPI refuses to reduce nothing. Ranks that exchange nothing still wait for each other.
bool is_empty_collective(const OperationRequest& request) {
  return request.tag < 0 && request.fingerprint.count == 0 && !request.splits;
}

gradwire_mpi_what what_of(const OperationRequest& request, Rank rank) {
  if (is_empty_collective(request)) return GRADWIRE_MPI_BARRIER;
  switch (request.fingerprint.collective) {
    case Collective::all_reduce:
      return GRADWIRE_MPI_ALL_REDUCE;
    case Collective::broadcast:
      return GRADWIRE_MPI_BROADCAST;
    case Collective::all_gather:
      return GRADWIRE_MPI_ALL_GATHER;
    case Collective::reduce_scatter:
      return GRADWIRE_MPI_REDUCE_SCATTER;
    case Collective::reduce:
      return GRADWIRE_MPI_REDUCE;
    case Collective::gather:
      return GRADWIRE_MPI_GATHER;
    case Collective::scatter:
      return GRADWIRE_MPI_SCATTER;
    case Collective::all_to_all:
      return request.splits ? GRADWIRE_MPI_ALL_TO_ALL_V : GRADWIRE_MPI_ALL_TO_ALL;
    case Collective::point_to_point:
      return is_send(request, rank) ? GRADWIRE_MPI_SEND : GRADWIRE_MPI_RECV;
    case Collective::barrier:
      break;
  }
  return GRADWIRE_MPI_BARRIER;
}

gradwire_mpi_type type_of(DataType type) {
  switch (type) {
    case DataType::float32:
      return GRADWIRE_MPI_FLOAT32;
    case DataType::float64:
      return GRADWIRE_MPI_FLOAT64;
    case DataType::bfloat16:
    case DataType::float16:
      return GRADWIRE_MPI_UINT16;
    case DataType::int32:
      return GRADWIRE_MPI_INT32;
    case DataType::int64:
      return GRADWIRE_MPI_INT64;
    case DataType::uint8:
      return GRADWIRE_MPI_UINT8;
    case DataType::int8:
      return GRADWIRE_MPI_INT8;
    case DataType::int16:
      break;
  }
  return GRADWIRE_MPI_INT16;
}

/// The elements of a part where ranks have parts, else all.
std::uint64_t elements_of(const OperationRequest& request, int ranks) {
  const bool has_parts = schedule::has_parts(request.fingerprint.collective);
  return request.fingerprint.count / (has_parts ? static_cast<std::uint64_t>(ranks) : 1);
}

int count_for_mpi(const OperationRequest& request, std::uint64_t elements) {
  if (elements <= INT_MAX) return static_cast<int>(elements);
  throw Exception(ErrorKind::unsupported,
                  fmt::format("{}: MPI counts elements up to {}; use smaller buffers",
                              request.fingerprint.describe(), INT_MAX));
}

/// The input is this rank's part of the output, or all of it.
bool is_in_place(const OperationRequest& request, Rank rank, std::size_t bytes) {
  switch (request.fingerprint.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return request.input == request.output;
    case Collective::all_gather:
    case Collective::gather:
      return request.output != nullptr &&
             request.input == request.output + static_cast<std::size_t>(rank) * bytes;
    default:
      return false;
  }
}

/// Counts and begins of the parts of an input or output.
void append_parts(const OperationRequest& request, schedule::Buffer buffer, int ranks,
                  std::vector<int>& parts) {
  const auto begin = [&](int rank) {
    return count_for_mpi(request, request.splits->begin(buffer, static_cast<std::uint32_t>(rank)));
  };
  for (int rank = 0; rank < ranks; ++rank) parts.push_back(begin(rank + 1) - begin(rank));
  for (int rank = 0; rank < ranks; ++rank) parts.push_back(begin(rank));
}

}  // namespace

gradwire_mpi_call call_for(const OperationRequest& request, gradwire_mpi_handle lane, Rank rank,
                           int ranks, std::vector<int>& parts) {
  gradwire_mpi_call call{};
  call.what = what_of(request, rank);
  call.type = type_of(request.fingerprint.type);
  call.comm = lane;
  call.count = count_for_mpi(request, elements_of(request, ranks));
  call.root = request.tag >= 0 ? request.peer : request.fingerprint.root;
  call.tag = request.tag;
  const auto bytes = static_cast<std::size_t>(call.count) * size_of(request.fingerprint.type);
  call.input = request.input;
  call.output = request.output;
  call.in_place = is_in_place(request, rank, bytes) ? 1 : 0;
  if (!request.splits) return call;
  append_parts(request, schedule::Buffer::input, ranks, parts);
  append_parts(request, schedule::Buffer::output, ranks, parts);
  const auto columns = static_cast<std::size_t>(ranks);
  call.input_counts = parts.data();
  call.input_begins = parts.data() + columns;
  call.output_counts = parts.data() + 2 * columns;
  call.output_begins = parts.data() + 3 * columns;
  return call;
}

}  // namespace gradwire::mpi
