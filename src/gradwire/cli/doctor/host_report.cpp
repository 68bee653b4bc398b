#include "gradwire/cli/doctor/host_report.h"

#include <algorithm>
#include <array>
#include <climits>
#include <filesystem>
#include <fstream>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/utsname.h>

#include "gradwire/base/crc32c.h"
#include "gradwire/base/json_fields.h"
#include "gradwire/base/units.h"
#include "gradwire/bootstrap/handshake/handshake_messages.h"
#include "gradwire/bootstrap/mesh/local_rails.h"
#include "gradwire/cli/bench/peers.h"
#include "gradwire/cli/launch/hosts.h"
#include "gradwire/cli/launch/process.h"
#include "gradwire/cli/sibling.h"
#include "gradwire/net/address.h"
#include "gradwire/topology/interfaces.h"

namespace gradwire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLastOutcome = static_cast<int>(Reachability::Outcome::unauthenticated);

/// Serializes; invalid UTF-8 is replaced.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json json_of(const RailInfo& rail) {
  return {{"interface", rail.interface}, {"address", rail.address}, {"endpoint", rail.endpoint},
          {"echo", rail.echo},           {"mtu", rail.mtu},         {"megabits", rail.megabits},
          {"loopback", rail.loopback}};
}

Json json_of(const ResolvedName& name) {
  return {{"name", name.name}, {"addresses", name.addresses}, {"error", name.error}};
}

template <class T>
Json list_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(json_of(value));
  return list;
}

RailInfo rail_from(JsonFields fields) {
  RailInfo rail;
  rail.interface = fields.text("interface");
  rail.address = fields.text("address");
  rail.endpoint = fields.text("endpoint");
  rail.echo = fields.text("echo");
  rail.mtu = fields.integer("mtu", 0, INT_MAX);
  rail.megabits = fields.integer("megabits", 0, INT_MAX);
  rail.loopback = fields.flag("loopback");
  fields.refuse_others();
  return rail;
}

ResolvedName name_from(JsonFields fields) {
  ResolvedName name;
  name.name = fields.text("name");
  name.addresses = fields.texts("addresses");
  name.error = fields.text("error");
  fields.refuse_others();
  return name;
}

HostInfo host_from(JsonFields fields) {
  HostInfo info;
  info.host = fields.text("host");
  info.version = fields.text("version");
  info.build = fields.text("build");
  info.protocol = fields.integer("protocol", 0, INT_MAX);
  info.torch = fields.text("torch");
  info.torch_problem = fields.text("torch_problem");
  info.python_program = fields.text("python_program");
  info.python = fields.text("python");
  info.system = fields.text("system");
  info.max_files = fields.integer("max_files", 0, INT_MAX);
  info.max_receive_buffer = fields.integer("max_received", 0, INT_MAX);
  info.max_send_buffer = fields.integer("max_sent", 0, INT_MAX);
  info.max_requested_buffer = fields.integer("max_requested", 0, INT_MAX);
  info.interfaces = fields.text("interfaces");
  for (JsonFields& name : fields.objects("names", 0)) info.names.push_back(name_from(name));
  for (JsonFields& rail : fields.objects("rails", 0)) info.rails.push_back(rail_from(rail));
  info.problems = fields.texts("problems");
  info.port_problems = fields.texts("port_problems");
  info.master = fields.text("master");
  info.master_problem = fields.text("master_problem");
  info.faster = fields.texts("faster");
  info.other_cards = fields.texts("other_cards");
  info.token = fields.text("token");
  fields.refuse_others();
  return info;
}

Reachability reach_from(JsonFields fields) {
  Reachability reach;
  reach.to = fields.integer("to", 0, kMaxRanks);
  reach.rail = fields.integer("rail", kMasterRail, INT_MAX);
  reach.outcome = static_cast<Reachability::Outcome>(fields.integer("outcome", 0, kLastOutcome));
  reach.error = fields.text("error");
  reach.has_echo = fields.flag("has_echo");
  reach.largest_packet = fields.integer("largest_packet", 0, INT_MAX);
  reach.datagrams = fields.integer("datagrams", 0, INT_MAX);
  reach.lost = fields.integer("lost", 0, INT_MAX);
  reach.detour = fields.flag("detour");
  fields.refuse_others();
  return reach;
}

}  // namespace

