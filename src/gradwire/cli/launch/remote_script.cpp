#include "gradwire/cli/launch/remote_script.h"

#include <csignal>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/bootstrap/failure_report.h"
#include "gradwire/cli/launch/cards.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire::cli {

std::string shell_quote(std::string_view text) {
  // Within single quotes every character is literal; only the quote itself must be written outside.
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

namespace {

// The program runs in the foreground because shells start background commands with SIGINT ignored.
// Meanwhile the shell's own stderr is closed: some shells print there how the program ended, which
// the launcher reports itself.
constexpr const char* kScript = R"sh({{
mark={mark}
marked() {{ grep -ls "$mark" /proc/[0-9]*/environ; }}
signal_marked() {{
  for file in $(marked); do file=${{file%/environ}}; kill -s "$1" "${{file#/proc/}}"; done
}}
saving() {{ [ "$(tail -n 1 "$report")" = {saving} ]; }}
tell_optional() {{
  line=$(grep "^{optional} " "$report" | tail -n 1)
  printf "%s %s\n" {report} "${{line:-{optional} 0 0}}" >&4
}}
cd -- {folder} || {{
  echo "gradwire: a job runs in the folder where it was started, but this host has no such folder" \
    "or cannot enter it: create it (mkdir -p), share it, or start in a folder of all hosts" >&2
  exit 1
}}
exec 3<&0 4>&2 </dev/null 2>/dev/null
report=$(mktemp)
(
  while IFS=' ' read -r signal group; do
    case $signal in
      KILL) signal_marked KILL;;
      NOTES) tell_optional;;
      END) (
        saving && printf "%s %s\n" {report} {saving} >&4
        while saving; do sleep 0.1 || sleep 1; done
        signal_marked KILL
      ) & ;;
      *) kill -s "$signal" -- "-$group" || kill -s "$signal" "$group";;
    esac
  done
  signal_marked KILL
) <&3 3<&- >/dev/null &
reader=$!
exec 3<&-
(
{exports}{cards}  export {report_variable}="$report"
  if [ -z "${{OMP_NUM_THREADS-}}" ]; then
    cores=$(nproc || echo 1)
    limit() {{ # QUOTA PERIOD: of a control group, in microseconds.
      [ "$1" -gt 0 ] && [ $((($1 + $2 - 1) / $2)) -lt "$cores" ] && cores=$((($1 + $2 - 1) / $2))
    }}
    cgroup=$(sed -n 's/^0:://p' /proc/self/cgroup)
    while
      read -r quota period <"/sys/fs/cgroup$cgroup/cpu.max" && limit "$quota" "$period"
      [ -n "${{cgroup%/}}" ]
    do cgroup=${{cgroup%/*}}; done
    cgroup=$(sed -n 's/^[0-9]*:\(.*,\)\{{0,1\}}cpu\(,.*\)\{{0,1\}}:\//\//p' /proc/self/cgroup)
    for folder in "/sys/fs/cgroup/cpu$cgroup" /sys/fs/cgroup/cpu; do
      limit "$(cat "$folder/cpu.cfs_quota_us")" "$(cat "$folder/cpu.cfs_period_us")"
    done
    OMP_NUM_THREADS=$((cores > {local_world_size} ? cores / {local_world_size} : 1))
    export OMP_NUM_THREADS
  fi
  export PYTHONUNBUFFERED="${{PYTHONUNBUFFERED-1}}"
  own_session=$(command -v setsid) || own_session=
  exec $own_session sh -c '
    printf "%s %s\n" {ready} $$
    command -v "$1" >/dev/null || {{
      case $1 in
        */*) echo "gradwire: no program $1 on this host: install it there at the same path";;
        *) echo "gradwire: no program $1 in the PATH of this host ($PATH), as set by the remote" \
             "shell: name the program by its absolute path, or forward your PATH with --env PATH";;
      esac >&2
      exit 127
    }}
    exec "$@"' sh {program} 2>&4 4>&-
)
status=$?
failure=$(grep -m 1 "^[0-9]" "$report") && printf "%s %s\n" {report} "$failure" >&4
tell_optional
rm -f "$report"
# After a normal end or a stop signal, children may still clean up during the grace period. After a
# failure the launcher must learn of it at once.
case $status in
  0|129|130|131|138|143) tenths={tenths};;
  *) tenths=0;;
esac
signal_marked TERM
while [ "$tenths" -gt 0 ] && [ -n "$(marked)" ]; do
  sleep 0.1 || sleep 1
  tenths=$((tenths - 1))
done
signal_marked KILL
kill "$reader"
exit "$status"
}}
)sh";

std::string exports_of(const RemoteRank& rank) {
  std::string lines;
  for (const char* name : kOfAnotherJob) lines += fmt::format("  unset {}\n", name);
  for (const auto& [name, value] : rank.variables) {
    lines += fmt::format("  export {}={}\n", name, shell_quote(value));
  }
  return lines;
}

std::string words_of(const std::vector<std::string>& program) {
  std::string words;
  for (const std::string& word : program) words += (words.empty() ? "" : " ") + shell_quote(word);
  return words;
}

}  // namespace

std::string remote_script(const RemoteRank& rank) {
  return fmt::format(
      kScript, fmt::arg("mark", fmt::format("{}={}.{}", kProcessMark, rank.rank, rank.run)),
      fmt::arg("folder", shell_quote(rank.folder)), fmt::arg("exports", exports_of(rank)),
      fmt::arg("cards", kCardScript), fmt::arg("local_world_size", rank.local_world_size),
      fmt::arg("ready", ready_line(rank.run)), fmt::arg("report", report_line(rank.run)),
      fmt::arg("saving", bootstrap::kSaving), fmt::arg("optional", bootstrap::kOptional),
      fmt::arg("report_variable", bootstrap::kReportVariable),
      fmt::arg("program", words_of(rank.program)), fmt::arg("tenths", 10 * rank.grace_seconds));
}

std::string ready_line(const std::string& run) {
  return "gradwire-rank-runs-" + run;
}

std::string notes_line(const std::string& process) {
  return fmt::format("NOTES {}\n", process);
}

std::string end_line(const std::string& process) {
  return fmt::format("END {}\n", process);
}

std::string report_line(const std::string& run) {
  return "gradwire-rank-failed-" + run;
}

std::string remedy_for_ssh(const std::vector<std::string>& rsh, const std::string& host,
                           int status) {
  constexpr int kSshFailed = 255;
  if (rsh.front() != "ssh" || status != kSshFailed) return "";
  return fmt::format(
      "\"{0} {1} true\" must work without a question: check the host's name; ssh-copy-id {1} "
      "authorizes your key there, ssh-keyscan {1} >> ~/.ssh/known_hosts accepts its host key",
      fmt::join(rsh, " "), host);
}

std::string control_line(int signal, const std::string& process) {
  return fmt::format("{} {}\n", ::sigabbrev_np(signal), process);
}

}  // namespace gradwire::cli
