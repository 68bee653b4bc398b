#include "tests/support/torch/thread_group.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace gradwire::test {
namespace {

/// One collective: the ranks' inputs, and whether all have arrived.
struct Meeting {
  std::vector<std::vector<at::Tensor>> brought;
  int arrived = 0;
  bool done = false;
};

/// Performs the collective for all ranks at once, when the last one has arrived.
using Act = std::function<void(std::vector<std::vector<at::Tensor>>& of_rank)>;

/// Source, destination, tag.
using Address = std::tuple<int, int, int>;

class Room {
 public:
  explicit Room(int ranks) : ranks_(ranks) {}

  void arrive(int rank, std::uint64_t number, std::vector<at::Tensor> tensors, const Act& act) {
    const std::lock_guard lock(mutex_);
    auto& meeting = meetings_[number];
    meeting.brought.resize(static_cast<std::size_t>(ranks_));
    meeting.brought[static_cast<std::size_t>(rank)] = std::move(tensors);
    if (++meeting.arrived < ranks_) return;
    const at::NoGradGuard no_grad;
    act(meeting.brought);
    meeting.done = true;
    changed_.notify_all();
  }

  void wait(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return meetings_[number].done || aborted_; });
    if (!meetings_[number].done) throw std::runtime_error("the group was aborted");
  }

  void send(const Address& address, const at::Tensor& message) {
    const std::lock_guard lock(mutex_);
    mail_[address].push_back(message.clone());
    changed_.notify_all();
  }

  void receive(const Address& address, at::Tensor& into) {
    std::unique_lock lock(mutex_);
    std::deque<at::Tensor>& messages = mail_[address];
    changed_.wait(lock, [&] { return !messages.empty() || aborted_; });
    if (messages.empty()) throw std::runtime_error("the group was aborted");
    into.copy_(messages.front());
    messages.pop_front();
  }

  bool done(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    return meetings_[number].done;
  }

  void abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

 private:
  int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Meeting> meetings_;
  std::map<Address, std::deque<at::Tensor>> mail_;
  bool aborted_ = false;
};

class ThreadWork final : public c10d::Work {
 public:
  ThreadWork(std::shared_ptr<Room> room, std::uint64_t number)
      : room_(std::move(room)), number_(number) {}

  bool isCompleted() override { return room_->done(number_); }
  bool wait(std::chrono::milliseconds) override {
    room_->wait(number_);
    return true;
  }

 private:
  std::shared_ptr<Room> room_;
  std::uint64_t number_;
};

/// A message that has been sent.
class SentWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

/// Messages of one address are received in the order in which they are waited for.
class ReceiveWork final : public c10d::Work {
 public:
  ReceiveWork(std::shared_ptr<Room> room, const Address& address, at::Tensor into)
      : room_(std::move(room)), address_(address), into_(std::move(into)) {}

  bool wait(std::chrono::milliseconds) override {
    const at::NoGradGuard no_grad;
    room_->receive(address_, into_);
    return true;
  }

 private:
  std::shared_ptr<Room> room_;
  Address address_;
  at::Tensor into_;
};

class ThreadBackend final : public c10d::Backend {
 public:
  ThreadBackend(int rank, int size, std::shared_ptr<Room> room)
      : c10d::Backend(rank, size), room_(std::move(room)) {}

