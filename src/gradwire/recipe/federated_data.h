#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "gradwire/data/data_set.h"
#include "gradwire/data/partition.h"
#include "gradwire/recipe/federated_config.h"

namespace gradwire::recipe {

/// Data of all clients, whose they are, and test data.
struct DividedData {
  DataSet data;
  HeldOut clients;
  std::optional<DataSet> test;
};

/// Divides the data as configured. Throws Exception(invalid_argument) if that is not possible.
DividedData divide(const FederatedConfig& config);

/// Returns the number of training samples of each client, as divided. If there are more clients
/// than samples, which no training accepts, each client has one.
std::vector<std::int64_t> samples_of_clients(const FederatedConfig& config);

/// One client's data: part `part`, from 0, of those.
struct ClientData {
  DataSet data;
  HeldOut own;
};
ClientData part_of(const FederatedConfig& config, std::int64_t part);

/// All training samples of the configured data set, as one client's.
ClientData whole_data(const FederatedConfig& config);

}  // namespace gradwire::recipe
