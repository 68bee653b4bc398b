#pragma once

/// Tags of gradwire's own messages. Two ranks may have messages of several of these in flight, so
/// that they are all here. Users count theirs from 0.
namespace gradwire {

/// Largest tag of a communicator.
inline constexpr int kMaxTag = (1 << 30) - 1;

/// The loss that the last stage sends to rank 0 (`gradwire train`, which has no users' messages).
inline constexpr int kLossTag = 1;

/// Traces, over groups of any backend: MPI guarantees no larger tags.
inline constexpr int kGroupTraceTag = (1 << 15) - 1;

/// Tied parameters of a pipeline: this tag and the next ones, one for each copy.
inline constexpr int kTiedParametersTag = 1 << 28;

/// Messages between stages of a pipeline: kStageMessageTags tags for training, and as many for
/// evaluation, less the last one.
inline constexpr int kStageMessageTags = 1 << 28;
inline constexpr int kTrainingTag = 2 * kStageMessageTags;
inline constexpr int kEvaluationTag = 3 * kStageMessageTags;

/// Traces, over gradwire's communicator.
inline constexpr int kTraceTag = kMaxTag;

}  // namespace gradwire
