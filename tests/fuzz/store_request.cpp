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

StoreCodes codes_of(StoreCodes::Speaker speaker) {
  SessionKey key;
  key.fill(std::byte{7});
  return {key, speaker};
}

/// An authenticated header, and its body.
template <class Header>
struct Said {
  Header header;
  std::string body;
};

bool decode(std::string_view bytes, RequestHeader& header) {
  return decode_request(bytes, header);
}
bool decode(std::string_view bytes, ResponseHeader& header) {
  return decode_response(bytes, header);
}
std::size_t body_of(const RequestHeader& header) {
  return std::size_t{header.key_size} + header.value_size;
}
std::size_t body_of(const ResponseHeader& header) {
  return header.value_size;
}

/// Reads as either end does. Returns nothing if it is refused or incomplete.
template <class Header>
std::optional<Said<Header>> next_of(std::string_view& left, StoreCodes& codes) {
  constexpr std::size_t kHead = Header::kSize + kCodeSize;
  if (left.size() < kHead) return std::nullopt;
  std::string head(left.substr(0, kHead));
  left.remove_prefix(kHead);
  Said<Header> said;
  if (!codes.check(head) || !decode(head, said.header)) return std::nullopt;
  const std::size_t size = body_of(said.header);
  expect(size <= kMaxKeyBytes + kMaxValueBytes, "what is believed of a size is bounded");
  if (size == 0) return said;
  if (left.size() < with_code_size(size)) return std::nullopt;
  said.body = left.substr(0, with_code_size(size));
  left.remove_prefix(said.body.size());
  if (!codes.check(said.body)) return std::nullopt;
  expect(said.body.size() == size, "a body has as many bytes as its header says");
  return said;
}

void check_requests(std::string_view left) {
  StoreCodes codes = codes_of(StoreCodes::Speaker::client);
  StoreCodes again = codes_of(StoreCodes::Speaker::client);
  StoreCodes reading = codes_of(StoreCodes::Speaker::client);
  while (const auto said = next_of<RequestHeader>(left, codes)) {
    const RequestHeader& header = said->header;
    const std::string text =
        encode_request(header.kind, said->body.substr(0, header.key_size),
                       said->body.substr(header.key_size), header.wait_ms, again);
    std::string_view rest = text;
    const auto same = next_of<RequestHeader>(rest, reading);
    expect(same && rest.empty(), "what has been understood can be said again");
    expect(same->header.kind == header.kind && same->header.key_size == header.key_size &&
               same->header.wait_ms == header.wait_ms && same->body == said->body,
           "and means the same");
  }
}

void check_responses(std::string_view left) {
  StoreCodes codes = codes_of(StoreCodes::Speaker::server);
  StoreCodes again = codes_of(StoreCodes::Speaker::server);
  StoreCodes reading = codes_of(StoreCodes::Speaker::server);
  while (const auto said = next_of<ResponseHeader>(left, codes)) {
    const std::string text = encode_response(said->header.answer, said->body, again);
    std::string_view rest = text;
    const auto same = next_of<ResponseHeader>(rest, reading);
    expect(same && rest.empty() && same->header.answer == said->header.answer &&
               same->body == said->body,
           "an answer said again means the same");
  }
}

void check_newcomer(std::string_view text) {
  const Newcomer newcomer = decode_newcomer(text);
  const Newcomer same = decode_newcomer(encode(newcomer));
  expect(same.host == newcomer.host && same.job_id == newcomer.job_id,
         "who joins is the same when it is said again");
}

/// Appends the correct authentication code to each complete header and body.
template <class Header>
void put_codes(std::string& input, StoreCodes codes) {
  for (std::size_t at = 1; at + Header::kSize + kCodeSize <= input.size();) {
    const std::string head = input.substr(at, Header::kSize);
    input.replace(at + Header::kSize, kCodeSize, codes.next(head));
    at += Header::kSize + kCodeSize;
    Header header;
    if (!decode(head, header)) return;
    const std::size_t size = body_of(header);
    if (size == 0) continue;
    if (at + with_code_size(size) > input.size()) return;
    input.replace(at + size, kCodeSize, codes.next(input.substr(at, size)));
    at += with_code_size(size);
  }
}

}  // namespace

std::vector<std::string> seeds() {
  StoreCodes client = codes_of(StoreCodes::Speaker::client);
  StoreCodes server = codes_of(StoreCodes::Speaker::server);
  const std::string newcomer = encode(Newcomer{.host = "b", .job_id = "train"});
  std::string requests(1, kRequests);
  requests += encode_request(RequestKind::join, "", newcomer, 0, client);
  requests += encode_request(RequestKind::set, "rank/3", "{\"host\":\"b\"}", 0, client);
  requests += encode_request(RequestKind::get, "rank/0", "", 5000, client);
  requests += encode_request(RequestKind::seal, "", "", 0, client);
  requests += encode_request(RequestKind::complete, "", "", 100, client);
  requests += encode_request(RequestKind::fail, "", std::string(300, 'f'), 0, client);
  requests += encode_request(RequestKind::finish, "", "", 0, client);
  std::string responses(1, kResponses);
  responses += encode_response(StoreAnswer::ok, "value", server);
  responses += encode_response(StoreAnswer::not_yet, "", server);
  responses += encode_response(StoreAnswer::full, "", server);
  responses += encode_response(StoreAnswer::later, "", server);
  responses += encode_response(StoreAnswer::failed, "rank 1 has died", server);
  return {requests, responses, std::string(1, kNewcomer) + newcomer};
}

void repair(std::string& input) {
  if (input.empty()) return;
  if (input[0] == kRequests) {
    put_codes<RequestHeader>(input, codes_of(StoreCodes::Speaker::client));
  } else if (input[0] == kResponses) {
    put_codes<ResponseHeader>(input, codes_of(StoreCodes::Speaker::server));
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
