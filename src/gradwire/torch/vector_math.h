#pragma once

namespace gradwire {

/// Initializes PyTorch's vector functions (exp, sqrt, log, ... of many elements) on one thread. MKL
/// initializes them at their first use. If two threads race for it, one may compute its part with a
/// relative error of 1.5e-4, that one time. Ranks that must have the same bits then differ (PyTorch
/// 2.13 on a Xeon with AVX-512: one process in 200, by itself). After a first use on a single
/// thread, none of 5,000 processes did. Thread-safe; repeated calls are free.
void initialize_vector_math();

}  // namespace gradwire
