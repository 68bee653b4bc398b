#include "gradwire/federated/secure/secure_messages.h"

#include "tests/fuzz/target.h"

/// An input is a message of secure aggregation, of whichever kind its first byte says.
namespace gradwire::fuzz {
namespace {

/// Without bits between the last element and the end of its byte.
const federated::SegmentShape kShapes[] = {{8, 11}, {3, 16}, {2, 64}};

/// Returns true if the input is such a message.
template <class Message>
bool check_message(std::string_view input) {
  const Result<Message> message = federated::decode<Message>(bytes_of(input));
  if (!message) {
    expect(message.error().kind == ErrorKind::corrupted, "a refusal is of kind corrupted");
    return false;
  }
  expect(string_of(federated::encode(*message)) == input, "it is encoded to the same bytes");
  return true;
}

bool check_masked(std::string_view input) {
  const auto message = federated::decode_masked(bytes_of(input), kShapes);
  if (!message) return false;
  expect(string_of(federated::encode(*message)) == input, "it is encoded to the same bytes");
  return true;
}

}  // namespace

std::vector<std::string> seeds() {
  const federated::Signature signature{};
  federated::MaskedInput masked{.round = 4, .segments = {}};
  for (const auto& shape : kShapes) masked.segments.emplace_back(shape.size, shape.bits);
  std::vector<std::string> all;
  const auto add = [&](const auto& message) { all.push_back(string_of(encode(message))); };
  add(federated::KeyAdvert{});
  add(federated::KeyAdvert{.round = 1, .signature = signature});
  add(federated::Roster{2, {{1, {}}, {2, {}}}, {{3, {}, {}, signature}, {4, {}, {}, {}}}});
  add(federated::SealedShares{3, std::vector<federated::SealedShare>(2)});
  add(federated::ForwardedShares{3, {{1, {}}}});
  add(masked);
  add(federated::AliveList{5, {1, 2, 3}});
  add(federated::AliveSignature{6, signature});
  add(federated::UnmaskRequest{7, {1, 2}, {3}, {{4, signature}}});
  add(federated::UnmaskingShares{8, std::vector<federated::Share>(2)});
  return all;
}

void repair(std::string&) {}

void test(std::string_view input) {
  const int kinds =
      check_message<federated::KeyAdvert>(input) + check_message<federated::Roster>(input) +
      check_message<federated::SealedShares>(input) +
      check_message<federated::ForwardedShares>(input) + check_masked(input) +
      check_message<federated::AliveList>(input) + check_message<federated::AliveSignature>(input) +
      check_message<federated::UnmaskRequest>(input) +
      check_message<federated::UnmaskingShares>(input);
  expect(kinds <= 1, "a message is of one kind");
}

}  // namespace gradwire::fuzz
