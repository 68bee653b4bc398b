#pragma once

namespace gradwire::federated {

/// How updates become integers. The same for all clients of a round, so that they can be added.
struct QuantizerOptions {
  int bits = 32;  ///< An element's, 2 to 32.
  bool rotate =
      false;        ///< By a randomised Hadamard transform (Konecny et al., "Federated Learning:
                    ///< Strategies for Improving Communication Efficiency", 2016).
  double keep = 1;  ///< Share of the elements that are sent: a random mask, common to all.
  double clip = 0;  ///< Largest magnitude of an element; 0: follows from the last round's.

  bool operator==(const QuantizerOptions&) const = default;
};

}  // namespace gradwire::federated
