#include "tests/support/torch/queue_device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "gradwire/torch/completion_threads.h"

namespace gradwire::test {
namespace {

constexpr int kDevices = 4;
constexpr c10::StreamId kStreams = 9;  ///< 0 is the default; the others are the pool.

using Signal = std::shared_future<void>;

struct Piece {
  std::size_t bytes = 0;
  at::Device device = at::kCPU;  ///< If the CPU: pinned memory.
};

struct State {
  std::atomic<c10::StreamId> next = 0;
  std::atomic<bool> capturing = false;
  std::atomic<bool> out_of_memory = false;
  std::mutex mutex;
  std::map<const void*, Piece> pieces;  ///< Memory in use.
  std::function<void(const DeviceCopy&)> before_copy;
  /// Destroyed first: their queued work uses all other members.
  std::vector<std::unique_ptr<CompletionThreads>> streams;

  State() {
    for (int i = 0; i < kDevices * kStreams; ++i) {
      streams.push_back(std::make_unique<CompletionThreads>(1));
    }
  }
};

State& state() {
  static State state;
  return state;
}

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, kDevices> current_stream{};

c10::Stream stream_of(at::Device device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device, id);
}

c10::DeviceIndex index_of(at::Device device) {
  return device.has_index() ? device.index() : current_device;
}

void enqueue(const c10::Stream& stream, std::function<void()> action) {
  const auto index = stream.device_index() * kStreams + stream.id();
  state().streams[static_cast<std::size_t>(index)]->run(std::move(action));
}

Signal signal_after(const c10::Stream& stream) {
  auto promise = std::make_shared<std::promise<void>>();
  Signal signal = promise->get_future().share();
  enqueue(stream, [promise] { promise->set_value(); });
  return signal;
}

struct QueueGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return at::kPrivateUse1; }
  at::Device exchangeDevice(at::Device device) const override {
    return {at::kPrivateUse1, std::exchange(current_device, index_of(device))};
  }
  at::Device getDevice() const override { return {at::kPrivateUse1, current_device}; }
  void setDevice(at::Device device) const override { current_device = index_of(device); }
  void uncheckedSetDevice(at::Device device) const noexcept override {
    current_device = device.index();
  }
  c10::Stream getStream(at::Device device) const override {
    const at::Device full = queue_device(index_of(device));
    return stream_of(full, current_stream[static_cast<std::size_t>(full.index())]);
  }
  c10::Stream getStreamFromGlobalPool(at::Device device, bool) const override {
    return stream_of(queue_device(index_of(device)), 1 + state().next++ % (kStreams - 1));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto& current = current_stream[static_cast<std::size_t>(stream.device_index())];
    return stream_of(stream.device(), std::exchange(current, stream.id()));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = std::make_unique<Signal>().release();
    *static_cast<Signal*>(*event) = signal_after(stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    enqueue(stream, [signal = *static_cast<Signal*>(event)] { signal.wait(); });
  }
  bool queryEvent(void* event) const override {
    return static_cast<Signal*>(event)->wait_for(std::chrono::seconds(0)) ==
           std::future_status::ready;
  }
  void synchronizeEvent(void* event) const override { static_cast<Signal*>(event)->wait(); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    const std::unique_ptr<Signal> owned(static_cast<Signal*>(event));
  }
  void synchronizeStream(const c10::Stream& stream) const override { signal_after(stream).wait(); }
  bool isStreamCapturing(const c10::Stream&) const override { return state().capturing; }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

/// Allocates memory of the device, or pinned memory, which is recognized by its address.
struct Memory final : c10::Allocator {
  explicit Memory(at::Device device) : device_(device) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    const bool pinned = device_.is_cpu();
    if (pinned && state().out_of_memory) throw std::runtime_error("no pinned memory is left");
    void* data = std::malloc(std::max<std::size_t>(bytes, 1));
    const at::Device device = pinned ? device_ : queue_device(current_device);
    {
      const std::lock_guard lock(state().mutex);
      state().pieces[data] = {bytes, device};
    }
    report(data, static_cast<std::int64_t>(bytes), device);
    return {data, data, release, device};
  }
  static void release(void* data) {
    Piece piece;
    {
      const std::lock_guard lock(state().mutex);
      piece = state().pieces.extract(data).mapped();
    }
    report(data, -static_cast<std::int64_t>(piece.bytes), piece.device);
    std::free(data);
  }
  /// Reports to profilers, as CUDA's allocator does.
  static void report(void* data, std::int64_t bytes, at::Device device) {
    if (!device.is_cpu()) c10::reportMemoryUsageToProfiler(data, bytes, 0, 0, device);
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  at::Device device_;
};

Memory& device_memory() {
  static Memory memory(queue_device(0));
  return memory;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  bool isPinnedPtr(const void* data) const override {
    const std::lock_guard lock(state().mutex);
    const auto piece = state().pieces.find(data);
    return piece != state().pieces.end() && piece->second.device.is_cpu();
  }
  at::Device getDeviceFromPtr(void* data) const override {
    const std::lock_guard lock(state().mutex);
    return state().pieces.at(data).device;
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    static std::vector<at::Generator> generators(kDevices);
    static std::once_flag once;
    std::call_once(once, [] {
      for (auto& generator : generators) generator = at::detail::createCPUGenerator();
    });
    return generators.at(static_cast<std::size_t>(device));
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static Memory memory(at::kCPU);
    return &memory;
  }
};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard current(queue_device(index_of(*device)));
  return at::detail::empty_generic(size, &device_memory(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard current(queue_device(index_of(*device)));
  return at::detail::empty_strided_generic(size, stride, &device_memory(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           type.value_or(at::kFloat));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const bool to_device = !to.is_cpu();
  const at::Tensor& host = to_device ? from : to;
  const at::Tensor& on_device = to_device ? to : from;
  const DeviceCopy copy{on_device.get_device(), to_device, to.nbytes(),
                        host.is_cpu() && host.is_pinned(), non_blocking};
  const c10::Stream stream = QueueGuard().getStream(on_device.device());
  enqueue(stream, [=] {
    std::unique_lock lock(state().mutex);
    const auto before = state().before_copy;
    lock.unlock();
    if (before) before(copy);
    memory_of(to).copy_(memory_of(from));
  });
  if (!non_blocking) QueueGuard().synchronizeStream(stream);
  return to;
}

at::Tensor& set_storage(at::Tensor& tensor, at::Storage source, std::int64_t offset,
                        at::IntArrayRef size, at::IntArrayRef stride) {
  return at::cpu::set_(tensor, std::move(source), offset, size, stride);
}

at::Tensor copy_of_result(const at::Tensor& from, const at::Tensor& to) {
  return copy_from(from, to, false);
}
void compute_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute_on_host>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_of_result);
  // Devices other than the CPU compose it from other operations, with different last bits.
  m.impl("native_layer_norm", torch::CppFunction::makeFromBoxedFunction<&compute_on_host>());
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, QueueGuard);

}  // namespace

