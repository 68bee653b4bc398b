#pragma once

#include "gradwire/data/data_set.h"
#include "gradwire/data/fashion_mnist.h"
#include "gradwire/train/train_config.h"

namespace gradwire {

/// The data set that a configuration names: all that is there to test on, or as much to train on as
/// DataConfig::limit allows. Throws Exception(invalid_argument) that says what to install.
DataSet load_data(const DataConfig& config, Split split);

}  // namespace gradwire
