#include <optional>

#include "gradwire/bootstrap/store_protocol.h"
#include "tests/fuzz/target.h"

/// The first byte of an input selects the type of the rest: a client's request, the server's
/// answer, or a Newcomer.
namespace gradwire::fuzz {
namespace {

constexpr char kRequests = 0;
constexpr char kResponses = 1;
constexpr char kNewcomer = 2;

bootstrap::StoreCodes codes_of(bootstrap::StoreCodes::Speaker speaker) {
  net::SessionKey key;
  key.fill(std::byte{7});
  return {key, speaker};
}

/// An authenticated header, and its body.
template <class Header>
struct Said {
  Header header;
  std::string body;
};

bool decode(std::string_view bytes, bootstrap::RequestHeader& header) {
  return bootstrap::decode_request(bytes, header);
}
bool decode(std::string_view bytes, bootstrap::ResponseHeader& header) {
  return bootstrap::decode_response(bytes, header);
}
std::size_t body_of(const bootstrap::RequestHeader& header) {
  return std::size_t{header.key_size} + header.value_size;
}
std::size_t body_of(const bootstrap::ResponseHeader& header) {
  return header.value_size;
}

/// Reads as either end does. Returns nothing if it is refused or incomplete.
template <class Header>
std::optional<Said<Header>> next_of(std::string_view& left, bootstrap::StoreCodes& codes) {
  constexpr std::size_t kHead = Header::kSize + bootstrap::kCodeSize;
  if (left.size() < kHead) return std::nullopt;
  std::string head(left.substr(0, kHead));
  left.remove_prefix(kHead);
  Said<Header> said;
  if (!codes.check(head) || !decode(head, said.header)) return std::nullopt;
  const std::size_t size = body_of(said.header);
  expect(size <= bootstrap::kMaxKeyBytes + bootstrap::kMaxValueBytes,
         "what is believed of a size is bounded");
  if (size == 0) return said;
  if (left.size() < bootstrap::with_code_size(size)) return std::nullopt;
  said.body = left.substr(0, bootstrap::with_code_size(size));
  left.remove_prefix(said.body.size());
  if (!codes.check(said.body)) return std::nullopt;
  expect(said.body.size() == size, "a body has as many bytes as its header says");
  return said;
}

void check_requests(std::string_view left) {
  bootstrap::StoreCodes codes = codes_of(bootstrap::StoreCodes::Speaker::client);
  bootstrap::StoreCodes again = codes_of(bootstrap::StoreCodes::Speaker::client);
  bootstrap::StoreCodes reading = codes_of(bootstrap::StoreCodes::Speaker::client);
  while (const auto said = next_of<bootstrap::RequestHeader>(left, codes)) {
    const bootstrap::RequestHeader& header = said->header;
    const std::string text =
        bootstrap::encode_request(header.kind, said->body.substr(0, header.key_size),
                                  said->body.substr(header.key_size), header.wait_ms, again);
    std::string_view rest = text;
    const auto same = next_of<bootstrap::RequestHeader>(rest, reading);
    expect(same && rest.empty(), "what has been understood can be said again");
    expect(same->header.kind == header.kind && same->header.key_size == header.key_size &&
               same->header.wait_ms == header.wait_ms && same->body == said->body,
           "and means the same");
  }
}

void check_responses(std::string_view left) {
  bootstrap::StoreCodes codes = codes_of(bootstrap::StoreCodes::Speaker::server);
  bootstrap::StoreCodes again = codes_of(bootstrap::StoreCodes::Speaker::server);
  bootstrap::StoreCodes reading = codes_of(bootstrap::StoreCodes::Speaker::server);
  while (const auto said = next_of<bootstrap::ResponseHeader>(left, codes)) {
    const std::string text = bootstrap::encode_response(said->header.answer, said->body, again);
    std::string_view rest = text;
    const auto same = next_of<bootstrap::ResponseHeader>(rest, reading);
    expect(same && rest.empty() && same->header.answer == said->header.answer &&
               same->body == said->body,
           "an answer said again means the same");
  }
}

void check_newcomer(std::string_view text) {
  const bootstrap::Newcomer newcomer = bootstrap::decode_newcomer(text);
  const bootstrap::Newcomer same = bootstrap::decode_newcomer(encode(newcomer));
  expect(same.host == newcomer.host && same.job_id == newcomer.job_id,
         "who joins is the same when it is said again");
}

/// Appends the correct authentication code to each complete header and body.
template <class Header>
void put_codes(std::string& input, bootstrap::StoreCodes codes) {
  for (std::size_t at = 1; at + Header::kSize + bootstrap::kCodeSize <= input.size();) {
    const std::string head = input.substr(at, Header::kSize);
    input.replace(at + Header::kSize, bootstrap::kCodeSize, codes.next(head));
    at += Header::kSize + bootstrap::kCodeSize;
    Header header;
    if (!decode(head, header)) return;
    const std::size_t size = body_of(header);
    if (size == 0) continue;
    if (at + bootstrap::with_code_size(size) > input.size()) return;
    input.replace(at + size, bootstrap::kCodeSize, codes.next(input.substr(at, size)));
    at += bootstrap::with_code_size(size);
  }
}

}  // namespace

std::vector<std::string> seeds() {
  bootstrap::StoreCodes client = codes_of(bootstrap::StoreCodes::Speaker::client);
  bootstrap::StoreCodes server = codes_of(bootstrap::StoreCodes::Speaker::server);
  const std::string newcomer = encode(bootstrap::Newcomer{.host = "b", .job_id = "train"});
  std::string requests(1, kRequests);
  requests += bootstrap::encode_request(bootstrap::RequestKind::join, "", newcomer, 0, client);
  requests += bootstrap::encode_request(bootstrap::RequestKind::set, "rank/3", "{\"host\":\"b\"}",
                                        0, client);
  requests += bootstrap::encode_request(bootstrap::RequestKind::get, "rank/0", "", 5000, client);
  requests += bootstrap::encode_request(bootstrap::RequestKind::seal, "", "", 0, client);
  requests += bootstrap::encode_request(bootstrap::RequestKind::complete, "", "", 100, client);
  requests +=
      bootstrap::encode_request(bootstrap::RequestKind::fail, "", std::string(300, 'f'), 0, client);
  requests += bootstrap::encode_request(bootstrap::RequestKind::finish, "", "", 0, client);
  std::string responses(1, kResponses);
  responses += bootstrap::encode_response(bootstrap::StoreAnswer::ok, "value", server);
  responses += bootstrap::encode_response(bootstrap::StoreAnswer::not_yet, "", server);
  responses += bootstrap::encode_response(bootstrap::StoreAnswer::full, "", server);
  responses += bootstrap::encode_response(bootstrap::StoreAnswer::later, "", server);
  responses +=
      bootstrap::encode_response(bootstrap::StoreAnswer::failed, "rank 1 has died", server);
  return {requests, responses, std::string(1, kNewcomer) + newcomer};
}

void repair(std::string& input) {
  if (input.empty()) return;
  if (input[0] == kRequests) {
    put_codes<bootstrap::RequestHeader>(input, codes_of(bootstrap::StoreCodes::Speaker::client));
  } else if (input[0] == kResponses) {
    put_codes<bootstrap::ResponseHeader>(input, codes_of(bootstrap::StoreCodes::Speaker::server));
  }
}

/// Accepted sizes are bounded, and accepted messages can be encoded again.
void test(std::string_view input) {
  if (input.empty()) return;
  const std::string_view text = input.substr(1);
  if (input[0] == kRequests) check_requests(text);
  if (input[0] == kResponses) check_responses(text);
  if (input[0] == kNewcomer) check_newcomer(text);
}

}  // namespace gradwire::fuzz
