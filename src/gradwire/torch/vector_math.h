#pragma once

namespace gradwire {

/// Has PyTorch's vector functions (exp, sqrt, log, ... of many elements) set themselves up. MKL's
/// do at their first use, and if two threads are the first at once, one of them may compute its
/// part with an error of 1.5e-4 of each value, that one time: ranks that must have the same bits
/// then have not (PyTorch 2.13 on a Xeon with AVX-512: one process in 200, by itself). After a
/// first use on one thread, which this is, none of 5,000 did. Thread-safe; takes no time when it
/// has been called.
void settle_vector_math();

}  // namespace gradwire