std::string to_json(const HostInfo& info) {
  return text_of({{"host", info.host},
                  {"version", info.version},
                  {"build", info.build},
                  {"protocol", info.protocol},
                  {"torch", info.torch},
                  {"torch_problem", info.torch_problem},
                  {"python_program", info.python_program},
                  {"python", info.python},
                  {"system", info.system},
                  {"max_files", info.max_files},
                  {"max_received", info.max_receive_buffer},
                  {"max_sent", info.max_send_buffer},
                  {"max_requested", info.max_requested_buffer},
                  {"interfaces", info.interfaces},
                  {"names", list_of(info.names)},
                  {"rails", list_of(info.rails)},
                  {"problems", info.problems},
                  {"port_problems", info.port_problems},
                  {"master", info.master},
                  {"master_problem", info.master_problem},
                  {"faster", info.faster},
                  {"other_cards", info.other_cards},
                  {"token", info.token}});
}

std::string to_json(const std::vector<Reachability>& info) {
  Json list = Json::array();
  for (const Reachability& one : info) {
    list.push_back({{"to", one.to},
                    {"rail", one.rail},
                    {"outcome", static_cast<int>(one.outcome)},
                    {"error", one.error},
                    {"has_echo", one.has_echo},
                    {"largest_packet", one.largest_packet},
                    {"datagrams", one.datagrams},
                    {"lost", one.lost},
                    {"detour", one.detour}});
  }
  return text_of({{"reach", std::move(list)}});
}

Result<HostInfo> parse_host_info(const std::string& text) {
  return read_json_fields(text, "report of a host", host_from);
}

Result<std::vector<Reachability>> parse_reachability(const std::string& text) {
  return read_json_fields(text, "report of a host", [](JsonFields fields) {
    std::vector<Reachability> all;
    for (JsonFields& one : fields.objects("reach", 0)) all.push_back(reach_from(one));
    return all;
  });
}

std::size_t max_rails(const ClusterReport& cluster_report) {
  std::size_t max = 0;
  for (const HostReport& report : cluster_report.reports) {
    if (report.info) max = std::max(max, report.info->rails.size());
  }
  return max;
}

namespace {

/// libtorch is half a gigabyte, possibly loaded from a disk or over the network.
constexpr Duration kStartTimeout = std::chrono::seconds(10);

/// Prints the versions of python3's gradwire and PyTorch as JSON. Imports neither of them, which
/// would take seconds.
constexpr const char* kAskPython = R"(
import glob, importlib.metadata, importlib.util, json, os, runpy
found = importlib.util.find_spec("gradwire")
if found and found.submodule_search_locations:
    folder = found.submodule_search_locations[0]
    build = runpy.run_path(os.path.join(folder, "_build.py"))
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = "none"
    release = "_torch_" + "_".join(torch.split(".")[:2])
    print(json.dumps({"gradwire": build["VERSION"], "torch": torch,
                      "core": ([core for pattern in (release, "_torch_*")
                                for core in glob.glob(os.path.join(folder, pattern, "_core*.so"))]
                               + [""])[0]}))
)";

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// Returns the text after `word` up to the next comma or end of line.
std::string after(const std::string& text, const std::string& word) {
  const std::size_t at = text.find(word);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + word.size();
  return text.substr(begin, text.find_first_of(",\n", begin) - begin);
}

void read_torch_version(HostInfo& info) {
  const auto program = find_torch_program();
  if (!program) return;
  const auto said = run_captured({*program, "--version"}, kStartTimeout);
  if (!said) {
    info.torch_problem = said.error().message;
  } else if (said->status != 0) {
    info.torch_problem =
        said->err.empty() ? fmt::format("status {}", said->status) : first_line(said->err);
  } else {
    info.torch = after(said->out, "runs with PyTorch ");
  }
}

