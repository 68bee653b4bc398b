#include "gradwire/federated/remote/tensor_order.h"

#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/check.h"
#include "gradwire/base/refuse.h"

namespace gradwire::federated {

namespace {

std::size_t elements_of(const std::vector<std::int64_t>& sizes) {
  std::size_t count = 1;
  for (const std::int64_t size : sizes) count *= static_cast<std::size_t>(size);
  return count;
}

}  // namespace

TensorOrder::TensorOrder(std::span<const ModelDescription::Shape> own,
                         const ModelDescription& server) {
  struct Own {
    std::size_t begin = 0;
    std::vector<std::int64_t> sizes;
  };
  std::map<std::string, Own> left;
  for (const auto& [name, sizes] : own) {
    left[name] = {elements_, sizes};
    elements_ += elements_of(sizes);
  }
  std::size_t at = 0;
  for (const auto& [name, sizes] : server.tensors) {
    const auto found = left.find(name);
    if (found == left.end()) {
      refuse(
          "the server's model has a tensor {}, and the module has no trainable parameter or "
          "floating buffer of this name: they must be of one architecture",
          name);
    }
    if (found->second.sizes != sizes) {
      refuse("tensor {} has shape ({}) at the server, and ({}) in the module", name,
             fmt::join(sizes, ", "), fmt::join(found->second.sizes, ", "));
    }
    const std::size_t count = elements_of(sizes);
    runs_.push_back({found->second.begin, at, count});
    at += count;
    left.erase(found);
  }
  if (!left.empty())
    refuse("the module's tensor {} is not in the server's model", left.begin()->first);
}

std::vector<float> TensorOrder::to_own(std::span<const float> server) const {
  GRADWIRE_CHECK(server.size() == elements_);
  std::vector<float> own(elements_);
  for (const Run& one : runs_)
    std::ranges::copy(server.subspan(one.server, one.count),
                      own.begin() + static_cast<std::ptrdiff_t>(one.own));
  return own;
}

std::vector<float> TensorOrder::to_server(std::span<const float> own) const {
  GRADWIRE_CHECK(own.size() == elements_);
  std::vector<float> server(elements_);
  for (const Run& one : runs_)
    std::ranges::copy(own.subspan(one.own, one.count),
                      server.begin() + static_cast<std::ptrdiff_t>(one.server));
  return server;
}

}  // namespace gradwire::federated
