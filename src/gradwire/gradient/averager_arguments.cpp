#include "gradwire/gradient/averager_arguments.h"

#include <fmt/format.h>

namespace gradwire {
namespace {

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Exception(ErrorKind::invalid_argument, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace

void check_start(const std::vector<BucketShape>& buckets, std::size_t bucket,
                 const LentSpan& data) {
  if (bucket >= buckets.size()) refuse("bucket {} of {} does not exist", bucket, buckets.size());
  const BucketShape& shape = buckets[bucket];
  if (data.count == shape.count && data.type == shape.type) return;
  refuse("bucket {} has {} {}, but {} {} were given", bucket, shape.count, name_of(shape.type),
         data.count, name_of(data.type));
}

void check_idle(std::size_t bucket, bool in_flight) {
  if (in_flight) refuse("bucket {} was started again before it was waited for", bucket);
}

void check_codable(const std::vector<BucketShape>& buckets, const std::string& codec) {
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const BucketShape& shape = buckets[i];
    if (shape.skip_compression || shape.type == DataType::float32) continue;
    refuse(
        "codec {} requires float32, but {} is {}: set skip_compression for its bucket, or use "
        "codec none",
        codec, shape.tensors.empty() ? fmt::format("bucket {}", i) : shape.tensors[0].name,
        name_of(shape.type));
  }
}

}  // namespace gradwire