/// Returns "" if there is no such program, or it has no gradwire.
std::string read_python_versions(const std::string& program) {
  const auto said = run_captured({program, "-c", kAskPython}, kStartTimeout);
  if (!said || said->status != 0 || said->out.empty()) return "";
  const auto read = read_json_fields(said->out, "answer of Python", [](JsonFields fields) {
    return fmt::format("gradwire {} (extension {}) and PyTorch {}", fields.text("gradwire"),
                       checksum_of(fields.text("core")), fields.text("torch"));
  });
  return read.value_or("");
}

}  // namespace

void read_installed_versions(HostInfo& info) {
  read_torch_version(info);
  info.python = read_python_versions(info.python_program);
}

std::string checksum_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  std::vector<std::byte> piece(1 << 20);
  std::uint32_t sum = 0;
  for (;;) {
    file.read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
    if (file.gcount() <= 0) return fmt::format("{:08x}", sum);
    sum = crc32c(ConstBytes(piece).first(static_cast<std::size_t>(file.gcount())), sum);
  }
}

namespace {

/// Returns the file that has this code: libgradwire.so.
std::string own_library() {
  Dl_info info = {};
  return ::dladdr(reinterpret_cast<void*>(&checksum_of), &info) != 0 ? info.dli_fname : "";
}

/// Returns checksums of the running program, of its library and, if installed, of the program
/// beside it that needs libtorch.
std::string build_of_this() {
  const auto torch = find_torch_program();
  return checksum_of(own_executable()) + "+" + checksum_of(own_library()) +
         (torch ? "+" + checksum_of(*torch) : "");
}

std::string system_of_this() {
  utsname name = {};
  ::uname(&name);
  return fmt::format("{} {}, glibc {}", name.sysname, name.release, ::gnu_get_libc_version());
}

int max_files() {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_max, INT_MAX));
}

/// Returns the last of the three values (min, default, max) of net.ipv4.tcp_rmem or tcp_wmem.
int max_buffer(const char* name) {
  std::array<int, 3> min_default_max = {};
  std::ifstream file(fmt::format("/proc/sys/net/ipv4/{}", name));
  for (int& number : min_default_max) file >> number;
  return min_default_max.back();
}

/// Returns net.core.rmem_max; 0 in a container that hides it.
int max_requested_buffer() {
  int max = 0;
  std::ifstream("/proc/sys/net/core/rmem_max") >> max;
  return max;
}

ResolvedName resolve_here(const std::string& name) {
  ResolvedName info{.name = name, .addresses = {}, .error = {}};
  const auto addresses = net::resolve(name, 0);
  if (!addresses) info.error = addresses.error().message;
  for (const net::SocketAddress& one : addresses.value_or(std::vector<net::SocketAddress>{})) {
    const std::string host = one.host();
    if (std::ranges::find(info.addresses, host) == info.addresses.end()) {
      info.addresses.push_back(host);
    }
  }
  return info;
}

std::vector<bootstrap::RailEndpoint> any_rails() {
  const auto all = topology::list_interfaces();
  for (const topology::Interface& one : all.value_or(std::vector<topology::Interface>{})) {
    if (one.loopback || !one.up || one.addresses.empty()) continue;
    auto address = net::SocketAddress::of(one.addresses.front(), 0);
    if (address) return {{*address, one.name}};
  }
  return {};
}

}  // namespace

