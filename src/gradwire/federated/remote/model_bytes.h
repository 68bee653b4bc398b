#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/federated/secure/public_key.h"

namespace gradwire::federated {

/// How the elements of a global model are sent. bf16: values whose lower 16 bits are 0.
enum class ModelType : std::uint8_t { float32, bf16 };

/// The elements, little-endian.
std::vector<std::byte> model_bytes(std::span<const float> values, ModelType type);
/// Inverse of model_bytes(). Fails with corrupted unless there are `elements`.
Result<std::vector<float>> model_in(ConstBytes bytes, std::size_t elements, ModelType type);

/// The difference of two models of the same size, exact: elements as integers, of which small
/// differences have zeros in their high bytes; ordered by byte, and deflated (RFC 1950). Throws
/// Exception(system) if memory is short.
std::vector<std::byte> model_difference(std::span<const float> values, std::span<const float> base,
                                        ModelType type);
/// The model, given the difference to `base`. Fails with corrupted.
Result<std::vector<float>> model_after(ConstBytes difference, std::span<const float> base,
                                       ModelType type);

/// A digest of the model, whatever its bytes on the way, and of the description of its tensors and
/// of the work. Both ends compare it: a difference may be applied to the wrong model, or the server
/// may have another one for each client.
Digest digest_of_model(std::string_view description, std::span<const float> values);

}  // namespace gradwire::federated
