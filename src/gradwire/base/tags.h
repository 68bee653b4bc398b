#pragma once

/// Tags of gradwire's own messages. Two ranks may have messages of several of these in flight, so
/// that they are all here. Users count theirs from 0.
namespace gradwire::tags {

/// Largest tag of a communicator.
inline constexpr int kMax = (1 << 30) - 1;

/// The loss that the last stage sends to rank 0 (`gradwire train`, which has no users' messages).
inline constexpr int kLoss = 1;

/// Traces, over groups of any backend: MPI guarantees no larger tags.
inline constexpr int kTraceOfGroup = (1 << 15) - 1;

/// Tied parameters of a pipeline: this tag and the next ones, one for each copy.
inline constexpr int kTiedParameters = 1 << 28;

/// Messages between stages of a pipeline: kStageMessages tags for training, and as many for
/// evaluation, less the last one.
inline constexpr int kStageMessages = 1 << 28;
inline constexpr int kTraining = 2 * kStageMessages;
inline constexpr int kEvaluation = 3 * kStageMessages;

/// Traces, over gradwire's communicator.
inline constexpr int kTrace = kMax;

}  // namespace gradwire::tags