void install_queue_device() {
  static std::once_flag once;
  std::call_once(once, [] {
    static Hooks hooks;
    c10::register_privateuse1_backend("queue");
    c10::SetAllocator(at::kPrivateUse1, &device_memory());
    at::RegisterPrivateUse1HooksInterface(&hooks);
  });
}

at::Tensor to_queue_device(const at::Tensor& tensor, int index) {
  QueueGuard().setDevice(queue_device(index));
  return tensor.to(queue_device(index));
}

void move_to_queue_device(const at::Tensor& tensor, int index) {
  auto* place = tensor.unsafeGetTensorImpl();
  place->set_storage_keep_dtype(to_queue_device(tensor.detach(), index).storage());
  place->_change_backend_component_keys(queue_device(index));
}

at::Tensor to_host(const at::Tensor& tensor) {
  return tensor.to(at::kCPU);
}

at::Tensor memory_of(const at::Tensor& tensor) {
  return at::from_blob(
      tensor.data_ptr(), tensor.sizes(), tensor.strides(), [tensor](void*) {},
      at::TensorOptions(tensor.scalar_type()).device(at::kCPU));
}

void compute(std::function<void()> action) {
  enqueue(QueueGuard().getStream(queue_device(current_device)), std::move(action));
}

void before_copies(std::function<void(const DeviceCopy&)> action) {
  const std::lock_guard lock(state().mutex);
  state().before_copy = std::move(action);
}

void set_capturing(bool capturing) {
  state().capturing = capturing;
}

void set_out_of_memory(bool out) {
  state().out_of_memory = out;
}

}  // namespace gradwire::test
