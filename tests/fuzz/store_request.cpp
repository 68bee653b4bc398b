#include "gradwire/bootstrap/store/store_protocol.h"
#include "tests/fuzz/target.h"

/// The first byte of an input selects the type of the rest: a client's request, the server's
/// response, or the text of a response to `exchange`.
namespace gradwire::fuzz {
namespace {

using bootstrap::StoreOperation;

constexpr char kRequest = 0;
constexpr char kResponse = 1;
constexpr char kEndpoints = 2;
constexpr char kMissing = 3;

void check_request(std::string_view text) {
  const auto request = bootstrap::decode_store_request(text);
  if (!request) return;
  expect(request->key.size() <= bootstrap::kMaxStoreKeyBytes &&
             request->value.size() + request->expected.size() <= bootstrap::kMaxStoreValueBytes,
         "the size of a request is bounded");
  expect(encode(*request) == text, "a decoded request encodes to the same bytes");
}

void check_response(std::string_view text) {
  const auto response = bootstrap::decode_store_response(text);
  if (response) expect(encode(*response) == text, "a decoded response encodes to the same bytes");
}

void check_endpoints(std::string_view text) {
  const auto endpoints = bootstrap::decode_endpoints(text);
  if (!endpoints) return;
  const auto again = bootstrap::decode_endpoints(bootstrap::encode_endpoints(*endpoints));
  expect(again && *again == *endpoints, "decoded endpoints can be encoded again");
}

void check_missing(std::string_view text) {
  const bootstrap::MissingRanks missing = bootstrap::decode_missing_ranks(text);
  const bootstrap::MissingRanks again = bootstrap::decode_missing_ranks(encode(missing));
  expect(again.ranks == missing.ranks && again.ended == missing.ended,
         "decoded missing ranks can be encoded again");
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  const auto add = [&](char kind, const std::string& text) {
    all.push_back(std::string(1, kind) + text);
  };
  for (const StoreOperation operation :
       {StoreOperation::set, StoreOperation::get, StoreOperation::compare_set,
        StoreOperation::leave, StoreOperation::exchange, StoreOperation::complete,
        StoreOperation::fail}) {
    add(kRequest, encode(bootstrap::StoreRequest{.operation = operation,
                                                 .wait_ms = 5000,
                                                 .key = "rank/3",
                                                 .value = "{\"host\":\"b\"}",
                                                 .expected = "before"}));
  }
  for (const bootstrap::StoreAnswer answer :
       {bootstrap::StoreAnswer::ok, bootstrap::StoreAnswer::not_there,
        bootstrap::StoreAnswer::failed, bootstrap::StoreAnswer::later}) {
    add(kResponse, encode(bootstrap::StoreResponse{.answer = answer, .value = "value"}));
  }
  add(kEndpoints, bootstrap::encode_endpoints({"{\"host\":\"a\"}", "{\"host\":\"b\"}"}));
  add(kMissing, encode(bootstrap::MissingRanks{.ranks = {1, 3}, .ended = {"rank 3 (host b)"}}));
  return all;
}

void repair(std::string& /*input*/) {}

void test(std::string_view input) {
  if (input.empty()) return;
  const std::string_view text = input.substr(1);
  if (input[0] == kRequest) check_request(text);
  if (input[0] == kResponse) check_response(text);
  if (input[0] == kEndpoints) check_endpoints(text);
  if (input[0] == kMissing) check_missing(text);
}

}  // namespace gradwire::fuzz
