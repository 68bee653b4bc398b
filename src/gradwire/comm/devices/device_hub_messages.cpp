#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/comm/devices/device_hub.h"

// Messages: between two devices, and of a device to itself.
namespace gradwire {
namespace {

using engine::OperationRequest;

bool sends_from(const OperationRequest& request, Rank rank) {
  return request.sends_to_self ||
         (request.fingerprint.root == rank && request.peer >= 0 && request.peer != rank);
}

std::size_t bytes_of_message(const OperationRequest& request) {
  return static_cast<std::size_t>(request.fingerprint.count) * size_of(request.fingerprint.type);
}

}  // namespace

void DeviceHub::arrive_with_message(int device, OperationRequest request) {
  Group& group = *groups_[request.group];
  const Rank self = group.shape.rank(static_cast<int>(place_of(group, device)));
  const Rank peer = request.peer;
  const bool sends = sends_from(request, self);
  const auto message = std::make_shared<Meeting>(Meeting{.group = request.group,
                                                         .devices = {0},
                                                         .missing = 1,
                                                         .deadline = after(now(), request.timeout),
                                                         .owner = device,
                                                         .sends = sends,
                                                         .source = sends ? self : peer});
  if (request.sends_to_self) {  // The sender has its memory back at once.
    message->kept.assign(request.input, request.input + bytes_of_message(request));
    request.input = message->kept.data();
    std::exchange(request.completion, nullptr)->succeeded();
  }
  const int tag = request.tag;
  message->requests.push_back(std::move(request));
  in_flight_.push_back(message);
  if (peer >= 0 && group.shape.process_of(peer) != group.shape.process)
    return post_between(group, self, message);
  Mailbox& mailbox = group.mail[{sends ? peer : self, tag}];
  (sends ? mailbox.sends : mailbox.receives).push_back(message);
  deliver(mailbox);
  if (peer < 0 || message->missing == 0) return;
  const int other = group.devices[group.shape.device_of(peer)];
  if (has_left_[static_cast<std::size_t>(other)]) fail(departure(other, *message));
}

void DeviceHub::post_between(const Group& group, Rank self, const MeetingPointer& message) {
  const OperationRequest& request = message->requests.front();
  const std::size_t own = group.shape.device_of(self);
  const std::size_t other = group.shape.device_of(request.peer);
  const std::size_t sender = message->sends ? own : other, receiver = message->sends ? other : own;
  message->pair = static_cast<int>(sender) * group.shape.devices + static_cast<int>(receiver);
  message->missing = 0;
  message->steps = {
      {.between = [&what = request, sends = message->sends,
                   to = group.shape.process_of(request.peer)](Communicator& pair, int /*lane*/) {
        const OperationOptions options{
            .priority = what.priority, .timeout = what.timeout, .layout = what.fingerprint.sent};
        const auto count = static_cast<std::size_t>(what.fingerprint.count);
        const DataType type = what.fingerprint.type;
        return sends ? pair.send({what.input, count, type}, to, what.tag, options)
                     : pair.recv({what.output, count, type, nullptr}, to, what.tag, options);
      }}};
  start(message);
}

/// Starts the first message that a receive waits for, if there is one.
void DeviceHub::deliver(Mailbox& mailbox) {
  for (auto receive = mailbox.receives.begin(); receive != mailbox.receives.end(); ++receive) {
    const Rank wanted = (*receive)->source;  // -1: any.
    const auto send = std::ranges::find_if(mailbox.sends, [&](const MeetingPointer& each) {
      return wanted < 0 || each->source == wanted;
    });
    if (send == mailbox.sends.end()) continue;
    const MeetingPointer message = *receive, sent = *send;
    mailbox.receives.erase(receive);
    mailbox.sends.erase(send);
    const auto& from = sent->requests.front().fingerprint;
    const auto& to = message->requests.front().fingerprint;
    if (from.count != to.count || from.type != to.type || from.sent != to.sent) {
      const std::string text = fmt::format(
          "ranks disagree about a message with tag {}: rank {} "
          "sends {} {}, and {} {} are received",
          message->requests.front().tag, sent->source, from.count, name_of(from.type), to.count,
          name_of(to.type));
      return fail({ErrorKind::mismatch, text});
    }
    std::erase(in_flight_, sent);
    sent->missing = 0;
    message->source = sent->source;
    message->kept = std::move(sent->kept);
    message->requests.push_back(std::move(sent->requests.front()));
    message->missing = 0;
    const OperationRequest& receiver = message->requests.front();
    message->steps = {
        message_step(message->requests.back().input, receiver.output, bytes_of_message(receiver))};
    return start(message);
  }
}

}  // namespace gradwire
