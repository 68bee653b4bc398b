#include "gradwire/engine/operations/fingerprint.h"

#include <array>

#include "tests/fuzz/target.h"

namespace gradwire::fuzz {
namespace {

std::string text_of(const engine::Fingerprint& fingerprint) {
  std::array<std::byte, engine::kFingerprintBytes> bytes;
  encode(fingerprint, bytes);
  return string_of(bytes);
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (int collective = 0; collective <= static_cast<int>(schedule::Collective::all_to_all);
       ++collective) {
    engine::Fingerprint fingerprint{.collective = static_cast<schedule::Collective>(collective),
                                    .type = DataType::float32,
                                    .op = ReduceOp::mean,
                                    .root = collective,
                                    .count = 1u << collective,
                                    .sent = 3,
                                    .expected = 4};
    fingerprint.set_algorithm("recursive_doubling");
    all.push_back(text_of(fingerprint));
  }
  return all;
}

void repair(std::string& input) {
  input.resize(engine::kFingerprintBytes);
}

/// An accepted fingerprint has a valid collective, type and reduction, can be printed, and is
/// encoded to the same bytes.
void test(std::string_view input) {
  const Result<engine::Fingerprint> found = engine::decode_fingerprint(bytes_of(input));
  if (!found) {
    expect(found.error().kind == ErrorKind::corrupted, "a refusal is of kind corrupted");
    return;
  }
  expect(input.size() == engine::kFingerprintBytes, "another input.size() is refused");
  expect(size_of(found->type) > 0, "elements of the type have a input.size()");
  expect(!name_of(found->type).empty() && !name_of(found->op).empty(), "both have names");
  const std::string words = found->describe();
  expect(words != "unknown operation", "the collective exists");
  expect(words.size() < 300, "an error can show it");
  std::array<std::byte, engine::kFingerprintBytes> again;
  encode(*found, again);
  const Result<engine::Fingerprint> same = engine::decode_fingerprint(again);
  expect(same && *same == *found, "it comes back as it was");
  expect(found->from_there().from_there() == *found, "seen from there and back it is the same");
}

}  // namespace gradwire::fuzz
