#include "gradwire/federated/secure/mask.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <thread>

#include <openssl/crypto.h>

namespace gradwire::federated {
namespace {

/// Elements stay in the core's cache while all masks are added to them.
constexpr std::size_t kTileBytes = 128 * 1024;
constexpr std::size_t kPieceBytes = 8 * 1024;
static_assert(kTileBytes % kPieceBytes == 0 && kPieceBytes % KeyStream::kBlockBytes == 0);

Result<Secret> segment_key(const Mask& mask, const Digest& round, std::size_t segment) {
  std::array<std::byte, 4 + sizeof(Digest) + 8> info{std::byte{'m'}, std::byte{'a'}, std::byte{'s'},
                                                     std::byte{'k'}};
  std::byte* const end = std::ranges::copy(round, info.data() + 4).out;
  store_little_endian(end, static_cast<std::uint64_t>(segment));
  return derive(mask.secret, info);
}

/// `terms` as they are in memory: little-endian.
template <class Word>
void add_words(std::span<Word> to, const Word* terms, bool is_negative) {
  const auto term = [&](std::size_t i) {
    if constexpr (std::endian::native == std::endian::little) return terms[i];
    return load_little_endian<Word>(reinterpret_cast<const std::byte*>(terms + i));
  };
  if (is_negative) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<Word>(to[i] - term(i));
  } else {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<Word>(to[i] + term(i));
  }
}

/// Elements of one segment, and the first one's byte in the key streams.
template <class Word>
Status add_to_tile(std::span<const Mask> masks, std::span<const Secret> keys, std::span<Word> tile,
                   std::size_t first_byte) {
  std::array<Word, kPieceBytes / sizeof(Word)> terms;
  KeyStream stream;
  Status status;
  for (std::size_t m = 0; m < masks.size() && status; ++m) {
    status = stream.start_at_block(keys[m], first_byte / KeyStream::kBlockBytes);
    for (std::span<Word> left = tile; !left.empty() && status;) {
      const std::span<Word> piece = left.first(std::min(left.size(), terms.size()));
      status = stream.fill(std::as_writable_bytes(std::span(terms).first(piece.size())));
      if (status) add_words(piece, terms.data(), masks[m].is_negative);
      left = left.subspan(piece.size());
    }
  }
  OPENSSL_cleanse(terms.data(), sizeof terms);
  return status;
}

}  // namespace

Status add_masks(std::span<const Mask> masks, const Digest& round,
                 std::span<ModularVector> segments, int threads) {
  for (std::size_t segment = 0; segment < segments.size(); ++segment) {
    std::vector<Secret> keys(masks.size());
    GRADWIRE_RETURN_IF_ERROR(on_threads(threads, masks.size(), [&](std::size_t m) -> Status {
      GRADWIRE_ASSIGN_OR_RETURN(keys[m], segment_key(masks[m], round, segment));
      return {};
    }));
    GRADWIRE_RETURN_IF_ERROR(segments[segment].visit([&](auto words) {
      const std::size_t in_a_tile = kTileBytes / sizeof words[0];
      const std::size_t tiles = (words.size() + in_a_tile - 1) / in_a_tile;
      return on_threads(threads, tiles, [&](std::size_t tile) {
        const std::size_t begin = tile * in_a_tile;
        return add_to_tile(masks, keys,
                           words.subspan(begin, std::min(in_a_tile, words.size() - begin)),
                           tile * kTileBytes);
      });
    }));
  }
  return {};
}

Status on_threads(int threads, std::size_t count,
                  const std::function<Status(std::size_t)>& function) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  Status status;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      if (Status done = function(i); !done) {
        const std::lock_guard lock(mutex);
        if (status) status = std::move(done);
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    const std::size_t most = std::min<std::size_t>(static_cast<std::size_t>(threads), count);
    for (std::size_t i = 1; i < most; ++i) helpers.emplace_back(work);
    work();
  }
  return status;
}

}  // namespace gradwire::federated