HostInfo read_host_info(const std::vector<std::string>& names, const std::string& python) {
  HostInfo info{.host = this_host_name(),
                .version = GRADWIRE_VERSION,
                .build = build_of_this(),
                .protocol = static_cast<int>(bootstrap::kProtocolVersion),
                .system = system_of_this(),
                .max_files = max_files(),
                .max_receive_buffer = max_buffer("tcp_rmem"),
                .max_send_buffer = max_buffer("tcp_wmem"),
                .max_requested_buffer = max_requested_buffer()};
  const auto all = topology::list_interfaces();
  info.interfaces = all ? topology::describe_interfaces(*all) : all.error().message;
  for (const std::string& name : names) info.names.push_back(resolve_here(name));
  info.python_program = python;
  read_installed_versions(info);
  return info;
}

std::vector<bootstrap::RailEndpoint> find_rails(const bootstrap::Job& job,
                                                std::vector<std::string>& problems) {
  const auto masters = net::resolve(job.master_address, job.master_port);
  if (!masters) {
    // diagnose_names() reports it.
    if (job.interface.empty()) return any_rails();
    const auto chosen = bootstrap::choose_local_rails(job.interface, net::SocketAddress());
    if (chosen) return *chosen;
    problems.push_back(chosen.error().message);
    return any_rails();
  }
  auto chosen = bootstrap::choose_local_rails(job.interface, masters->front());
  if (chosen) return std::move(*chosen);
  problems.push_back(chosen.error().message);
  return any_rails();
}

int negotiated_megabits(const std::string& interface) {
  const std::filesystem::path card = "/sys/class/net/" + interface;
  std::error_code error;
  if (!std::filesystem::exists(card / "device", error)) return 0;
  int megabits = 0;
  std::ifstream(card / "speed") >> megabits;
  return std::max(megabits, 0);
}

std::vector<std::string> other_cards(const std::vector<std::string>& rails,
                                     const bootstrap::Environment& environment,
                                     const std::string& default_of_gloo) {
  const std::string own = fmt::format("{}", fmt::join(rails, ","));
  const auto value = [&](const char* name) { return environment(name).value_or(""); };
  const std::string gloo =
      value("GLOO_SOCKET_IFNAME").empty() ? default_of_gloo : value("GLOO_SOCKET_IFNAME");
  // With devices of RDMA, NCCL uses interfaces only to connect.
  std::string nccl =
      value("NCCL_IB_HCA").empty() ? value("NCCL_SOCKET_IFNAME") : value("NCCL_IB_HCA");
  if (nccl.starts_with('=')) nccl.erase(0, 1);
  std::vector<std::string> cards;
  if (gloo.find(',') != std::string::npos) {
    cards.push_back(fmt::format("Gloo one of {} for each operation", gloo));
  } else if (gloo != own) {
    cards.push_back("Gloo " + gloo);
  }
  for (const auto& [engine, taken] :
       {std::pair("NCCL", nccl), std::pair("UCX", value("UCX_NET_DEVICES"))})
    if (!taken.empty() && taken != own) cards.push_back(fmt::format("{} {}", engine, taken));
  return cards;
}

std::string default_card_of_gloo() {
  const auto all = topology::list_interfaces();
  const ResolvedName name = resolve_here(this_host_name());
  const std::string card = all && !name.addresses.empty()
                               ? topology::interface_with_address(name.addresses.front(), *all)
                               : "";
  return card.empty() ? "lo" : card;
}

std::vector<std::string> faster_interfaces(const std::vector<bootstrap::RailEndpoint>& rails) {
  int fastest = 0;
  for (const bootstrap::RailEndpoint& rail : rails) {
    fastest = std::max(fastest, negotiated_megabits(rail.interface));
  }
  std::vector<std::string> faster;
  if (fastest == 0) return faster;
  const auto all = topology::list_interfaces();
  for (const topology::Interface& one : all.value_or(std::vector<topology::Interface>{})) {
    const int megabits = one.up && !one.addresses.empty() ? negotiated_megabits(one.name) : 0;
    if (megabits < 2 * fastest) continue;
    faster.push_back(fmt::format("{} ({}), {}", one.name, one.addresses.front(),
                                 format_rate(megabits * 1e6 / 8)));
  }
  return faster;
}

}  // namespace gradwire::cli
