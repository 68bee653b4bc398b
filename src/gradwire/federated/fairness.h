#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gradwire::federated {

/// One client's part in federated learning, and what it cost.
struct ClientRecord {
  std::int64_t samples = 0;
  std::int64_t eligible = 0;  ///< Rounds to which it has checked in.
  std::int64_t asked = 0;
  std::int64_t counted = 0;  ///< Rounds in which its update counted.
  double compute_seconds = 0;
  double up_bytes = 0, down_bytes = 0;
};

/// The slowest, middle and fastest third of the clients, by the time of their local work.
enum class DeviceClass : std::uint8_t { slow, middle, fast };
inline constexpr int kDeviceClasses = 3;

/// Fairness of values, (sum)^2 / (n sum of squares): 1 if all are equal, 1 / n if one has all (Jain
/// et al., DEC-TR-301, 1984). 1 if there are none, or all are 0.
double jain_index(std::span<const double> values);
/// jain_index() of how often each client counted.
double jain_index(std::span<const ClientRecord> clients);

/// Mean of the lowest tenth of the values, at least one; 0 if there are none.
double worst_tenth(std::vector<double> values);

/// A third of the clients: who they are and what they gave.
struct ClassRecord {
  int clients = 0;
  double sample_share = 0;                                   ///< In all clients' samples.
  double counted_share = 0;                                  ///< In all updates that counted.
  double compute_seconds = 0, up_bytes = 0, down_bytes = 0;  ///< Means over its clients.
};

/// By class, given the class of each client.
std::vector<ClassRecord> by_class(std::span<const ClientRecord> clients,
                                  std::span<const DeviceClass> classes);

/// The class of each client, given the time of its local work.
std::vector<DeviceClass> classes_of(std::span<const double> seconds);

}  // namespace gradwire::federated
