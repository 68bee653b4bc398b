#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gradwire {

/// The samples of each client, as indices into a data set: one list for all clients, so that ten
/// thousand of them take little more memory than the indices.
class ClientSamples {
 public:
  /// Adds a client, with the next number.
  void add(std::span<const std::int64_t> samples);

  std::int64_t clients() const { return static_cast<std::int64_t>(begins_.size()) - 1; }
  std::span<const std::int64_t> operator[](std::int64_t client) const;

  /// Samples of all clients.
  std::int64_t total() const { return static_cast<std::int64_t>(samples_.size()); }

  bool operator==(const ClientSamples&) const = default;

 private:
  std::vector<std::int64_t> samples_;
  std::vector<std::size_t> begins_ = {0};
};

/// How samples are divided among clients.
struct PartitionOptions {
  std::string kind = "iid";  ///< "iid", "shards", "dirichlet", "power_law" or "classes".
  std::int64_t clients = 100;
  std::int64_t shards = 2;   ///< shards: of each client.
  double alpha = 0.5;        ///< dirichlet: the smaller, the fewer classes has a client.
  double deviation = 2;      ///< power_law: standard deviation of the logarithm of sizes.
  std::int64_t classes = 0;  ///< classes, power_law: of each client; 0: all, for power_law.
  std::uint64_t seed = 1;
};

/// Divides the samples with these labels among clients. A pure function of its arguments. Each
/// client gets at least one sample, and each sample goes to at most one client:
///
/// - iid: at random, in parts whose sizes differ by at most 1.
/// - shards: sorted by label, cut into clients * shards parts whose sizes differ by at most 1, of
///   which each client gets `shards` at random (McMahan et al., AISTATS 2017, arXiv:1602.05629,
///   section 3). Two may be of one class.
/// - dirichlet: in parts as those of iid. The classes of a client's samples are drawn with
///   probabilities of its own, from Dir(alpha * p), where p are the frequencies of the classes; a
///   class of which no samples are left counts as improbable (Hsu, Qi, Brown, arXiv:1909.06335,
///   section 3).
/// - classes: each client has samples of `classes` classes, drawn so that each class goes to as
///   many clients as the others or to one fewer; these share its samples equally. A class that goes
///   to no client, because clients * classes are fewer than the classes, is left out. Otherwise, as
///   with the other kinds, all samples are given.
/// - power_law: as classes, but clients share a class in proportion to numbers of their own, drawn
///   from a log-normal distribution (Li et al., MLSys 2020, arXiv:1812.06127, section 5.1, with two
///   classes a client for MNIST).
///
/// Throws Exception(invalid_argument) for an unknown kind, numbers out of range, and more clients,
/// shards or clients of a class than there are samples.
ClientSamples partition(std::span<const std::int64_t> labels, const PartitionOptions& options);

struct HeldOut {
  ClientSamples train;
  ClientSamples held_out;
};

/// Splits off a share of each client's samples for evaluation, drawn by the seed and the client's
/// number: share times its samples, rounded, and at least one less than it has. Throws
/// Exception(invalid_argument) unless 0 <= share < 1.
HeldOut hold_out(const ClientSamples& clients, double share, std::uint64_t seed);

}  // namespace gradwire