  const std::string getBackendName() const override { return "threads"; }
  void abort() override { room_->abort(); }
  /// Collectives that this rank has begun.
  std::uint64_t getSequenceNumberForGroup() override { return next_; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& opts) override {
    const bool max = opts.reduceOp.op_ == c10d::ReduceOp::MAX;
    TORCH_CHECK(max || opts.reduceOp.op_ == c10d::ReduceOp::SUM, "threads can sum or take the max");
    return meet(tensors, [max](auto& of_rank) {
      auto total = of_rank[0][0].clone();
      for (std::size_t r = 1; r < of_rank.size(); ++r) {
        const auto& next = of_rank[r][0];
        total = max ? at::maximum(total, next) : total.add_(next);
      }
      for (auto& tensors_of_rank : of_rank) tensors_of_rank[0].copy_(total);
    });
  }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& opts) override {
    return meet(tensors, [root = static_cast<std::size_t>(opts.rootRank)](auto& of_rank) {
      for (auto& tensors_of_rank : of_rank) tensors_of_rank[0].copy_(of_rank[root][0].clone());
    });
  }

  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions&) override {
    auto brought = outputs[0];
    brought.push_back(inputs[0]);
    return meet(brought, [](auto& of_rank) {
      for (auto& tensors_of_rank : of_rank) {
        for (std::size_t r = 0; r < of_rank.size(); ++r) {
          tensors_of_rank[r].copy_(of_rank[r].back());
        }
      }
    });
  }

  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override {
    TORCH_CHECK(opts.reduceOp.op_ == c10d::ReduceOp::SUM, "threads can only sum");
    return meet({output, input}, [](auto& of_rank) {
      const auto part = of_rank[0][0].numel();
      for (std::size_t owner = 0; owner < of_rank.size(); ++owner) {
        const auto offset = part * static_cast<std::int64_t>(owner);
        auto sum = of_rank[0][1].view(-1).narrow(0, offset, part).clone();
        for (std::size_t r = 1; r < of_rank.size(); ++r) {
          sum.add_(of_rank[r][1].view(-1).narrow(0, offset, part));
        }
        of_rank[owner][0].view(-1).copy_(sum);
      }
    });
  }

  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions&) override {
    return meet({output, input}, [](auto& of_rank) {
      std::vector<at::Tensor> inputs;
      for (const auto& tensors_of_rank : of_rank) inputs.push_back(tensors_of_rank[1].clone());
      for (auto& tensors_of_rank : of_rank) tensors_of_rank[0].copy_(at::cat(inputs));
    });
  }

  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<std::int64_t>& output_splits,
                                               std::vector<std::int64_t>& input_splits,
                                               const c10d::AllToAllOptions&) override {
    auto parts = output.split_with_sizes(output_splits);
    for (const auto& part : input.split_with_sizes(input_splits)) parts.push_back(part);
    return meet(parts, [](auto& of_rank) {
      const auto ranks = of_rank.size();
      for (std::size_t to = 0; to < ranks; ++to) {
        for (std::size_t from = 0; from < ranks; ++from) {
          of_rank[to][from].copy_(of_rank[from][ranks + to]);
        }
      }
    });
  }

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    room_->send({rank_, to, tag}, tensors[0]);
    return c10::make_intrusive<SentWork>();
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from,
                                      int tag) override {
    return c10::make_intrusive<ReceiveWork>(room_, Address{from, rank_, tag}, tensors[0]);
  }

  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override {
    return meet({}, [](auto&) {});
  }

 private:
  c10::intrusive_ptr<c10d::Work> meet(const std::vector<at::Tensor>& tensors, const Act& act) {
    const auto number = next_++;
    room_->arrive(rank_, number, tensors, act);
    return c10::make_intrusive<ThreadWork>(room_, number);
  }

  std::shared_ptr<Room> room_;
  std::uint64_t next_ = 0;
};

ProcessGroup member(int rank, int ranks, const std::shared_ptr<Room>& room) {
  const auto custom = c10d::ProcessGroup::BackendType::CUSTOM;
  auto group =
      c10::make_intrusive<c10d::ProcessGroup>(c10::intrusive_ptr<c10d::Store>(), rank, ranks);
  group->setBackend(c10::DeviceType::CPU, custom,
                    c10::make_intrusive<ThreadBackend>(rank, ranks, room));
  group->setDefaultBackend(custom);
  return group;
}

std::vector<std::exception_ptr> run_all(int ranks,
                                        const std::function<void(const ProcessGroup&)>& body) {
  at::set_num_threads(1);
  const auto room = std::make_shared<Room>(ranks);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(member(rank, ranks, room));
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
          room->abort();
        }
      });
    }
  }
  return errors;
}

}  // namespace

void run_on_threads(int ranks, const std::function<void(const ProcessGroup&)>& body) {
  for (const auto& error : run_all(ranks, body)) {
    if (error) std::rethrow_exception(error);
  }
}

std::vector<std::string> errors_on_threads(int ranks,
                                           const std::function<void(const ProcessGroup&)>& body) {
  std::vector<std::string> texts;
  for (const auto& error : run_all(ranks, body)) {
    texts.emplace_back();
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& exception) {
      texts.back() = exception.what();
    }
  }
  return texts;
}

}  // namespace gradwire::test
