#pragma once

#include "gradwire/data/data_set.h"
#include "gradwire/data/fashion_mnist.h"
#include "gradwire/recipe/train_config.h"

namespace gradwire {

/// Loads the data set that a configuration names: the whole test set, or up to DataConfig::limit
/// training samples. Throws Exception(invalid_argument) that says what to install.
DataSet load_data(const DataConfig& config, Split split);

}  // namespace gradwire
