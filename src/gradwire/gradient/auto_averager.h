#pragma once

#include <memory>
#include <string>

#include "gradwire/gradient/codec_averager.h"

namespace gradwire {

/// Uses the codec of `averager` where that makes steps shorter, and none elsewhere. It times steps
/// from one end_step() to the next, both ways by turns, as soon as the codec's warm-up is over and
/// again after AveragerOptions::steps_between_trials steps; the ranks' times are added up by an
/// all-reduce, so that all decide the same. The codec must be faster by more than 1 % to be chosen:
/// it costs accuracy, none does not. When it is switched off, what it owes is paid.
///
/// `codec`: its name, for describe(). State is that of `averager`: a run that is resumed measures
/// anew.
std::unique_ptr<Averager> auto_averager(std::shared_ptr<Communicator> communicator,
                                        std::unique_ptr<CodecAverager> averager, std::string codec,
                                        const AveragerOptions& options);

/// After how many steps it has decided for the first time.
int steps_until_decided(const AveragerOptions& options);

}  // namespace gradwire
