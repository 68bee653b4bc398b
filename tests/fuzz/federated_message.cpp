#include "gradwire/federated/remote/messages.h"
#include "tests/fuzz/target.h"

/// A message of federated learning, of either end.
namespace gradwire::fuzz {
namespace {

using federated::Answer;
using federated::Blob;
using federated::Contribution;
using federated::Message;
using federated::MessageHeader;
using federated::ModularVector;
using federated::Question;

constexpr federated::UpdateShape kShape{.elements = 5, .metrics = 2};
constexpr int kBits = 17;

std::string text_of(const Message& message) {
  return string_of(message.head) + string_of(message.tail.bytes());
}

Blob copy_of(std::string_view text) {
  const ConstBytes bytes = bytes_of(text);
  return Blob::of({bytes.begin(), bytes.end()});
}

/// `again`: what was decoded, encoded. The header is another: answers have no instance.
void expect_same(const Message& again, std::string_view body) {
  expect(text_of(again).substr(MessageHeader::kBytes) == body, "it encodes to the same bytes");
}

void check_contribution(const Question& question) {
  const auto* update = std::get_if<federated::Update>(&question);
  if (update == nullptr) return;
  const auto contribution = federated::contribution_in(*update, kShape, kBits);
  if (!contribution) return;
  expect(contribution->size() == 2 && contribution->front().size() == kShape.elements &&
             contribution->front().bits() == kBits,
         "a contribution is as ordered");
}

}  // namespace

std::vector<std::string> seeds() {
  const Contribution contribution{ModularVector(kShape.elements, kBits),
                                  ModularVector(kShape.metrics, 64)};
  std::vector<std::string> all;
  for (const Question& one :
       {Question(federated::CheckIn{600, 3}), Question(federated::Fetch{}),
        Question(federated::Ready{1.5}), Question(federated::to_update(contribution)),
        Question(federated::Leave{2}), Question(federated::SecureMessage{copy_of("shares")}),
        Question(federated::MaskedUpdate{copy_of("masked")})})
    all.push_back(text_of(encode(one, 7, 3)));
  for (const Answer& one :
       {Answer(federated::Offer{3, 60, 1000, 10, 100, 50}),
        Answer(federated::Task{3, 2, 60, "{}", copy_of("model")}),
        Answer(federated::UploadOrder{17, 600, 4, 3, 1}), Answer(federated::NotNeeded{1}),
        Answer(federated::Wait{}), Answer(federated::ComeBack{30, "busy"}),
        Answer(federated::Done{2}), Answer(federated::Over{}), Answer(federated::Refusal{4, "no"}),
        Answer(federated::SecureOrder{"certificates", copy_of("roster")})})
    all.push_back(text_of(encode(one, 3)));
  return all;
}

void repair(std::string& input) {
  if (input.size() < MessageHeader::kBytes) return;
  std::uint64_t size = input.size() - MessageHeader::kBytes;
  for (std::size_t i = 0; i < sizeof(size); ++i, size >>= 8)
    input[24 + i] = static_cast<char>(size);
}

void test(std::string_view input) {
  if (input.size() < MessageHeader::kBytes) return;
  const auto header = federated::decode_header(bytes_of(input.substr(0, MessageHeader::kBytes)));
  if (!header) return;
  const std::string_view body = input.substr(MessageHeader::kBytes);
  if (const auto question = federated::decode_question(*header, copy_of(body))) {
    expect_same(encode(*question, header->instance, header->round), body);
    check_contribution(*question);
  }
  if (const auto answer = federated::decode_answer(*header, copy_of(body)))
    expect_same(encode(*answer, header->round), body);
}

}  // namespace gradwire::fuzz
